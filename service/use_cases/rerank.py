"""The use case of `/v1/rerank`: documents in the order of their relevance to a query."""

import math

from turnwise.models.texts import write_count
from turnwise.service.current_request import request_id
from turnwise.service.errors import InvalidRequest
from turnwise.service.selection.reranking import Reranking
from turnwise.service.use_cases.rank import Ranking
from turnwise.service.wire.fields import USER, GivenTurn
from turnwise.service.wire.ranking import Ranked, RankRequest
from turnwise.service.wire.reranking import Document, Relevance, RerankAnswer, RerankRequest


class DocumentRanking:
    """Ranks documents as `/rank` ranks replies after a context of one utterance."""

    def __init__(self, ranking: Ranking, reranking: Reranking) -> None:
        self._ranking = ranking
        self._reranking = reranking

    async def rerank(self, namespace: str, request: RerankRequest, max_chars: int) -> RerankAnswer:
        """Rank documents with the cross-encoder, or with the encoder where there is none.

        Args:
            namespace: The namespace of the caller.
            request: The query and the documents.
            max_chars: Characters of a text that are read.

        Raises:
            InvalidRequest: There are more documents than the cross-encoder takes.
            ServiceError: Encoding or re-ranking failed.
        """
        has_cross_encoder = self._reranking.name == "cross_encoder"
        limit = self._reranking.short_list
        if has_cross_encoder and len(request.texts) > limit:
            raise InvalidRequest.field(
                f"the cross-encoder takes at most {write_count(limit, 'document')}", "documents"
            )
        query = GivenTurn.model_construct(speaker=USER, text=request.query[:max_chars])
        ranked = await self._ranking.rank(
            namespace,
            RankRequest.model_construct(
                context=[query],
                candidates=[text[:max_chars] for text in request.texts],
                rerank="cross_encoder" if has_cross_encoder else None,
            ),
        )
        results = [
            _as_relevance(each, request, is_logit=has_cross_encoder) for each in ranked.ranking
        ]
        # Blank documents go to the end: a model may score one above others.
        results.sort(key=lambda result: not request.texts[result.index].strip())
        return RerankAnswer.model_construct(
            id=request_id.get(""),
            model=(self._reranking.model if has_cross_encoder else None) or ranked.model,
            results=results[: request.top_n],
        )


def _as_relevance(ranked: Ranked, request: RerankRequest, *, is_logit: bool) -> Relevance:
    document = None
    if request.return_documents:
        document = Document.model_construct(text=request.texts[ranked.index])
    score = ranked.score
    if is_logit:
        score = 0.5 + 0.5 * math.tanh(score / 2)  # the logistic function, without its overflow
    if not request.texts[ranked.index].strip():
        score = 0.0 if is_logit else -1.0  # the lowest probability, or the lowest cosine
    return Relevance.model_construct(index=ranked.index, relevance_score=score, document=document)

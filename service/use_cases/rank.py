"""The use case of ranking: sorts candidates by weighted goals plus the next-utterance score."""

import asyncio
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs
from turnwise.models.scores import Aggregation
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.logs import request_id
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, PoolView
from turnwise.service.selection.confidence import FEWEST, Confidence
from turnwise.service.selection.context import Context, Contexts, aggregation_of, empty_context
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.selection.pipeline import (
    best,
    check_served,
    found,
    pairwise_of,
    selected,
)
from turnwise.service.selection.scores import (
    Candidates,
    NextUtteranceScores,
    goal_scores,
    next_utterance_scores,
)
from turnwise.service.selection.short_list import Reranking
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.fields import GivenTurn
from turnwise.service.wire.pools import PoolVersion, SearchRequest, Selected
from turnwise.service.wire.ranking import (
    GivenCandidate,
    RankAnswer,
    Ranked,
    RankRequest,
    Rejected,
)
from turnwise.service.wire.reranking import Document, Relevance, RerankAnswer, RerankRequest

_MOST_PAIRS = 1 << 24
"""Most pairs of utterances times candidates that MaxSim scores: about two seconds."""
_ASKS = "user"
"""The speaker of a query: any but the responder."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request with its filter, its context, the aggregation in force, and its timings."""

    request: RankRequest
    where: Filter | None
    context: Context
    aggregation: Aggregation
    timings: Timings

    @property
    def sums_rows(self) -> bool:
        """Whether the running query gives the next-utterance scores, and no more is asked."""
        return self.aggregation.name != "max_sim" and not self.request.explain


class Ranking:
    """Ranks candidates by eq. 3 and eq. 4 of C3L, or with a re-ranker."""

    def __init__(
        self,
        *,
        contexts: Contexts,
        pools: Pools,
        encoder: CachedEncoder,
        pairwise: Pairwise | None,
        reranking: Reranking,
        confidence: Confidence,
        metrics: Metrics,
        timeout: float,
    ) -> None:
        self._contexts, self._pools, self._encoder = contexts, pools, encoder
        self._pairwise, self._reranking, self._confidence = pairwise, reranking, confidence
        self._metrics, self._timeout = metrics, timeout

    async def rank(self, namespace: str, request: RankRequest) -> RankAnswer:
        """Rank candidates; with goals by Σ weight · eq. 4 + fit_weight · next-utterance score.

        Of a pool, the best candidates by the next-utterance score are ranked: the short list, or
        `top_k` of them if that is more. The filter of the session applies to them as well.

        Raises:
            SessionNotFound: There is no such session.
            PoolNotFound: There is no such pool.
            InvalidRequest: There is neither a context nor a goal, no such re-ranker, nothing that
                could be explained, too much to compare, the filter makes no sense, or an option
                needs a pool or another one.
            Conflict: The session has no utterance, and there is no goal.
            ServiceError: Reading, encoding or searching failed.
        """
        timings = Timings(self._metrics, "encode", "state", "retrieve", "rerank")
        self._reranking.check(request.rerank, explain=request.explain)
        _check_of_pool(request)
        with timings.stage("state"):
            context = await self._contexts.read(namespace, request)
        where = Filter.of(context.where, request.where)
        if not context.utterances and (request.pool or not request.goals):
            raise empty_context(request)
        aggregation = aggregation_of(request, self._encoder.aggregation)
        asked = _Asked(request, where, context, aggregation, timings)
        view = await self._pools.view(namespace, request.pool) if request.pool else None
        confidence = None
        if view:
            candidates, fit, confidence = await self._retrieved(view, asked)
        else:
            candidates = self._given(asked)
            fit = await self._next_utterance_scores(candidates, asked)
        with timings.stage("encode"):
            goals = await goal_scores(self._contexts, context, candidates, request.goals)
            avoid = await goal_scores(self._contexts, context, candidates, request.avoid)
        with timings.stage("rerank"):
            over = _over(request, avoid)
            ranking = _ranking(request, candidates, fit, goals, over)
            rejected = _rejected(request, candidates, avoid, over)
        return RankAnswer.model_construct(
            ranking=ranking,
            rejected=rejected,
            confidence=confidence,
            pool=PoolVersion(name=view.name, version=view.version) if view else None,
            model=self._encoder.name,
            timings_ms=timings.milliseconds(),
        )

    async def rerank(self, namespace: str, request: RerankRequest, max_chars: int) -> RerankAnswer:
        """Rank documents after a query, as `rank` does after a context of one utterance.

        The cross-encoder scores them, or without one the encoder.

        Args:
            namespace: The namespace of the caller.
            request: The query and the documents.
            max_chars: Characters of a text that are read.

        Raises:
            InvalidRequest: More documents than the cross-encoder takes.
            ServiceError: Encoding or re-ranking failed.
        """
        texts, short_list = request.texts, self._reranking.short_list
        by_pairs = self._reranking.name == "cross_encoder"
        if by_pairs and len(texts) > short_list:
            raise InvalidRequest.field(
                f"the cross-encoder takes at most {short_list} documents", "documents"
            )
        asked = RankRequest.model_construct(
            context=[GivenTurn.model_construct(speaker=_ASKS, text=request.query[:max_chars])],
            candidates=[text[:max_chars] for text in texts],
            rerank="cross_encoder" if by_pairs else None,
            top_k=request.top_n,
        )
        ranked = await self.rank(namespace, asked)
        return RerankAnswer.model_construct(
            id=request_id.get(""),
            model=(by_pairs and self._reranking.model) or ranked.model,
            results=[
                Relevance.model_construct(
                    index=one.index,
                    relevance_score=_probability(one.score) if by_pairs else one.score,
                    document=Document.model_construct(text=texts[one.index])
                    if request.return_documents
                    else None,
                )
                for one in ranked.ranking
            ],
        )

    async def search(self, namespace: str, pool: str, request: SearchRequest) -> list[Selected]:
        """Return the best replies to a text of another speaker.

        Raises:
            InvalidRequest: The filter makes no sense.
            PoolNotFound: There is no such pool.
        """
        where = Filter.of(request.where)
        view = await self._pools.view(namespace, pool)
        if pairwise := pairwise_of(view, self._pairwise):
            query = await pairwise.query([request.text])
        else:
            inputs = [RoleText(request.text, Role.SECOND, Relation.OTHER)]
            (query,) = await self._encoder.encode(inputs, timeout=self._timeout)
        hits = await view.search(query, request.top_k, where)
        return [selected(hit, hit.score) for hit in hits]

    def _most(self, asked: _Asked) -> int:
        """Return the limit of candidates."""
        if asked.request.wants_fit and asked.request.rerank:
            return self._reranking.short_list
        if asked.request.wants_fit and asked.aggregation.name == "max_sim":
            return _MOST_PAIRS // max(len(asked.context.utterances), 1) ** 2
        return _MOST_PAIRS

    def _given(self, asked: _Asked) -> Candidates:
        given, most = asked.request.candidates or [], self._most(asked)
        if len(given) > most:
            raise InvalidRequest.field(
                f"{asked.request.rerank or asked.aggregation.name} over "
                f"{len(asked.context.utterances)} utterances takes at most {most} candidates",
                "candidates",
            )
        whole = [one if isinstance(one, GivenCandidate) else _unnamed(one) for one in given]
        return Candidates(
            [one.id for one in whole],
            [one.text for one in whole],
            [one.speaker or asked.context.responder for one in whole],
        )

    async def _retrieved(
        self, view: PoolView, asked: _Asked
    ) -> tuple[Candidates, NextUtteranceScores | None, float | None]:
        """Return the short list of a pool, its next-utterance scores, and the confidence."""
        request, context = asked.request, asked.context
        count = max(request.top_k or 0, min(self._reranking.short_list, self._most(asked)))
        pairwise = pairwise_of(view, self._pairwise)
        check_served(view, explain=request.explain, repeat=request.repeat)
        with asked.timings.stage("encode"):
            query = await (pairwise.query(context.texts) if pairwise else self._query(asked))
            said = await self._contexts.said(context.turns, context.responder, request.repeat)
        with asked.timings.stage("retrieve"):
            confident, confidence = self._has_confidence(view, asked), None
            texts = FEWEST if confident else 1
            hits = await found(view, query, count, said, asked.where, texts=texts)
            if confident:
                utterances = len(context.utterances)
                confidence = await self._confidence.of(view, query, hits, asked.where, utterances)
        hits = hits[:count]
        ids = [hit.candidate.id for hit in hits]
        scored = not request.rerank and (pairwise is not None or asked.sums_rows)
        unread = scored and not (request.goals or request.avoid)
        candidates = Candidates(
            [*ids],
            [hit.candidate.text for hit in hits],
            [context.responder] * len(hits),
            [hit.candidate.metadata for hit in hits],
            after=None if pairwise or unread else await view.vectors(ids),
            compared=await view.vectors(ids) if request.diversity else None,
        )
        if scored:
            of_search = NextUtteranceScores(np.array([hit.score for hit in hits], np.float32))
            return candidates, of_search if pairwise or request.wants_fit else None, confidence
        return candidates, await self._next_utterance_scores(candidates, asked), confidence

    def _has_confidence(self, view: PoolView, asked: _Asked) -> bool:
        request = asked.request
        if request.goals or request.avoid:
            return False
        return self._confidence.obstacle(view, asked.aggregation, request.rerank) is None

    async def _query(self, asked: _Asked) -> Float32:
        context = asked.context
        first, second = await self._contexts.encode(context, context.responder)
        return await asyncio.to_thread(asked.aggregation.query, first, second)

    async def _next_utterance_scores(
        self, candidates: Candidates, asked: _Asked
    ) -> NextUtteranceScores | None:
        """Return the next-utterance scores; None without a context or where they do not matter."""
        request, context = asked.request, asked.context
        if not context.utterances or not request.wants_fit:
            return None
        if request.rerank:
            scores = await self._reranking.scores(context.texts, candidates.texts, asked.timings)
            return NextUtteranceScores(scores)
        with asked.timings.stage("encode"):
            after = candidates.after
            if after is None:
                after = await self._contexts.encode_texts(candidate_inputs(candidates.texts))
            return await next_utterance_scores(
                self._contexts,
                context,
                candidates.speakers,
                after,
                asked.aggregation,
                explain=request.explain,
            )


def _check_of_pool(request: RankRequest) -> None:
    """Reject options for the candidates of a pool where the request gives candidates."""
    for name in ("where", "repeat", "diversity"):
        asked = getattr(request, name) != RankRequest.model_fields[name].default
        if asked and request.pool is None:
            raise InvalidRequest.field("is for the candidates of a pool: name a pool", name)


def _probability(logit: float) -> float:
    return 0.5 + 0.5 * math.tanh(logit / 2)  # the logistic function, without its overflow


def _unnamed(text: str) -> GivenCandidate:
    return GivenCandidate.model_construct(text=text, id=None, speaker=None)


def _over(request: RankRequest, avoid: Float32) -> NDArray[np.bool_]:
    """Return (C, A): whether each candidate leads to each utterance to avoid."""
    return avoid >= np.array([avoided.threshold for avoided in request.avoid])


def _ranking(
    request: RankRequest,
    candidates: Candidates,
    fit: NextUtteranceScores | None,
    goals: Float32,
    over: NDArray[np.bool_],
) -> list[Ranked]:
    """Return the candidates by score, or also by diversity, without the rejected ones."""
    weights = np.array([goal.weight for goal in request.goals])
    scores: Float64 = goals @ weights if request.goals else np.zeros(len(candidates.texts))
    if fit is not None:
        scores = scores + (request.fit_weight if request.goals else 1.0) * fit.scores
    kept = np.flatnonzero(~over.any(axis=1))
    compared = None if candidates.compared is None else candidates.compared[kept]
    places = kept[best(scores[kept], request.top_k or len(kept), compared, request.diversity)]
    parts = fit.contributions if fit else None
    return [
        Ranked.model_construct(
            index=place,
            id=candidates.ids[place],
            text=candidates.texts[place],
            score=float(scores[place]),
            fit=None if fit is None else float(fit.scores[place]),
            goals=goals[place].tolist(),
            metadata=candidates.metadata[place] if candidates.metadata else None,
            contributions=None if parts is None else parts[place].tolist(),
        )
        for place in places.tolist()
    ]


def _rejected(
    request: RankRequest,
    candidates: Candidates,
    avoid: Float32,
    over: NDArray[np.bool_],
) -> list[Rejected]:
    """Return the candidates that lead to an utterance to avoid, each with the first of these."""
    found = [(place, int(over[place].argmax())) for place in np.flatnonzero(over.any(axis=1))]
    return [
        Rejected.model_construct(
            index=int(place),
            id=candidates.ids[place],
            text=candidates.texts[place],
            reason=f"reachability {avoid[place, avoided]:.3f} of avoid.{avoided} is not below "
            f"{request.avoid[avoided].threshold:g}",
            avoid=avoided,
            reachability=float(avoid[place, avoided]),
        )
        for place, avoided in found
    ]

"""Selection: the candidates of a pool that fit a context best."""

import asyncio
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.scores import ROWS_KEPT, Aggregation
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Hit, PoolView
from turnwise.service.selection.context import EncodedContext
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.selection.rerank import Reranking
from turnwise.service.wire.fields import RerankerName
from turnwise.service.wire.pools import Selected

_PAIRS = 1 << 21
"""Most pairs of utterances times candidates that MaxSim scores for a turn: about a fifth of a
second. It shortens the short list of contexts with more than some 140 utterances."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of a selection; `top_k` is the number of candidates to return."""

    aggregation: Aggregation
    top_k: int
    explain: bool = False
    rerank: RerankerName | None = None

    @property
    def pairs_read(self) -> bool:
        """Whether it needs the pairs of utterances, not only the rows that a session keeps."""
        more_rows = (self.aggregation.summed or 0) > ROWS_KEPT
        return more_rows or self.by_pairs

    @property
    def by_pairs(self) -> bool:
        """Whether the pairs of utterances order or explain the short list."""
        return self.explain or self.aggregation.name == "max_sim"


class Selector:
    """Retrieves with the running query, or with the query of the pool's encoder.

    MaxSim (C3L appendix A) or a re-ranker then orders the short list anew, where requested.
    """

    def __init__(self, reranking: Reranking, pairwise: Pairwise | None) -> None:
        self._reranking, self._pairwise = reranking, pairwise

    async def select(
        self, view: PoolView, context: EncodedContext, choice: Choice, timings: Timings
    ) -> list[Selected]:
        """Return the best candidates, best first.

        Raises:
            InvalidRequest: The scores of a pairwise pool cannot be explained.
            ServiceError: Encoding, searching or re-ranking failed.
        """
        pairwise = pairwise_of(view, self._pairwise)
        if pairwise:
            hits = await self._by_pairwise(pairwise, view, context, choice, timings)
        else:
            query = context.query(choice.aggregation)
            hits = await _found(view, query, self._count(choice, len(context.texts)), timings)
        if not hits:
            return []
        if choice.rerank:
            texts = [hit.candidate.text for hit in hits]
            scores = await self._reranking.scores(context.texts, texts, timings)
            return _best(hits, scores, choice.top_k)
        if not choice.by_pairs or pairwise:
            return [selected(hit, hit.score) for hit in hits]
        with timings.stage("rerank", metric="rerank"):
            vectors = view.vectors([hit.candidate.id for hit in hits])
            return await asyncio.to_thread(_by_pairs, hits, vectors, context, choice)

    def _count(self, choice: Choice, utterances: int) -> int:
        """Return how many candidates to retrieve."""
        if choice.rerank:
            return max(choice.top_k, self._reranking.short_list)
        if choice.aggregation.name == "max_sim":
            affordable = min(self._reranking.short_list, _PAIRS // utterances**2)
            return max(choice.top_k, affordable)
        return choice.top_k

    async def _by_pairwise(
        self,
        pairwise: Pairwise,
        view: PoolView,
        context: EncodedContext,
        choice: Choice,
        timings: Timings,
    ) -> list[Hit]:
        check_explained(view, explain=choice.explain)
        with timings.stage("encode"):
            query = await pairwise.query(context.texts)
        count = self._count(choice, 1) if choice.rerank else choice.top_k
        return await _found(view, query, count, timings)


async def _found(view: PoolView, query: Float32, count: int, timings: Timings) -> list[Hit]:
    with timings.stage("retrieve"):
        return await view.search(query, count)


def pairwise_of(view: PoolView, pairwise: Pairwise | None) -> Pairwise | None:
    """Return the pairwise model if the pool uses it; None if the running query searches it."""
    if view.encoder_name != "pairwise":
        return None
    assert pairwise is not None  # noqa: S101 - a replica without it serves no such pool
    return pairwise


def check_explained(view: PoolView, *, explain: bool) -> None:
    """Reject a request to explain the scores of a pool that cannot be explained.

    Raises:
        InvalidRequest: The pool is of the pairwise model.
    """
    if explain and view.encoder_name == "pairwise":
        raise InvalidRequest.field(
            f"the scores of pool '{view.name}' cannot be explained: "
            "they are not sums over utterances",
            "explain",
        )


def _best(hits: list[Hit], scores: Float32, top_k: int) -> list[Selected]:
    best = np.argsort(-scores, kind="stable")[:top_k]
    return [selected(hits[place], float(scores[place])) for place in best]


def _by_pairs(
    hits: list[Hit], vectors: Float32, context: EncodedContext, choice: Choice
) -> list[Selected]:
    first = context.first
    if 0 < len(first) < len(context.second):
        first = np.pad(first, ((0, 1), (0, 0)))  # [B1] of the last utterance does not count
    scores = np.array([hit.score for hit in hits])
    if choice.aggregation.name == "max_sim":
        scores = choice.aggregation.scores(first, context.second, vectors).astype(np.float64)
    best = np.argsort(-scores, kind="stable")[: choice.top_k]
    parts: list[list[float]] | list[None] = [None] * len(best)
    if choice.explain:
        found = choice.aggregation.contributions(first, context.second, vectors[best])
        parts = found.T.tolist()
    return [
        selected(hits[place], float(scores[place]), part)
        for place, part in zip(best, parts, strict=True)
    ]


def selected(hit: Hit, score: float, parts: list[float] | None = None) -> Selected:
    """Return a hit as a value of the wire; the pool validated its fields already."""
    candidate = hit.candidate
    return Selected.model_construct(
        id=candidate.id,
        text=candidate.text,
        score=score,
        metadata=candidate.metadata,
        contributions=parts,
    )

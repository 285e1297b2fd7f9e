"""The candidates of a pool that fit best after a context."""

import asyncio
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.encoder import Aggregation
from models.mixture import contributions, max_sim, max_sim_contributions, running_query
from service.metrics import Metrics
from service.pools import Hit, PoolView
from service.requests import Selected
from service.timings import Timings

Float32 = NDArray[np.float32]

_PAIRS = 1 << 21
"""Pairs of utterances times candidates that MaxSim scores for a turn: about a fifth of a second.
The short list is shorter where a conversation has more than some 140 utterances."""


@dataclass(frozen=True, slots=True)
class Context:
    """A context of n utterances in vectors.

    Attributes:
        first: (n or n - 1, d) [B1].
        second: (n, d) [B2]; read only by MaxSim and explanations.
        rows: The newest rows, at least one more than the aggregation sums where there are more.
    """

    first: Float32
    second: Float32
    rows: Float32


@dataclass(frozen=True, slots=True)
class Choice:
    """How to select: aggregation, how many, and whether to explain."""

    aggregation: Aggregation
    top_k: int
    explain: bool = False

    @property
    def rows_read(self) -> int | None:
        """Rows of the state that it takes; None for all. One more tells the oldest row apart."""
        summed = self.aggregation.summed
        return None if summed is None else summed + 1

    @property
    def pairs_read(self) -> bool:
        """Whether it goes back to the pairs of utterances."""
        return self.explain or self.aggregation.name == "max_sim"


class Selector:
    """Retrieves with the running query; MaxSim re-ranks a short list (C3L appendix A)."""

    def __init__(self, metrics: Metrics, *, short_list: int) -> None:
        self._metrics, self._short_list = metrics, short_list

    async def select(
        self, view: PoolView, context: Context, choice: Choice, timings: Timings
    ) -> list[Selected]:
        """Return the best candidates, best first."""
        by_pairs = choice.aggregation.name == "max_sim"
        count = choice.top_k
        if by_pairs:
            affordable = min(self._short_list, _PAIRS // len(context.second) ** 2)
            count = max(choice.top_k, affordable)
        with timings.stage("retrieve"):
            hits = await view.search(running_query(context.rows, choice.aggregation.summed), count)
        if not choice.pairs_read or not hits:
            return [selected(hit, hit.score) for hit in hits]
        with timings.stage("rerank"), self._metrics.stage("rerank"):
            vectors = view.vectors([hit.candidate.id for hit in hits])
            return await asyncio.to_thread(_by_pairs, hits, vectors, context, choice)


def _by_pairs(
    hits: list[Hit], vectors: Float32, context: Context, choice: Choice
) -> list[Selected]:
    n, d = context.second.shape
    first = np.zeros((n, d), np.float32)  # [B1] of the last utterance is never read
    first[: len(context.first)] = context.first[:n]
    scores = np.array([hit.score for hit in hits])
    if choice.aggregation.name == "max_sim":
        scores = max_sim(first, context.second, vectors).astype(np.float64)
    best = np.argsort(-scores, kind="stable")[: choice.top_k]
    parts: list[list[float]] | list[None] = [None] * len(best)
    if choice.explain:
        parts = _contributions(first, context.second, vectors[best], choice).T.tolist()
    return [
        selected(hits[place], float(scores[place]), part)
        for place, part in zip(best, parts, strict=True)
    ]


def _contributions(first: Float32, second: Float32, vectors: Float32, choice: Choice) -> Float32:
    if choice.aggregation.name == "max_sim":
        return max_sim_contributions(first, second, vectors)
    return contributions(first, second, vectors, choice.aggregation.summed)


def selected(hit: Hit, score: float, parts: list[float] | None = None) -> Selected:
    """Return a hit as it is answered, without validating what the pool has checked."""
    candidate = hit.candidate
    return Selected.model_construct(
        id=candidate.id,
        text=candidate.text,
        score=score,
        metadata=candidate.metadata,
        contributions=parts,
    )

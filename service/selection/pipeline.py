"""Selects the candidates of a pool that fit a context best, and leaves out repeats."""

import asyncio
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.diversity import most_diverse
from turnwise.models.scores import ROWS_KEPT, Aggregation
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.selection.confidence import FEWEST, Confidence
from turnwise.service.selection.context import EncodedContext, Said
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.selection.short_list import Reranking
from turnwise.service.wire.fields import Repeat
from turnwise.service.wire.pools import Selected
from turnwise.service.wire.sessions import TurnRequest

_PAIRS = 1 << 21
"""Most pairs of utterances times candidates that MaxSim scores for a turn: about a fifth of a
second. It shortens the short list of contexts with more than some 140 utterances."""


NEAR = 0.85
"""Cosine of two candidates from which one is close to repeating the other. With the shipped model,
79 % of the pairs of STS-B that mean the same (4.5 of 5 or more) reach it, and 15 % of those below
3: `python research/near_repeats.py`."""
_MOST_COPIES = 1000
"""Candidates among which a search looks for a second text."""
_SPARE = 8
"""Most candidates that a first search finds beyond those asked for, in case some were said."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of a selection.

    Attributes:
        request: The turn, as it was posted.
        aggregation: The aggregation in force, which is the model's own unless the turn names one.
        where: Leaves out the candidates that it does not match; the session may have a filter too.
    """

    request: TurnRequest
    aggregation: Aggregation
    where: Filter | None

    def within(self, where: Filter | None) -> "Choice":
        """Return the same options, among the candidates that a filter matches as well."""
        if where is None:
            return self
        return replace(self, where=where & self.where if self.where else where)

    @property
    def pairs_read(self) -> bool:
        """Whether it needs the pairs of utterances, not only the rows that a session keeps."""
        more_rows = (self.aggregation.summed or 0) > ROWS_KEPT
        return more_rows or self.by_pairs

    @property
    def by_pairs(self) -> bool:
        """Whether the pairs of utterances order or explain the short list."""
        return self.request.explain or self.aggregation.name == "max_sim"


class Selection(NamedTuple):
    """The result of a selection.

    Attributes:
        candidates: The best that may be offered, best first.
        confidence: The confidence in the first of them, if it has one.
        abstained: Whether there are no candidates because the confidence was too low.
    """

    candidates: list[Selected]
    confidence: float | None = None
    abstained: bool = False


class Selector:
    """Retrieves with the running query, or with the query of the pool's encoder.

    MaxSim (C3L appendix A), a re-ranker or diversity then orders the short list anew, where
    requested.
    """

    def __init__(
        self, reranking: Reranking, pairwise: Pairwise | None, confidence: Confidence
    ) -> None:
        self._reranking, self._pairwise, self._confidence = reranking, pairwise, confidence

    async def select(
        self,
        view: PoolView,
        context: EncodedContext,
        said: Said,
        choice: Choice,
        timings: Timings,
    ) -> Selection:
        """Return the best candidates that may be offered, or none if the confidence is too low.

        Raises:
            InvalidRequest: A pairwise pool cannot explain its scores, or compare its candidates
                with what was said; or the choice wants a confidence that there cannot be.
            ServiceError: Encoding, searching or re-ranking failed.
        """
        request = choice.request
        obstacle = self._confidence.obstacle(view, choice.aggregation, request.rerank)
        if obstacle and request.min_confidence is not None:
            raise InvalidRequest.field(f"there is no confidence: {obstacle}", "min_confidence")
        check_served(view, explain=request.explain, repeat=request.repeat)
        if pairwise := pairwise_of(view, self._pairwise):
            with timings.stage("encode"):
                query = await pairwise.query(context.texts)
        else:
            query = context.query(choice.aggregation)
        by_pairs = choice.by_pairs and not (request.rerank or pairwise)
        count = self._count(choice, len(context.texts), by_pairs=by_pairs)
        confidence = None
        with timings.stage("retrieve"):
            exclude = frozenset(request.exclude)
            fewest = 1 if obstacle else FEWEST
            hits = await found(view, query, count, said, choice.where, exclude, fewest)
            if not obstacle:
                utterances = len(context.texts)
                confidence = await self._confidence.of(view, query, hits, choice.where, utterances)
        least = request.min_confidence
        if least is None:
            least = view.settings.min_confidence
        if confidence is not None and least is not None and confidence < least:
            return Selection([], confidence, abstained=True)
        if not hits:
            return Selection([])
        hits = hits[:count]
        scores = np.array([hit.score for hit in hits])
        if request.rerank:
            texts = [hit.candidate.text for hit in hits]
            reranked = await self._reranking.scores(context.texts, texts, timings)
            scores = reranked.astype(np.float64)
        if not (by_pairs or request.diversity):
            return Selection(_selected(hits, scores, best(scores, request.top_k)), confidence)
        with timings.stage("rerank", metric="rerank"):
            vectors = await view.vectors([hit.candidate.id for hit in hits])
            pairs = context.pairs if by_pairs else None
            ordered = await asyncio.to_thread(_ordered, hits, scores, vectors, pairs, choice)
            return Selection(ordered, confidence)

    def _count(self, choice: Choice, utterances: int, *, by_pairs: bool) -> int:
        """Return how many candidates to retrieve."""
        request = choice.request
        if by_pairs and choice.aggregation.name == "max_sim":
            affordable = min(self._reranking.short_list, _PAIRS // utterances**2)
            return max(request.top_k, affordable)
        if request.rerank or request.diversity:
            return max(request.top_k, self._reranking.short_list)
        return request.top_k


async def found(  # noqa: PLR0917
    view: PoolView,
    query: Float32,
    count: int,
    said: Said,
    where: Filter | None,
    exclude: frozenset[str] = frozenset(),
    texts: int = 1,
) -> list[Hit]:
    """Return the best candidates of a pool that may be offered, best first.

    They are at least `count` if the pool has so many, and more until they have so many different
    texts, or are too many copies.
    """
    searched = max(count, texts) + len(exclude) + min(len(said.texts), _SPARE)
    while True:
        hits = await view.search(query, searched, where)
        offered = [
            hit
            for hit in hits
            if hit.candidate.id not in exclude and hit.candidate.text not in said.texts
        ]
        if len(said.after) and offered:
            vectors = await view.vectors([hit.candidate.id for hit in offered])
            nearest = (vectors @ said.after.T).max(axis=1)
            offered = [hit for hit, cosine in zip(offered, nearest, strict=True) if cosine < NEAR]
        different = {hit.candidate.text for hit in offered}
        enough = len(different) >= texts or searched > _MOST_COPIES
        if (len(offered) >= count and enough) or len(hits) < searched:
            return offered
        searched *= 2


def pairwise_of(view: PoolView, pairwise: Pairwise | None) -> Pairwise | None:
    """Return the pairwise model if the pool uses it; None if the running query searches it."""
    if view.encoder_name != "pairwise":
        return None
    assert pairwise is not None  # noqa: S101 - a replica without it serves no such pool
    return pairwise


def check_served(view: PoolView, *, explain: bool, repeat: Repeat) -> None:
    """Reject options that a pool of the pairwise model cannot serve.

    Raises:
        InvalidRequest: The pool is of that model, and the request wants its scores explained, or
            its candidates compared with what was said.
    """
    if view.encoder_name != "pairwise":
        return
    if explain:
        raise InvalidRequest.field(
            f"the scores of pool '{view.name}' cannot be explained: "
            "they are not sums over utterances",
            "explain",
        )
    if repeat == "near":
        raise InvalidRequest.field(
            f"'near' cannot compare the candidates of pool '{view.name}' with what was said: "
            "another model encodes them",
            "repeat",
        )


def best(
    scores: Float64, top_k: int, vectors: Float32 | None = None, diversity: float = 0.0
) -> list[int]:
    """Return the places of the best of C candidates, best first.

    Args:
        scores: (C,).
        top_k: Number of places; all of them if there are fewer.
        vectors: (C, d) unit rows, which diversity compares.
        diversity: Of `most_diverse`.
    """
    if diversity and vectors is not None and len(scores):
        return most_diverse(scores, vectors, diversity, top_k)
    places: list[int] = np.argsort(-scores, kind="stable")[:top_k].tolist()
    return places


def _ordered(
    hits: list[Hit],
    scores: Float64,
    vectors: Float32,
    pairs: tuple[Float32, Float32] | None,
    choice: Choice,
) -> list[Selected]:
    """Return the best hits, scored and explained by the pairs of a context if these are given."""
    if pairs and choice.aggregation.name == "max_sim":
        scores = choice.aggregation.scores(*pairs, vectors).astype(np.float64)
    places = best(scores, choice.request.top_k, vectors, choice.request.diversity)
    parts = None
    if pairs and choice.request.explain:
        parts = choice.aggregation.contributions(*pairs, vectors[places]).T.tolist()
    return _selected(hits, scores, places, parts)


def _selected(
    hits: list[Hit],
    scores: Float64,
    places: list[int],
    parts: list[list[float]] | None = None,
) -> list[Selected]:
    return [
        selected(hits[place], float(scores[place]), parts[row] if parts else None)
        for row, place in enumerate(places)
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

"""Selects candidates of a pool after a context: one pipeline, for turns and for rankings.

1. `retrieve` searches the pool with the running query, leaves out what must not be offered, and
   computes the confidence.
2. `score` scores the hits by MaxSim or with a re-ranker, where the request asks for it.
3. `order` sorts the hits by score, or by score and diversity.

A turn runs all three (`select`). A ranking adds the reachability of goals before it orders.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.diversity import most_diverse
from turnwise.models.scores import ROWS_KEPT, Aggregation
from turnwise.models.texts import fold_text
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.selection.confidence import MIN_TEXTS, Confidence
from turnwise.service.selection.context import EncodedContext, Said
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.selection.reranking import Reranking
from turnwise.service.selection.scores import NextUtteranceScores
from turnwise.service.wire.fields import Repeat, RerankerName
from turnwise.service.wire.pools import Selected

NEAR = 0.85
"""Cosine of two candidates from which one is close to repeating the other. With the shipped model,
79 % of the pairs of STS-B that mean the same (4.5 of 5 or more) reach it, and 15 % of those below
3: `python research/near_repeats.py`."""
_PAIRS_OF_A_TURN = 1 << 21
"""Most pairs of utterances times candidates that MaxSim scores for a turn: about a fifth of a
second. It shortens the short list of contexts with more than some 140 utterances."""
_MOST_COPIES = 1000
"""Candidates among which a search looks for a second text."""
_SPARE = 8
"""Most candidates that a first search finds beyond those asked for, in case some were said."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a request asks of the candidates of a pool.

    Attributes:
        aggregation: The aggregation in force: that of the request, or the model's own.
        where: The filter that candidates must match; None matches all.
        repeat: Which candidates that the responder has said may be offered.
        exclude: Ids of candidates that must not be offered.
        rerank: The re-ranker that scores the hits; None without one.
        diversity: How much the candidates must differ from each other, from 0 to 1.
        explain: Whether the contributions of the utterances are wanted.
    """

    aggregation: Aggregation
    where: Filter | None
    repeat: Repeat
    exclude: frozenset[str] = frozenset()
    rerank: RerankerName | None = None
    diversity: float = 0.0
    explain: bool = False

    def within(self, where: Filter | None) -> "Options":
        """Return the same options for the candidates that another filter matches as well."""
        if where is None:
            return self
        return replace(self, where=where & self.where if self.where else where)

    @property
    def scores_pairs(self) -> bool:
        """Whether the pairs of utterances score or explain the hits."""
        return self.explain or self.aggregation.name == "max_sim"

    @property
    def needs_pairs(self) -> bool:
        """Whether the rows that a session keeps are not enough."""
        return self.scores_pairs or (self.aggregation.summed or 0) > ROWS_KEPT


class Retrieved(NamedTuple):
    """The hits of a pool, best first, and the confidence in the first of them if it has one."""

    hits: list[Hit]
    confidence: float | None


class Selection(NamedTuple):
    """The result of a selection.

    Attributes:
        candidates: The best candidates that may be offered, best first.
        confidence: The confidence in the first of them, if it has one.
        abstained: Whether there are no candidates because the confidence was too low.
    """

    candidates: list[Selected]
    confidence: float | None = None
    abstained: bool = False


class Pipeline:
    """Retrieves, scores and orders the candidates of pools."""

    def __init__(
        self, reranking: Reranking, pairwise: Pairwise | None, confidence: Confidence
    ) -> None:
        self._reranking = reranking
        self._pairwise = pairwise
        self._confidence = confidence

    @property
    def short_list(self) -> int:
        """Number of hits that MaxSim, a re-ranker, diversity or goals order."""
        return self._reranking.short_list

    def check_reranker(self, name: RerankerName | None, *, explain: bool) -> None:
        """Reject a re-ranker that this service lacks, or whose scores would be explained.

        Raises:
            InvalidRequest: One of these.
        """
        self._reranking.check(name, explain=explain)

    def find_obstacle(self, view: PoolView, options: Options) -> str | None:
        """Return why an order of candidates has no confidence; None if it has one."""
        return self._confidence.find_obstacle(view, options.aggregation, options.rerank)

    async def select(
        self,
        view: PoolView,
        context: EncodedContext,
        said: Said,
        options: Options,
        timings: Timings,
        *,
        top_k: int,
        min_confidence: float | None,
    ) -> Selection:
        """Return the best candidates that may be offered, or none if the confidence is too low.

        Args:
            view: The pool to select from.
            context: The utterances before the reply, at least one.
            said: Replies that must not be offered again.
            options: What the request asks for.
            timings: Records the stages.
            top_k: Number of candidates to return.
            min_confidence: The least confidence; None for that of the pool, or none.

        Raises:
            InvalidRequest: The pool cannot serve an option, or a confidence is asked for where
                there cannot be one.
            ServiceError: Encoding, searching or re-ranking failed.
        """
        obstacle = self.find_obstacle(view, options)
        if obstacle and min_confidence is not None:
            raise InvalidRequest.field(f"there is no confidence: {obstacle}", "min_confidence")
        count = self._count_hits(view, options, top_k, len(context.texts))
        hits, confidence = await self.retrieve(
            view, context, said, options, timings, count=count, confident=obstacle is None
        )
        if min_confidence is None:
            min_confidence = view.settings.min_confidence
        if confidence is not None and min_confidence is not None and confidence < min_confidence:
            return Selection([], confidence, abstained=True)
        scored = await self.score(view, context, hits, options, timings)
        indices = await self.order(view, hits, scored.scores, options, timings, top_k=top_k)
        chosen = [as_selected(hits[index], scored, index) for index in indices]
        return Selection(chosen, confidence)

    async def retrieve(
        self,
        view: PoolView,
        context: EncodedContext,
        said: Said,
        options: Options,
        timings: Timings,
        *,
        count: int,
        confident: bool,
    ) -> Retrieved:
        """Search a pool with the running query, or with the query of the pairwise model.

        Args:
            view: The pool to search.
            context: At least one utterance; a pairwise pool reads only their texts.
            said: Replies that must not be offered again.
            options: What the request asks for.
            timings: Records the stages.
            count: Number of hits to return, at least 1; fewer if the pool has fewer.
            confident: Whether to compute the confidence in the first hit.

        Raises:
            InvalidRequest: The pool cannot serve an option.
            ServiceError: Encoding or searching failed.
        """
        _check_options(view, options)
        with timings.stage("encode"):
            query = await self._query(view, context, options.aggregation)
        with timings.stage("retrieve"):
            texts = MIN_TEXTS if confident else 1
            hits = await find_hits(view, query, said, options, count=count, texts=texts)
            confidence = None
            if confident:
                utterances = len(context.texts)
                confidence = await self._confidence.compute(
                    view, query, hits, options.where, utterances
                )
        return Retrieved(hits[:count], confidence)

    async def score(
        self,
        view: PoolView,
        context: EncodedContext,
        hits: Sequence[Hit],
        options: Options,
        timings: Timings,
    ) -> NextUtteranceScores:
        """Return the scores of k hits: those of the search, of MaxSim, or of the re-ranker.

        Args:
            view: The pool that was searched.
            context: The context of the search; with its pairs if `options.scores_pairs`.
            hits: k hits.
            options: What the request asks for.
            timings: Records the stage `rerank`.

        Raises:
            ServiceError: Re-ranking failed, or the candidate store did.
        """
        if options.rerank and hits:
            texts = [hit.candidate.text for hit in hits]
            return NextUtteranceScores(await self._reranking.score(context.texts, texts, timings))
        scores = np.array([hit.score for hit in hits], np.float32)
        if not (options.scores_pairs and hits) or view.encoder_name == "pairwise":
            return NextUtteranceScores(scores)
        with timings.stage("rerank", metric="rerank"):
            vectors = await view.vectors([hit.candidate.id for hit in hits])
            return await asyncio.to_thread(_score_pairs, scores, vectors, context.pairs, options)

    async def order(
        self,
        view: PoolView,
        hits: Sequence[Hit],
        scores: Float32 | Float64,
        options: Options,
        timings: Timings,
        *,
        top_k: int,
    ) -> list[int]:
        """Return the indices of the best hits, best first; all of them if there are fewer.

        Args:
            view: The pool that was searched.
            hits: k hits.
            scores: (k,) their scores.
            options: With a diversity, the indices are in the order of `most_diverse`.
            timings: Records the stage `rerank`.
            top_k: Number of indices.

        Raises:
            ServiceError: The candidate store failed.
        """
        if not (options.diversity and hits):
            indices: list[int] = np.argsort(-scores, kind="stable")[:top_k].tolist()
            return indices
        with timings.stage("rerank", metric="rerank"):
            vectors = await view.vectors([hit.candidate.id for hit in hits])
            wide = scores.astype(np.float64)
            return await asyncio.to_thread(most_diverse, wide, vectors, options.diversity, top_k)

    def _count_hits(self, view: PoolView, options: Options, top_k: int, utterances: int) -> int:
        """Return how many hits a turn needs."""
        is_max_sim = options.aggregation.name == "max_sim" and view.encoder_name != "pairwise"
        if is_max_sim and not options.rerank:
            return max(top_k, min(self.short_list, _PAIRS_OF_A_TURN // utterances**2))
        if options.rerank or options.diversity:
            return max(top_k, self.short_list)
        return top_k

    async def _query(
        self, view: PoolView, context: EncodedContext, aggregation: Aggregation
    ) -> Float32:
        if view.encoder_name != "pairwise":
            return context.query(aggregation)
        assert self._pairwise is not None  # noqa: S101 - a replica without it serves no such pool
        return await self._pairwise.query(context.texts)


async def find_hits(
    view: PoolView,
    query: Float32,
    said: Said,
    options: Options,
    *,
    count: int,
    texts: int = 1,
) -> list[Hit]:
    """Return the best candidates of a pool that may be offered, best first.

    Args:
        view: The pool to search.
        query: (d,).
        said: Replies that must not be offered again.
        options: With the filter and the ids to leave out.
        count: Least number of hits, if the pool has so many.
        texts: Least number of different texts among the hits, unless too many are copies.
    """
    searched = (
        max(count, texts) + len(options.exclude) + min(len(said.texts) + len(said.ids), _SPARE)
    )
    while True:
        hits = await view.search(query, searched, options.where)
        offered = await _leave_out(view, hits, said, options.exclude)
        different = {hit.candidate.text for hit in offered}
        has_texts = len(different) >= texts or searched > _MOST_COPIES
        if (len(offered) >= count and has_texts) or len(hits) < searched:
            return offered
        searched *= 2


async def _leave_out(
    view: PoolView, hits: Sequence[Hit], said: Said, exclude: frozenset[str]
) -> list[Hit]:
    """Return the hits without excluded ids and without what was said."""
    offered = [
        hit
        for hit in hits
        if hit.candidate.id not in exclude
        and hit.candidate.id not in said.ids
        and fold_text(hit.candidate.text) not in said.texts
    ]
    if not (len(said.after) and offered):
        return offered
    vectors = await view.vectors([hit.candidate.id for hit in offered])
    nearest = (vectors @ said.after.T).max(axis=1)
    return [hit for hit, cosine in zip(offered, nearest, strict=True) if cosine < NEAR]


def as_selected(hit: Hit, scored: NextUtteranceScores, index: int) -> Selected:
    """Return hit number `index` as a value of the wire; the pool validated its fields already."""
    contributions = None
    if scored.contributions is not None:
        contributions = scored.contributions[index].tolist()
    return Selected.model_construct(
        id=hit.candidate.id,
        text=hit.candidate.text,
        score=float(scored.scores[index]),
        metadata=hit.candidate.metadata,
        contributions=contributions,
    )


def _score_pairs(
    scores: Float32, vectors: Float32, pairs: tuple[Float32, Float32], options: Options
) -> NextUtteranceScores:
    """Return MaxSim scores in place of those of the search, and contributions, where asked for."""
    first, second = pairs
    aggregation = options.aggregation
    if aggregation.name == "max_sim":
        scores = aggregation.scores(first, second, vectors)
    if not options.explain:
        return NextUtteranceScores(scores)
    return NextUtteranceScores(scores, aggregation.contributions(first, second, vectors).T)


def _check_options(view: PoolView, options: Options) -> None:
    """Reject options that a pool of the pairwise model cannot serve."""
    if view.encoder_name != "pairwise":
        return
    if options.explain:
        raise InvalidRequest.field(
            f"the scores of pool '{view.name}' cannot be explained: "
            "they are not sums over utterances",
            "explain",
        )
    if options.repeat == "near":
        raise InvalidRequest.field(
            f"'near' cannot compare the candidates of pool '{view.name}' with what was said: "
            "another model encodes them",
            "repeat",
        )

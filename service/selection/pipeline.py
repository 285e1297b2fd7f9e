"""Selects candidates of a pool after a context: one pipeline, for turns and for rankings.

1. `retrieve` searches the pool with the running query, leaves out what must not be offered, and
   computes the confidence.
2. `read_unsure` lets the model's own re-ranker read the first hits where that confidence is low,
   and computes it again.
3. `score` scores the hits by MaxSim or with a re-ranker, where the request asks for it.
4. `order` sorts the hits by score, or by score and diversity.

A turn runs all of them (`select`). A ranking adds the reachability of goals before it orders.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.diversity import most_diverse
from turnwise.models.fusion import Fusion
from turnwise.models.groups import best_wordings
from turnwise.models.rerankers.cascade import combined_scores, standardised
from turnwise.models.scores import ROWS_KEPT, Aggregation
from turnwise.models.texts import fold_text
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.metrics import CascadeOutcome
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.selection.answers import choose_wordings, count_answers, name_answer
from turnwise.service.selection.confidence import MIN_ANSWERS, Confidence, Estimate
from turnwise.service.selection.context import EncodedContext, Said
from turnwise.service.selection.fused import FusedSearch
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.selection.reranking import Reranking, ShortList
from turnwise.service.selection.scores import NextUtteranceScores
from turnwise.service.wire.fields import Repeat, Rerank, RerankerName, Wordings
from turnwise.service.wire.pools import Matched, Selected

NEAR = 0.85
"""Cosine of two candidates from which one is close to repeating the other. With the shipped model,
79 % of the pairs of STS-B that mean the same (4.5 of 5 or more) reach it, and 15 % of those below
3: `python research/near_repeats.py`."""
_PAIRS_OF_A_TURN = 1 << 21
"""Most pairs of utterances times candidates that MaxSim scores for a turn: about a fifth of a
second. It shortens the short list of contexts with more than some 140 utterances."""
_MOST_COPIES = 1000
"""Candidates among which a search looks for more answers."""
_SPARE = 8
"""Most candidates that a first search finds beyond those asked for, in case some were said."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a selection, as a request gives them.

    Attributes:
        aggregation: The aggregation in force: that of the request, or the model's own.
        where: The filter that candidates must match; None matches all.
        repeat: Which candidates that the responder has said may be offered.
        exclude: Ids of candidates that must not be offered.
        rerank: The re-ranker that scores the hits, or "auto"; None for the first stage alone.
        diversity: How much the candidates must differ from each other, from 0 to 1.
        explain: Whether the contributions of the utterances are wanted.
        wordings: Whether the best wording of each group is listed, or all of them.
    """

    aggregation: Aggregation
    where: Filter | None
    repeat: Repeat
    exclude: frozenset[str] = frozenset()
    rerank: Rerank | None = None
    diversity: float = 0.0
    explain: bool = False
    wordings: Wordings = "best"

    def within(self, where: Filter | None) -> "Options":
        """Return the same options for the candidates that another filter matches as well."""
        if where is None:
            return self
        return replace(self, where=where & self.where if self.where else where)

    @property
    def reranker(self) -> RerankerName | None:
        """The re-ranker that the request names, for all hits."""
        return None if self.rerank == "auto" else self.rerank

    @property
    def scores_pairs(self) -> bool:
        """Whether the pairs of utterances score or explain the hits."""
        return self.explain or self.aggregation.name == "max_sim"

    @property
    def needs_pairs(self) -> bool:
        """Whether the selection needs more than the rows that a session keeps."""
        return self.scores_pairs or (self.aggregation.summed or 0) > ROWS_KEPT


class Retrieved(NamedTuple):
    """The result of a search.

    Attributes:
        hits: The candidates that were found and may be offered, best first.
        confidence: The confidence in the first candidate, if it has one.
        replies: (k,) the scores of the hits without their examples.
        estimate: The confidence of the first stage, if it has one.
        combined: (k,) the combined scores, where the model's own re-ranker read the first hits.
        cascade: What that re-ranker did; None where the first stage was sure.
    """

    hits: list[Hit]
    confidence: float | None
    replies: Float32
    estimate: Estimate | None = None
    combined: Float64 | None = None
    cascade: CascadeOutcome | None = None


class Selection(NamedTuple):
    """The result of a selection.

    Attributes:
        candidates: The best candidates that may be offered, best first.
        confidence: The confidence in the first of them, if it has one.
        abstained: Whether there are no candidates because the confidence was too low.
        warning: Why the pool's least confidence had no effect; None if it had one, or is not set.
        cascade: What the model's own re-ranker did; None where the first stage was sure.
    """

    candidates: list[Selected]
    confidence: float | None = None
    abstained: bool = False
    warning: str | None = None
    cascade: CascadeOutcome | None = None


class Pipeline:
    """Retrieves, scores and orders the candidates of pools."""

    def __init__(
        self,
        reranking: Reranking,
        pairwise: Pairwise | None,
        confidence: Confidence,
        fusion: Fusion,
    ) -> None:
        self._reranking = reranking
        self._pairwise = pairwise
        self._confidence = confidence
        self._fusion = fusion

    @property
    def short_list(self) -> int:
        """Number of hits that MaxSim, a re-ranker, diversity or goals order."""
        return self._reranking.short_list

    def check_reranker(self, name: Rerank | None, *, explain: bool) -> None:
        """Reject a re-ranker that this service lacks, or whose scores would be explained.

        Raises:
            InvalidRequest: One of these.
        """
        self._reranking.check(name, explain=explain)

    def find_obstacle(self, view: PoolView, options: Options) -> str | None:
        """Return why an order of candidates has no confidence; None if it has one."""
        return self._confidence.find_obstacle(view, options.aggregation, options.reranker)

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
        warning = self._confidence.warn(view, obstacle) if obstacle else None
        count = self._count_hits(view, options, top_k, len(context.texts))
        found = await self.retrieve(
            view,
            context,
            said,
            options,
            timings,
            count=count,
            answers=top_k if options.wordings == "best" else 1,
            confident=obstacle is None,
        )
        found = await self.read_unsure(view, context, found, options, timings)
        confidence = found.confidence
        if min_confidence is None:
            min_confidence = view.settings.min_confidence
        if confidence is not None and min_confidence is not None and confidence < min_confidence:
            return Selection([], confidence, abstained=True, cascade=found.cascade)
        scored = await self.score(view, context, found, options, timings)
        indices = await self.order(
            view, found.hits, scored.scores, options, timings, said=said, top_k=top_k
        )
        chosen = [as_selected(found.hits[index], scored, index) for index in indices]
        return Selection(chosen, confidence, warning=warning, cascade=found.cascade)

    async def retrieve(
        self,
        view: PoolView,
        context: EncodedContext,
        said: Said,
        options: Options,
        timings: Timings,
        *,
        count: int,
        answers: int,
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
            answers: Least number of answers among them, which may take more hits.
            confident: Whether to compute the confidence in the first hit.

        Raises:
            InvalidRequest: The pool cannot serve an option.
            ServiceError: Encoding or searching failed.
        """
        _check_options(view, options)
        with timings.stage("encode"):
            query = await self._query(view, context, options.aggregation)
        with timings.stage("retrieve"):
            search = _Search(view, query, options.where, self._fuse(view, query, context, options))
            hits = await _find_hits(
                search, said, options, count=count, answers=answers, confident=confident
            )
            estimate = None
            if confident:
                estimate = await self._confidence.estimate(
                    view,
                    query,
                    hits,
                    options.where,
                    utterances=len(context.texts),
                    example=search.example_score(hits[0]) if hits else None,
                )
        kept = _cut(hits, count, answers)
        confidence = self._confidence.correct(view, estimate.confidence) if estimate else None
        return Retrieved(kept, confidence, search.reply_scores(kept), estimate)

    async def read_unsure(
        self,
        view: PoolView,
        context: EncodedContext,
        found: Retrieved,
        options: Options,
        timings: Timings,
    ) -> Retrieved:
        """Return the result of a search, re-ranked if its first hit is not sure.

        Only "auto" re-ranks here, where the scores come from the search and have a confidence. A
        first hit that an example found stays first: the re-ranker does not read the examples. If it
        fails, the result stays as it is.

        Args:
            view: The pool that was searched.
            context: The context of the search.
            found: The result of the search.
            options: What the request asks for.
            timings: Records the stage `rerank`.
        """
        cascade = self._reranking.cascade
        estimate = found.estimate
        if cascade is None or estimate is None or estimate.confidence >= cascade.below:
            return found
        if options.rerank != "auto" or options.scores_pairs or found.hits[0].match:
            return found
        texts = [hit.candidate.text for hit in found.hits[: cascade.candidates]]
        first = ShortList(context.utterances, texts, [context.responder] * len(texts))
        read = await self._reranking.try_own(first, timings)
        if read is None:
            return found._replace(cascade="failed")
        scores = np.array([hit.score for hit in found.hits])
        z = standardised(scores, estimate.spread)
        combined = combined_scores(read, z, cascade.weight)
        confidence = self._confidence.after_reranking(
            estimate, cascade.confidence, found.hits, read, combined
        )
        return found._replace(
            confidence=self._confidence.correct(view, confidence),
            combined=combined,
            cascade="reranked",
        )

    async def score(
        self,
        view: PoolView,
        context: EncodedContext,
        found: Retrieved,
        options: Options,
        timings: Timings,
    ) -> NextUtteranceScores:
        """Return the scores of k hits: those of the search, of MaxSim, or of a re-ranker.

        Examples help MaxSim and a re-ranker only to find the hits. In a score of the search, the
        part that comes from an example is a contribution of the newest utterance.

        Args:
            view: The pool that was searched.
            context: The context of the search; with its pairs if `options.scores_pairs`.
            found: The result of the search, with k hits.
            options: What the request asks for.
            timings: Records the stage `rerank`.

        Raises:
            ServiceError: Re-ranking failed, or the candidate store did.
        """
        hits = found.hits
        if found.combined is not None:
            return NextUtteranceScores(found.combined.astype(np.float32))
        if options.reranker and hits:
            texts = [hit.candidate.text for hit in hits]
            short_list = ShortList(context.utterances, texts, [context.responder] * len(texts))
            scores = await self._reranking.score(options.reranker, short_list, timings)
            return NextUtteranceScores(scores)
        scores = np.array([hit.score for hit in hits], np.float32)
        if not (options.scores_pairs and hits) or view.encoder_name == "pairwise":
            return NextUtteranceScores(scores)
        with timings.stage("rerank", metric="rerank"):
            vectors = await view.vectors([hit.candidate.id for hit in hits])
            by_examples = scores - found.replies
            return await asyncio.to_thread(
                _score_pairs, scores, by_examples, vectors, context.pairs, options
            )

    async def order(
        self,
        view: PoolView,
        hits: Sequence[Hit],
        scores: Float32 | Float64,
        options: Options,
        timings: Timings,
        *,
        said: Said,
        top_k: int,
    ) -> list[int]:
        """Return the indices of the best hits, best first; all of them if there are fewer.

        Unless all wordings are requested, one hit represents its group.

        Args:
            view: The pool that was searched.
            hits: k hits.
            scores: (k,) their scores.
            options: With a diversity, the indices are in the order of `most_diverse`.
            timings: Records the stage `rerank`.
            said: The replies of the session, which decide between nearly equal wordings.
            top_k: Number of indices.

        Raises:
            ServiceError: The candidate store failed.
        """
        indices: list[int] = np.argsort(-scores, kind="stable").tolist()
        has_groups = any(hit.candidate.group is not None for hit in hits)
        if has_groups and options.wordings == "best":
            indices = choose_wordings(hits, scores, said.history)
        if not (options.diversity and hits):
            return indices[:top_k]
        with timings.stage("rerank", metric="rerank"):
            vectors = await view.vectors([hits[index].candidate.id for index in indices])
            wide = scores[indices].astype(np.float64)
            chosen = await asyncio.to_thread(most_diverse, wide, vectors, options.diversity, top_k)
        return [indices[each] for each in chosen]

    def _count_hits(self, view: PoolView, options: Options, top_k: int, utterances: int) -> int:
        """Return how many hits a turn needs."""
        is_max_sim = options.aggregation.name == "max_sim" and view.encoder_name != "pairwise"
        if is_max_sim and not options.reranker:
            return max(top_k, min(self.short_list, _PAIRS_OF_A_TURN // utterances**2))
        if options.reranker or options.diversity:
            return max(top_k, self.short_list)
        if options.rerank == "auto" and self._reranking.cascade:
            return max(top_k, self._reranking.cascade.candidates)
        return top_k

    def _fuse(
        self, view: PoolView, query: Float32, context: EncodedContext, options: Options
    ) -> FusedSearch | None:
        """Return the search by examples; None where it would find nothing that fits."""
        if not view.has_examples or context.said is None:
            return None
        utterances = len(context.texts)
        return FusedSearch(view, query, context.said, options.where, self._fusion, utterances)

    async def _query(
        self, view: PoolView, context: EncodedContext, aggregation: Aggregation
    ) -> Float32:
        if view.encoder_name != "pairwise":
            return context.query(aggregation)
        assert self._pairwise is not None  # noqa: S101 - a replica without it serves no such pool
        return await self._pairwise.query(context.texts)


@dataclass(frozen=True, slots=True)
class _Search:
    """A search of one request: by replies alone, or also by examples."""

    view: PoolView
    query: Float32
    where: Filter | None
    fused: FusedSearch | None

    async def run(self, top_k: int) -> list[Hit]:
        if self.fused:
            return await self.fused.search(top_k)
        return await self.view.search(self.query, top_k, self.where)

    def example_score(self, hit: Hit) -> float | None:
        """Return the example score of a hit; None where examples took no part."""
        return self.fused.examples[hit.candidate.id] if self.fused else None

    def reply_scores(self, hits: Sequence[Hit]) -> Float32:
        """Return the scores (k,) of k hits without their examples."""
        if self.fused:
            return np.array([self.fused.replies[hit.candidate.id] for hit in hits], np.float32)
        return np.array([hit.score for hit in hits], np.float32)


async def _find_hits(
    search: _Search, said: Said, options: Options, *, count: int, answers: int, confident: bool
) -> list[Hit]:
    """Return the best candidates of a pool that may be offered, best first.

    They are at least `count` hits with at least `answers` answers, if the pool has so many, and
    unless too many are wordings of a few answers. A confidence needs at least `MIN_ANSWERS`.
    """
    groups = await _groups_said(search.view, said)
    searched = max(count, answers, MIN_ANSWERS if confident else 1)
    searched += len(options.exclude) + min(len(said.texts) + len(said.ids), _SPARE)
    while True:
        hits = await search.run(searched)
        allowed = [
            hit
            for hit in hits
            if hit.candidate.id not in options.exclude
            and hit.candidate.id not in said.ids
            and hit.candidate.group not in groups
            and fold_text(hit.candidate.text) not in said.texts
        ]
        offered = await _leave_out_near(search.view, allowed, said)
        is_all = len(hits) < searched
        has_count = len(offered) >= count
        if is_all or (has_count and _has_answers(offered, answers, confident=confident)):
            return offered
        if has_count and searched > _MOST_COPIES:
            return offered
        searched *= 2


async def _groups_said(view: PoolView, said: Said) -> frozenset[str]:
    """Return the groups with a wording that the responder said and must not say again."""
    if not (said.texts or said.ids):
        return frozenset()
    named = [candidate for candidate in await view.fetch(sorted(said.ids)) if candidate]
    groups = frozenset(candidate.group for candidate in named if candidate.group is not None)
    return groups | await view.groups_of(said.texts)


def _has_answers(hits: Sequence[Hit], answers: int, *, confident: bool) -> bool:
    if confident and len({name_answer(hit.candidate) for hit in hits}) < MIN_ANSWERS:
        return False
    return count_answers(hits) >= answers


async def _leave_out_near(view: PoolView, hits: list[Hit], said: Said) -> list[Hit]:
    """Return the hits that are not close to what was said."""
    if not (len(said.after) and hits):
        return hits
    vectors = await view.vectors([hit.candidate.id for hit in hits])
    nearest = (vectors @ said.after.T).max(axis=1)
    return [hit for hit, cosine in zip(hits, nearest, strict=True) if cosine < NEAR]


def _cut(hits: list[Hit], count: int, answers: int) -> list[Hit]:
    """Return the first `count` hits, and more until they have so many answers."""
    firsts = best_wordings(hit.candidate.group for hit in hits)
    last = firsts[min(answers, len(firsts)) - 1] if firsts else 0
    return hits[: max(count, last + 1)]


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
        group=hit.candidate.group,
        matched=as_matched(hit),
        contributions=contributions,
    )


def as_matched(hit: Hit) -> Matched | None:
    """Return the example that found a hit as a value of the wire."""
    return Matched.model_construct(example=hit.match.text) if hit.match else None


def _score_pairs(
    scores: Float32,
    by_examples: Float32,
    vectors: Float32,
    pairs: tuple[Float32, Float32],
    options: Options,
) -> NextUtteranceScores:
    """Return scores by MaxSim or the search, and contributions if the request wants them."""
    first, second = pairs
    aggregation = options.aggregation
    is_max_sim = aggregation.name == "max_sim"
    if is_max_sim:
        scores = aggregation.scores(first, second, vectors)
    if not options.explain:
        return NextUtteranceScores(scores)
    contributions = aggregation.contributions(first, second, vectors).T
    if not is_max_sim:
        contributions[:, -1] += by_examples
    return NextUtteranceScores(scores, contributions)


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

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
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.diversity import most_diverse
from turnwise.models.fusion import Fusion
from turnwise.models.rerankers.cascade import combine_scores, standardise_scores
from turnwise.service.current_request import reads_learned
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.metrics import CascadeOutcome
from turnwise.service.pools import Hit, PoolView, warn_about_filter
from turnwise.service.pools.slots import fill_slots, find_slots
from turnwise.service.selection.answers import choose_wordings
from turnwise.service.selection.confidence import MIN_ANSWERS, Confidence, Estimate
from turnwise.service.selection.followers import find_followers
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.selection.request import Options, SelectionRequest
from turnwise.service.selection.reranking import Reranking, ShortList
from turnwise.service.selection.retrieval import cut_hits, find_hits
from turnwise.service.selection.scores import NextUtteranceScores
from turnwise.service.selection.search import FusedSearch, ReplySearch
from turnwise.service.wire.pools import Matched, Selected

_PAIRS_OF_A_TURN = 1 << 21
"""Most pairs of utterances times candidates that MaxSim scores for a turn: about a fifth of a
second. It shortens the short list of contexts with more than some 140 utterances."""
_UNKNOWN_SCRIPT = (
    "the model hardly knows the script of the newest utterance, so that there is no confidence"
)


class Retrieved(NamedTuple):
    """The result of a search.

    Attributes:
        hits: The candidates that were found and may be offered, best first.
        confidence: The confidence in the first candidate, if it has one.
        reply_scores: (k,) the scores of the hits without their examples and bonuses.
        estimate: The confidence of the first stage, if it has one.
        warnings: Warnings about the filter, the slots or the script.
        combined: (k,) the combined scores, where the model's own re-ranker read the first hits.
        cascade: The outcome of that re-ranker; None where the first stage was sure.
    """

    hits: list[Hit]
    confidence: float | None
    reply_scores: Float32
    estimate: Estimate | None
    warnings: Sequence[str]
    combined: Float64 | None = None
    cascade: CascadeOutcome | None = None


class Selection(NamedTuple):
    """The result of a selection.

    Attributes:
        candidates: The best candidates that may be offered, best first.
        confidence: The confidence in the first of them, if it has one.
        abstained: Whether there are no candidates because the confidence was too low.
        warnings: Warnings about the pool, the filter, the slots or the script.
        cascade: The outcome of the model's own re-ranker; None where the first stage was sure.
    """

    candidates: list[Selected]
    confidence: float | None = None
    abstained: bool = False
    warnings: Sequence[str] = ()
    cascade: CascadeOutcome | None = None


class Pipeline:
    """Retrieves, scores and orders the candidates of pools.

    Attributes:
        reranking: The re-rankers of the service.
    """

    def __init__(
        self,
        reranking: Reranking,
        pairwise: Pairwise | None,
        confidence: Confidence,
        fusion: Fusion,
    ) -> None:
        self.reranking = reranking
        self._pairwise = pairwise
        self._confidence = confidence
        self._fusion = fusion

    def find_obstacle(self, view: PoolView, options: Options) -> str | None:
        """Return why an order of candidates has no confidence; None if it has one."""
        return self._confidence.find_obstacle(view, options.aggregation, options.reranker)

    async def select(
        self, request: SelectionRequest, *, top_k: int, min_confidence: float | None
    ) -> Selection:
        """Return the best candidates that may be offered, or none if the confidence is too low.

        Args:
            request: The pool, the context and the options.
            top_k: Number of candidates to return.
            min_confidence: The least confidence; None for that of the pool, or none.

        Raises:
            InvalidRequest: The pool cannot serve an option, or a confidence is asked for where
                there cannot be one.
            ServiceError: Encoding, searching or re-ranking failed.
        """
        view = request.view
        obstacle = self.find_obstacle(view, request.options)
        if obstacle and min_confidence is not None:
            raise InvalidRequest.field(f"there is no confidence: {obstacle}", "min_confidence")
        threshold_warnings = self._confidence.warn(view, obstacle) if obstacle else []
        found = await self.retrieve(
            request,
            count=self._count_hits(request, top_k),
            answers=top_k if request.options.wordings == "best" else 1,
            confident=obstacle is None,
        )
        found = await self.read_unsure(request, found)
        warnings = (*threshold_warnings, *found.warnings)
        confidence = found.confidence
        threshold = view.settings.min_confidence if min_confidence is None else min_confidence
        is_too_low = threshold and confidence is not None and confidence < threshold
        if is_too_low or (threshold and not self._confidence.knows_script(request.context)):
            return Selection(
                [], confidence, abstained=True, warnings=warnings, cascade=found.cascade
            )
        scored = await self.score(request, found)
        indices = await self.order(request, found.hits, scored.scores, top_k)
        slots = request.options.slots
        chosen = [as_selected(found.hits[index], scored, index, slots) for index in indices]
        return Selection(chosen, confidence, warnings=warnings, cascade=found.cascade)

    async def retrieve(
        self, request: SelectionRequest, *, count: int, answers: int, confident: bool
    ) -> Retrieved:
        """Search a pool with the running query, or with the query of the pairwise model.

        Args:
            request: The pool, the context and the options.
            count: Number of hits to return, at least 1; fewer if the pool has fewer.
            answers: Least number of answers among them, which may take more hits.
            confident: Whether to compute the confidence in the first hit.

        Raises:
            InvalidRequest: The pool cannot serve an option.
            ServiceError: Encoding or searching failed.
        """
        request.check_options()
        with request.timings.stage("encode"):
            search = await self._prepare_search(request)
        with request.timings.stage("retrieve"):
            search.followers = await find_followers(request, search.query, search.spread)
            hits = await find_hits(
                request, search, count=count, answers=answers, confident=confident
            )
            estimate = None
            knows_script = self._confidence.knows_script(request.context)
            if confident and knows_script and len(hits) >= MIN_ANSWERS:
                estimate = self._confidence.estimate(
                    request,
                    search.query,
                    await search.spread(),
                    hits,
                    example=search.example_score(hits[0]),
                )
            warnings = await warn_about_filter(request.view, request.options.where)
            if not hits:
                warnings += await _warn_about_slots(request, search)
            if not knows_script:
                warnings.append(_UNKNOWN_SCRIPT)
        kept = cut_hits(hits, count, answers)
        reply_scores = np.array([search.reply_score(hit) for hit in kept], np.float32)
        confidence = None
        if estimate:
            confidence = self._confidence.correct(request.view, estimate.confidence)
        return Retrieved(kept, confidence, reply_scores, estimate, warnings)

    async def read_unsure(self, request: SelectionRequest, found: Retrieved) -> Retrieved:
        """Return the result of a search, re-ranked if the confidence in its first hit is low.

        Only `rerank: "auto"` re-ranks here, and only scores of the search, which have a confidence.
        A first hit that an example found stays first, because the re-ranker does not read examples.
        If the re-ranker fails, the order stays as it is.
        """
        cascade = self.reranking.cascade
        estimate = found.estimate
        options = request.options
        if cascade is None or estimate is None or estimate.confidence >= cascade.below:
            return found
        if options.rerank != "auto" or options.scores_pairs or found.hits[0].match:
            return found
        first = _make_short_list(request, found.hits[: cascade.candidates])
        logits = await self.reranking.try_own_reranker(first, request.timings)
        if logits is None:
            return found._replace(cascade="failed")
        scores = np.array([hit.score for hit in found.hits])
        z = standardise_scores(scores, estimate.spread)
        combined = combine_scores(logits, z, cascade.weight)
        confidence = self._confidence.estimate_reranked(
            estimate, cascade.confidence, found.hits, logits, combined
        )
        return found._replace(
            confidence=self._confidence.correct(request.view, confidence),
            combined=combined,
            cascade="reranked",
        )

    async def score(self, request: SelectionRequest, found: Retrieved) -> NextUtteranceScores:
        """Return the scores of k hits: those of the search, of MaxSim, or of a re-ranker.

        For MaxSim and for a re-ranker, examples and the bonus of followers only help to find the
        hits. In the score of a search, both count as a contribution of the newest utterance.

        Args:
            request: The request of the search; its context has its pairs if `options.scores_pairs`.
            found: The result of the search, with k hits.

        Raises:
            ServiceError: Re-ranking failed, or the candidate store did.
        """
        hits = found.hits
        options = request.options
        if found.combined is not None:
            return NextUtteranceScores(found.combined.astype(np.float32))
        if options.reranker and hits:
            short_list = _make_short_list(request, hits)
            scores = await self.reranking.score(options.reranker, short_list, request.timings)
            return NextUtteranceScores(scores)
        scores = np.array([hit.score for hit in hits], np.float32)
        if not (options.scores_pairs and hits) or request.is_pairwise:
            return NextUtteranceScores(scores)
        with request.timings.stage("rerank", metric="rerank"):
            vectors = await request.view.vectors([hit.candidate.id for hit in hits])
            added = scores - found.reply_scores
            return await asyncio.to_thread(_score_pairs, request, scores, added, vectors)

    async def order(
        self, request: SelectionRequest, hits: Sequence[Hit], scores: Float32 | Float64, top_k: int
    ) -> list[int]:
        """Return the indices of the best hits, best first; all of them if there are fewer.

        Unless all wordings are requested, one hit represents its group. What the responder said
        earlier decides between nearly equal wordings. With a diversity, the indices are in the
        order of `most_diverse`.

        Args:
            request: The request of the search.
            hits: k hits.
            scores: (k,) their scores.
            top_k: Number of indices.

        Raises:
            ServiceError: The candidate store failed.
        """
        options = request.options
        indices: list[int] = np.argsort(-scores, kind="stable").tolist()
        has_groups = any(hit.candidate.group is not None for hit in hits)
        if has_groups and options.wordings == "best":
            indices = choose_wordings(hits, scores, request.repeats.history)
        if not (options.diversity and hits):
            return indices[:top_k]
        with request.timings.stage("rerank", metric="rerank"):
            vectors = await request.view.vectors([hits[index].candidate.id for index in indices])
            wide = scores[indices].astype(np.float64)
            ranks = await asyncio.to_thread(most_diverse, wide, vectors, options.diversity, top_k)
        return [indices[rank] for rank in ranks]

    def _count_hits(self, request: SelectionRequest, top_k: int) -> int:
        """Return how many hits a turn needs."""
        options = request.options
        short_list = self.reranking.short_list
        is_max_sim = options.aggregation.name == "max_sim" and not request.is_pairwise
        if is_max_sim and not options.reranker:
            return max(top_k, min(short_list, _PAIRS_OF_A_TURN // request.utterance_count**2))
        if options.reranker or options.diversity:
            return max(top_k, short_list)
        if options.rerank == "auto" and self.reranking.cascade:
            return max(top_k, self.reranking.cascade.candidates)
        return top_k

    async def _prepare_search(self, request: SelectionRequest) -> ReplySearch:
        """Return the search of a request, by examples as well where the pool has some."""
        view = request.view
        context = request.context
        where = request.options.where
        if request.is_pairwise:
            assert self._pairwise is not None  # else the pool would not be served
            query = await self._pairwise.query(context.texts)
        else:
            query = context.query(request.options.aggregation)
        if not view.has_examples or context.said is None:
            return ReplySearch(view, query, where)
        return FusedSearch(
            view,
            query,
            where,
            said=context.said,
            fusion=self._fusion,
            utterance_count=request.utterance_count,
        )


def as_selected(
    hit: Hit, scored: NextUtteranceScores, index: int, slots: Mapping[str, str]
) -> Selected:
    """Return hit number `index` as a value of the wire; the pool validated its fields already."""
    text = fill_slots(hit.candidate.text, slots)
    contributions = None
    if scored.contributions is not None:
        contributions = scored.contributions[index].tolist()
    return Selected.model_construct(
        id=hit.candidate.id,
        text=text,
        template=hit.candidate.text if text != hit.candidate.text else None,
        score=float(scored.scores[index]),
        metadata=hit.candidate.metadata,
        group=hit.candidate.group,
        body=hit.candidate.body,
        matched=as_matched(hit),
        contributions=contributions,
    )


def as_matched(hit: Hit) -> Matched | None:
    """Return the example that found a hit, and the reply that it follows, as a wire value."""
    if hit.match is None and hit.follows is None:
        return None
    example = hit.match.text if hit.match else None
    is_learned = example is not None and example not in hit.candidate.examples
    if is_learned and not reads_learned.get():
        example = None
    return Matched.model_construct(example=example, learned=is_learned, after=hit.follows)


def _make_short_list(request: SelectionRequest, hits: Sequence[Hit]) -> ShortList:
    """Return hits for a re-ranker: the responder would say each of them."""
    context = request.context
    texts = [hit.candidate.text for hit in hits]
    return ShortList(context.utterances, texts, [context.responder] * len(texts))


def _score_pairs(
    request: SelectionRequest, scores: Float32, added: Float32, vectors: Float32
) -> NextUtteranceScores:
    """Return scores by MaxSim or the search, and contributions if the request wants them.

    Args:
        request: The request, whose context has its pairs.
        scores: (k,) the scores of k hits by the search.
        added: (k,) what examples and bonuses add to these scores.
        vectors: (k, d) [AFTER] of the hits.
    """
    first, second = request.context.pairs
    aggregation = request.options.aggregation
    is_max_sim = aggregation.name == "max_sim"
    if is_max_sim:
        scores = aggregation.scores(first, second, vectors)
    if not request.options.explain:
        return NextUtteranceScores(scores)
    contributions = aggregation.contributions(first, second, vectors).T
    if not is_max_sim:
        contributions[:, -1] += added
    return NextUtteranceScores(scores, contributions)


async def _warn_about_slots(request: SelectionRequest, search: ReplySearch) -> list[str]:
    """Return a warning if the best candidate of a pool has slots without a value."""
    hits = await search.search(1)
    if not hits:
        return []
    best = hits[0].candidate
    unfilled = find_slots(best.text) - request.options.slots.keys()
    if not unfilled:
        return []
    candidate = f"candidate '{best.id}' of pool '{request.view.name}'"
    return [f"{candidate} has slots without a value: {', '.join(sorted(unfilled))}"]

"""The use case of ranking: sorts candidates by weighted goals plus the next-utterance score."""

import asyncio
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64
from turnwise.models.roles import EncoderKind
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.selection.context import (
    Context,
    Contexts,
    EncodedContext,
    Said,
    choose_aggregation,
    empty_context,
)
from turnwise.service.selection.pipeline import Options, Pipeline, as_matched
from turnwise.service.selection.reranking import Reranking, ShortList
from turnwise.service.selection.scores import (
    Candidates,
    NextUtteranceScores,
    score_goals,
    score_next_utterances,
)
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.ranking import (
    GivenCandidate,
    RankAnswer,
    Ranked,
    RankRequest,
    Rejected,
)

_MOST_PAIRS = 1 << 24
"""Most pairs of utterances times candidates that MaxSim scores: about two seconds."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A ranking as it was asked for, with its context."""

    request: RankRequest
    context: Context
    options: Options
    timings: Timings


@dataclass(frozen=True, slots=True)
class _Short:
    """The short list of a pool: its hits, their columns and scores, and the confidence.

    `is_estimated` says whether [B2] of the candidates is estimated, and `is_reranked` whether the
    model's own re-ranker read the first ones.
    """

    hits: list[Hit]
    said: Said
    candidates: Candidates
    fit: NextUtteranceScores | None
    confidence: float | None
    is_estimated: bool
    is_reranked: bool


class Ranking:
    """Ranks candidates by eq. 3 and eq. 4 of C3L, or with a re-ranker."""

    def __init__(
        self,
        *,
        contexts: Contexts,
        pools: Pools,
        encoder: CachedEncoder,
        pipeline: Pipeline,
        reranking: Reranking,
        metrics: Metrics,
    ) -> None:
        self._contexts = contexts
        self._pools = pools
        self._encoder = encoder
        self._pipeline = pipeline
        self._reranking = reranking
        self._metrics = metrics

    async def rank(self, namespace: str, request: RankRequest) -> RankAnswer:
        """Rank candidates; with goals by Σ weight · eq. 4 + fit_weight · next-utterance score.

        From a pool, only the candidates with the best next-utterance scores are ranked: as many as
        the short list has, or `top_k` if that is more. The filter of the session applies to them as
        well.

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
        _check_pool_options(request)
        with timings.stage("state"):
            context = await self._contexts.read(namespace, request)
        options = Options(
            aggregation=choose_aggregation(request, self._encoder.aggregation),
            where=Filter.of(context.where, request.where),
            repeat=request.repeat,
            rerank=request.rerank,
            diversity=request.diversity,
            explain=request.explain,
            wordings=request.wordings,
        )
        if not context.utterances and (request.pool or not request.goals):
            raise empty_context(request)
        asked = _Asked(request, context, options, timings)
        if request.pool:
            view = await self._pools.view(namespace, request.pool)
            return await self._rank_pool(view, asked)
        return await self._rank_given(asked)

    async def _rank_pool(self, view: PoolView, asked: _Asked) -> RankAnswer:
        request = asked.request
        short = await self._retrieve(view, asked)
        judged = await self._judge(short.candidates, short.fit, asked)
        hits = [short.hits[index] for index in judged.kept]
        scores = judged.scores[judged.kept]
        top_k = request.top_k or len(hits)
        order = await self._pipeline.order(
            view, hits, scores, asked.options, asked.timings, said=short.said, top_k=top_k
        )
        answer = self._answer(
            asked, judged.ranking([judged.kept[index] for index in order]), judged.rejected()
        )
        of_pool = {
            "confidence": short.confidence,
            "reranked": short.is_reranked,
            "estimated": short.is_estimated,
            "pool": PoolVersion(name=view.name, version=view.version),
        }
        return answer.model_copy(update=of_pool)

    async def _rank_given(self, asked: _Asked) -> RankAnswer:
        candidates = self._take_given(asked)
        fit = await self._score_given(candidates, asked)
        judged = await self._judge(candidates, fit, asked)
        order = np.argsort(-judged.scores[judged.kept], kind="stable")[: asked.request.top_k]
        indices = [judged.kept[index] for index in order.tolist()]
        ranking = await asyncio.to_thread(judged.ranking, indices)
        return self._answer(asked, ranking, judged.rejected())

    def _answer(self, asked: _Asked, ranking: list[Ranked], rejected: list[Rejected]) -> RankAnswer:
        return RankAnswer.model_construct(
            ranking=ranking,
            rejected=rejected,
            pool=None,
            model=self._encoder.name,
            timings_ms=asked.timings.milliseconds(),
        )

    async def _retrieve(self, view: PoolView, asked: _Asked) -> _Short:
        """Return the short list of a pool."""
        request = asked.request
        context = asked.context
        count = max(request.top_k or 0, min(self._pipeline.short_list, self._limit(asked)))
        with asked.timings.stage("encode"):
            said = await self._contexts.collect_said(
                context.turns, context.responder, request.repeat
            )
            encoded = await self._encode_for(view, context)
        toward_goals = bool(request.goals or request.avoid)
        confident = not toward_goals and not self._pipeline.find_obstacle(view, asked.options)
        found = await self._pipeline.retrieve(
            view,
            encoded,
            said,
            asked.options,
            asked.timings,
            count=count,
            answers=1,
            confident=confident,
        )
        found = await self._pipeline.read_unsure(view, encoded, found, asked.options, asked.timings)
        hits = found.hits
        fit = None
        if request.wants_fit:
            fit = await self._pipeline.score(view, encoded, found, asked.options, asked.timings)
        # Guard rails need [B2] of the candidates exactly; for goals alone, heads estimate it.
        has_heads = self._encoder.kind is EncoderKind.HEADS and view.encoder_name != "pairwise"
        is_estimated = has_heads and bool(request.goals) and not request.avoid
        after = None
        if is_estimated:
            after = await view.vectors([hit.candidate.id for hit in hits])
        candidates = Candidates(
            [hit.candidate.id for hit in hits],
            [hit.candidate.text for hit in hits],
            [context.responder] * len(hits),
            hits,
            after,
        )
        return _Short(
            hits,
            said,
            candidates,
            fit,
            found.confidence,
            is_estimated=is_estimated,
            is_reranked=found.cascade == "reranked",
        )

    async def _encode_for(self, view: PoolView, context: Context) -> EncodedContext:
        if view.encoder_name == "pairwise":
            return self._contexts.without_vectors(context.utterances, context.responder)
        return await self._contexts.encode_pairs(context)

    def _take_given(self, asked: _Asked) -> Candidates:
        given = asked.request.candidates or []
        limit = self._limit(asked)
        if len(given) > limit:
            raise InvalidRequest.field(
                f"{asked.options.reranker or asked.options.aggregation.name} over "
                f"{len(asked.context.utterances)} utterances takes at most {limit} candidates",
                "candidates",
            )
        whole = [each if isinstance(each, GivenCandidate) else _as_given(each) for each in given]
        return Candidates(
            [each.id for each in whole],
            [each.text for each in whole],
            [each.speaker or asked.context.responder for each in whole],
        )

    def _limit(self, asked: _Asked) -> int:
        """Return the greatest number of candidates."""
        if asked.request.wants_fit and asked.options.reranker:
            return self._reranking.short_list
        if asked.request.wants_fit and asked.options.aggregation.name == "max_sim":
            return _MOST_PAIRS // max(len(asked.context.utterances), 1) ** 2
        return _MOST_PAIRS

    async def _score_given(
        self, candidates: Candidates, asked: _Asked
    ) -> NextUtteranceScores | None:
        """Return the next-utterance scores; None without a context or where they do not matter."""
        request = asked.request
        context = asked.context
        if not context.utterances or not request.wants_fit:
            return None
        if reranker := asked.options.reranker:
            short_list = ShortList(context.utterances, candidates.texts, candidates.speakers)
            scores = await self._reranking.score(reranker, short_list, asked.timings)
            return NextUtteranceScores(scores)
        with asked.timings.stage("encode"):
            return await score_next_utterances(
                self._contexts,
                context,
                candidates,
                asked.options.aggregation,
                explain=request.explain,
            )

    async def _judge(
        self, candidates: Candidates, fit: NextUtteranceScores | None, asked: _Asked
    ) -> "_Judged":
        """Score candidates toward the goals, and find those that lead to an utterance to avoid."""
        request = asked.request
        with asked.timings.stage("encode"):
            goals = await score_goals(self._contexts, asked.context, candidates, request.goals)
            avoid = await score_goals(self._contexts, asked.context, candidates, request.avoid)
        weights = np.array([goal.weight for goal in request.goals])
        scores: Float64 = goals @ weights if request.goals else np.zeros(len(candidates.texts))
        if fit is not None:
            scores = scores + request.weight_of_fit * fit.scores
        thresholds = np.array([avoided.threshold for avoided in request.avoid])
        return _Judged(request, candidates, fit, goals, avoid, avoid >= thresholds, scores)


@dataclass(frozen=True, slots=True)
class _Judged:
    """C candidates with the parts of their scores.

    Attributes:
        request: The request, with G goals and A utterances to avoid.
        candidates: The candidates.
        fit: Their next-utterance scores, if the answer depends on them.
        goals: (C, G) reachability of each goal.
        avoid: (C, A) reachability of each utterance to avoid.
        is_over: (C, A) whether that reaches the threshold.
        scores: (C,) the scores by which the candidates are ranked.
    """

    request: RankRequest
    candidates: Candidates
    fit: NextUtteranceScores | None
    goals: Float32
    avoid: Float32
    is_over: NDArray[np.bool_]
    scores: Float64

    @property
    def kept(self) -> list[int]:
        """The indices of the candidates that are not rejected."""
        kept: list[int] = np.flatnonzero(~self.is_over.any(axis=1)).tolist()
        return kept

    def ranking(self, indices: list[int]) -> list[Ranked]:
        """Return the candidates at these indices as values of the wire."""
        return [self._as_ranked(index) for index in indices]

    def _as_ranked(self, index: int) -> Ranked:
        candidates = self.candidates
        fit = None
        contributions = None
        if self.fit is not None:
            fit = float(self.fit.scores[index])
            if self.fit.contributions is not None:
                contributions = self.fit.contributions[index].tolist()
        ranked = Ranked.model_construct(
            index=index,
            id=candidates.ids[index],
            text=candidates.texts[index],
            score=float(self.scores[index]),
            fit=fit,
            goals=self.goals[index].tolist(),
            contributions=contributions,
        )
        if candidates.hits is None:
            return ranked
        hit = candidates.hits[index]
        of_pool = {
            "metadata": hit.candidate.metadata,
            "group": hit.candidate.group,
            "matched": as_matched(hit),
        }
        return ranked.model_copy(update=of_pool)

    def rejected(self) -> list[Rejected]:
        """Return the candidates that lead to an utterance to avoid, with the first of these."""
        return [
            self._as_rejected(index, int(self.is_over[index].argmax()))
            for index in np.flatnonzero(self.is_over.any(axis=1)).tolist()
        ]

    def _as_rejected(self, index: int, avoided: int) -> Rejected:
        reachability = float(self.avoid[index, avoided])
        threshold = self.request.avoid[avoided].threshold
        return Rejected.model_construct(
            index=index,
            id=self.candidates.ids[index],
            text=self.candidates.texts[index],
            reason=f"reachability {reachability:.3f} of avoid.{avoided} is not below {threshold:g}",
            avoid=avoided,
            reachability=reachability,
        )


def _check_pool_options(request: RankRequest) -> None:
    """Reject options for the candidates of a pool where the request gives candidates."""
    for name in ("where", "repeat", "diversity"):
        is_given = getattr(request, name) != RankRequest.model_fields[name].default
        if is_given and request.pool is None:
            raise InvalidRequest.field("is for the candidates of a pool: name a pool", name)


def _as_given(text: str) -> GivenCandidate:
    return GivenCandidate.model_construct(text=text, id=None, speaker=None)

"""The use case of ranking: sorts candidates by weighted goals plus the next-utterance score."""

import asyncio
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.texts import write_count
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.selection.context import Context, Contexts, empty_context
from turnwise.service.selection.pipeline import Pipeline, Retrieved
from turnwise.service.selection.repeats import collect_repeats
from turnwise.service.selection.request import Options, SelectionRequest
from turnwise.service.selection.reranking import ShortList
from turnwise.service.selection.scores import (
    Candidates,
    NextUtteranceScores,
    score_goals,
    score_next_utterances,
)
from turnwise.service.use_cases.judged import Judged
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.ranking import GivenCandidate, RankAnswer, Ranked, RankRequest, Rejected

_MOST_PAIRS = 1 << 24
"""Most pairs of utterances times candidates that MaxSim scores: about two seconds."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a ranking, with its context and options."""

    request: RankRequest
    context: Context
    options: Options
    timings: Timings


class Ranking:
    """Ranks candidates by eq. 3 and eq. 4 of C3L, or with a re-ranker."""

    def __init__(
        self, *, contexts: Contexts, pools: Pools, pipeline: Pipeline, metrics: Metrics
    ) -> None:
        self._contexts = contexts
        self._pools = pools
        self._pipeline = pipeline
        self._reranking = pipeline.reranking
        self._metrics = metrics

    async def rank(self, namespace: str, request: RankRequest) -> RankAnswer:
        """Rank candidates; with goals by Σ weight · eq. 4 + fit_weight · next-utterance score.

        From a pool, only the candidates with the best next-utterance scores are ranked: as many as
        the short list has, or `top_k` if that is more. The filter of the session applies to them as
        well.

        Raises:
            SessionNotFound: There is no such session.
            PoolNotFound: There is no such pool.
            InvalidRequest: There is neither a context nor a goal. There is no such re-ranker, or
                its scores cannot be explained. There are too many candidates. The filter is
                invalid. An option needs a pool, or a pool of another encoder.
            Conflict: The session has no utterance, and there is no goal.
            ServiceError: Reading, encoding or searching failed.
        """
        timings = Timings(self._metrics, "encode", "state", "retrieve", "rerank")
        self._reranking.check(request.rerank, explain=request.explain)
        _check_pool_options(request)
        with timings.stage("state"):
            context = await self._contexts.read(namespace, request)
        options = Options(
            aggregation=self._contexts.choose_aggregation(request),
            where=Filter.of(context.where, request.where),
            repeat=request.repeat,
            rerank=request.rerank,
            diversity=request.diversity,
            explain=request.explain,
            wordings=request.wordings,
            slots={**context.slots, **request.slots},
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
        selection = await self._request_selection(view, asked)
        found = await self._retrieve(selection, asked)
        fit = None
        if request.wants_fit:
            fit = await self._pipeline.score(selection, found)
        candidates = await self._take_hits(view, found.hits, asked)
        judged = await self._judge(candidates, fit, asked)
        kept = judged.kept
        hits = [found.hits[index] for index in kept]
        top_k = request.top_k or len(hits)
        order = await self._pipeline.order(selection, hits, judged.scores[kept], top_k)
        ranking = judged.list_ranked([kept[index] for index in order])
        pool_fields = {
            "confidence": found.confidence,
            "reranked": found.cascade == "reranked",
            "estimated": candidates.after is not None,
            "pool": PoolVersion(name=view.name, version=view.version),
            "warnings": list(found.warnings),
        }
        answer = self._answer(asked, ranking, judged.list_rejected())
        return answer.model_copy(update=pool_fields)

    async def _rank_given(self, asked: _Asked) -> RankAnswer:
        candidates = self._take_given(asked)
        fit = await self._score_given(candidates, asked)
        judged = await self._judge(candidates, fit, asked)
        kept = judged.kept
        order = np.argsort(-judged.scores[kept], kind="stable")[: asked.request.top_k]
        indices = [kept[index] for index in order.tolist()]
        ranking = await asyncio.to_thread(judged.list_ranked, indices)
        return self._answer(asked, ranking, judged.list_rejected())

    def _answer(self, asked: _Asked, ranking: list[Ranked], rejected: list[Rejected]) -> RankAnswer:
        return RankAnswer.model_construct(
            ranking=ranking,
            rejected=rejected,
            pool=None,
            model=self._contexts.model,
            timings_ms=asked.timings.milliseconds(),
        )

    async def _retrieve(self, selection: SelectionRequest, asked: _Asked) -> Retrieved:
        """Return the short list of a pool."""
        request = asked.request
        toward_goals = bool(request.goals or request.avoid)
        obstacle = self._pipeline.find_obstacle(selection.view, asked.options)
        short_list = min(self._reranking.short_list, self._most_candidates(asked))
        found = await self._pipeline.retrieve(
            selection,
            count=max(request.top_k or 0, short_list),
            answers=1,
            confident=not (toward_goals or obstacle),
        )
        return await self._pipeline.read_unsure(selection, found)

    async def _request_selection(self, view: PoolView, asked: _Asked) -> SelectionRequest:
        """Return the request for candidates of a pool, with the context and the repeats encoded."""
        context = asked.context
        with asked.timings.stage("encode"):
            repeats = await collect_repeats(
                self._contexts, context.turns, context.responder, asked.request.repeat
            )
            if view.encoder_name == "pairwise":
                encoded = self._contexts.without_vectors(context.utterances, context.responder)
            else:
                encoded = await self._contexts.encode_context(context)
        return SelectionRequest(view, encoded, repeats, asked.options, asked.timings)

    async def _take_hits(self, view: PoolView, hits: list[Hit], asked: _Asked) -> Candidates:
        """Return hits as columns, with their vectors if heads are to estimate [B2] from them.

        Heads estimate it only for goals: utterances to avoid need the exact [B2].
        """
        has_heads = self._contexts.has_heads and view.encoder_name != "pairwise"
        after = None
        if has_heads and asked.request.goals and not asked.request.avoid:
            after = await view.vectors([hit.candidate.id for hit in hits])
        return Candidates(
            ids=[hit.candidate.id for hit in hits],
            texts=[hit.candidate.text for hit in hits],
            speakers=[asked.context.responder] * len(hits),
            hits=hits,
            after=after,
        )

    def _take_given(self, asked: _Asked) -> Candidates:
        given = asked.request.candidates or []
        limit = self._most_candidates(asked)
        if len(given) > limit:
            raise InvalidRequest.field(
                f"{asked.options.reranker or asked.options.aggregation.name} over "
                f"{write_count(len(asked.context.utterances), 'utterance')} takes at most "
                f"{write_count(limit, 'candidate')}",
                "candidates",
            )
        candidates = [
            GivenCandidate.model_construct(text=each) if isinstance(each, str) else each
            for each in given
        ]
        return Candidates(
            ids=[each.id for each in candidates],
            texts=[each.text for each in candidates],
            speakers=[asked.context.name_speaker(each.speaker) for each in candidates],
        )

    def _most_candidates(self, asked: _Asked) -> int:
        """Return how many candidates a ranking can compare."""
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
    ) -> Judged:
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
        return Judged(
            request=request,
            candidates=candidates,
            fit=fit,
            goals=goals,
            avoid=avoid,
            is_over=avoid >= thresholds,
            scores=scores,
            slots=asked.options.slots,
        )


def _check_pool_options(request: RankRequest) -> None:
    """Reject options for the candidates of a pool where the request gives candidates."""
    for name in ("where", "slots", "repeat", "diversity"):
        is_given = getattr(request, name) != RankRequest.model_fields[name].default
        if is_given and request.pool is None:
            raise InvalidRequest.field("is for the candidates of a pool: name a pool", name)

"""The use case of ranking: given candidates, or a pool's, after a history or toward goals."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.roles import Relation, Role, RoleText, relation_to
from turnwise.models.scores import Aggregation, reachability
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.errors import InvalidRequest
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Pools, PoolView
from turnwise.service.selection.context import Histories, History, chosen, nothing_said
from turnwise.service.selection.fit import Fit, encoder_fit
from turnwise.service.selection.pairwise import Pairwise, pairwise_of
from turnwise.service.selection.rerank import Reranking
from turnwise.service.selection.select import check_explained, selected
from turnwise.service.wire.pools import PoolVersion, Selected
from turnwise.service.wire.ranking import (
    Avoided,
    GivenCandidate,
    Goal,
    RankAnswer,
    Ranked,
    RankRequest,
    Rejected,
)

_MOST_PAIRS = 1 << 24
"""Pairs of utterances times candidates that MaxSim may score: about two seconds."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A candidate under consideration, by whom it would be said."""

    id: str | None
    text: str
    speaker: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, and what it means."""

    request: RankRequest
    history: History
    aggregation: Aggregation


class Ranking:
    """Ranks candidates by eq. 3 and eq. 4 of C3L, or by a re-ranker."""

    def __init__(
        self,
        *,
        histories: Histories,
        pools: Pools,
        encoder: CachedEncoder,
        pairwise: Pairwise | None,
        reranking: Reranking,
        metrics: Metrics,
        timeout: float,
    ) -> None:
        self._histories, self._pools, self._encoder = histories, pools, encoder
        self._pairwise, self._reranking = pairwise, reranking
        self._metrics, self._timeout = metrics, timeout

    async def rank(self, namespace: str, request: RankRequest) -> RankAnswer:
        """Rank candidates; with goals by Σ weight · eq. 4 + fit_weight · next-utterance score.

        Of a pool the best by the next-utterance score are considered: the short list, or as many
        as `top_k` asks for.

        Raises:
            SessionNotFound: There is no such session.
            PoolNotFound: There is no such pool.
            InvalidRequest: There is nothing to rank by: neither a context nor a goal. Or there is
                no such re-ranker, nothing that could be explained, or too much to compare.
            Conflict: The session has no utterance, and there is no goal.
            ServiceError: What reading, encoding and searching raise.
        """
        timings = Timings("encode", "state", "retrieve", "rerank")
        self._reranking.check(request.rerank, explain=request.explain)
        with timings.stage("state"):
            history = await self._histories.find(namespace, request)
        if not history.utterances and (request.pool or not request.goals):
            raise nothing_said(request)
        asked = _Asked(request, history, chosen(request, self._encoder.aggregation))
        view = self._pools.view(namespace, request.pool) if request.pool else None
        if view:
            candidates, fit = await self._retrieved(view, asked, timings)
        else:
            candidates = self._given(asked)
            fit = await self._fit(candidates, None, asked, timings)
        with timings.stage("encode"):
            goals = await self._reach(candidates, history, request.goals)
            avoid = await self._reach(candidates, history, request.avoid)
        with timings.stage("rerank"), self._metrics.stage("rerank"):
            ranking, rejected = _ranked(request, candidates, fit, goals, avoid)
        return RankAnswer.model_construct(
            ranking=ranking,
            rejected=rejected,
            pool=PoolVersion(name=view.name, version=view.version) if view else None,
            model=self._encoder.name,
            timings_ms=timings.milliseconds(),
        )

    async def search(self, namespace: str, pool: str, text: str, top_k: int) -> list[Selected]:
        """Return what best follows a text that the other side says.

        Raises:
            PoolNotFound: There is no such pool.
        """
        view = self._pools.view(namespace, pool)
        if pairwise := pairwise_of(view, self._pairwise):
            query = await pairwise.query([text])
        else:
            inputs = [RoleText(text, Role.SECOND, Relation.OTHER)]
            (query,) = await self._encoder.encode(inputs, timeout=self._timeout)
        return [selected(hit, hit.score) for hit in await view.search(query, top_k)]

    def _most(self, asked: _Asked) -> int:
        """Return how many candidates can be scored."""
        if asked.request.wants_fit and asked.request.rerank:
            return self._reranking.short_list
        if asked.request.wants_fit and asked.aggregation.name == "max_sim":
            return _MOST_PAIRS // max(len(asked.history.utterances), 1) ** 2
        return _MOST_PAIRS

    def _given(self, asked: _Asked) -> list[_Candidate]:
        given, most = asked.request.candidates or [], self._most(asked)
        if len(given) > most:
            raise InvalidRequest.field(
                f"{asked.request.rerank or asked.aggregation.name} over "
                f"{len(asked.history.utterances)} utterances takes at most {most} candidates",
                "candidates",
            )
        return [_candidate(one, asked.history.responder) for one in given]

    async def _retrieved(
        self, view: PoolView, asked: _Asked, timings: Timings
    ) -> tuple[list[_Candidate], Fit | None]:
        """Return the short list of a pool, and its next-utterance scores as `_fit` does."""
        request, history = asked.request, asked.history
        count = max(request.top_k or 0, min(self._reranking.short_list, self._most(asked)))
        pairwise = pairwise_of(view, self._pairwise)
        if not request.rerank:
            check_explained(view, explain=request.explain)
        with timings.stage("encode"):
            query = await (pairwise.query(history.texts) if pairwise else self._query(asked))
        with timings.stage("retrieve"):
            hits = await view.search(query, count)
        candidates = [
            _Candidate(hit.candidate.id, hit.candidate.text, history.responder) for hit in hits
        ]
        if pairwise and not request.rerank:
            return candidates, Fit(np.array([hit.score for hit in hits], np.float32))
        return candidates, await self._fit(candidates, view, asked, timings)

    async def _query(self, asked: _Asked) -> Float32:
        history = asked.history
        first, second = await self._histories.encode(history, history.responder)
        return await asyncio.to_thread(asked.aggregation.query, first, second)

    async def _fit(
        self,
        candidates: Sequence[_Candidate],
        view: PoolView | None,
        asked: _Asked,
        timings: Timings,
    ) -> Fit | None:
        """Return the next-utterance scores; None where there is no context or no use for them.

        Args:
            candidates: Of the pool, or as they were given.
            view: The pool, whose vectors these are.
            asked: What is asked.
            timings: Gets the time as `encode`, or as `rerank`.
        """
        request, history = asked.request, asked.history
        if not history.utterances or not request.wants_fit:
            return None
        texts = [candidate.text for candidate in candidates]
        if request.rerank:
            return Fit(await self._reranking.scores(history.texts, texts, timings))
        with timings.stage("encode"):
            if view:
                after = view.vectors([candidate.id or "" for candidate in candidates])
            else:
                after = await self._encode([RoleText(text, Role.AFTER) for text in texts])
            return await encoder_fit(
                self._histories,
                history,
                [candidate.speaker for candidate in candidates],
                after,
                asked.aggregation,
                explain=request.explain,
            )

    async def _reach(
        self,
        candidates: Sequence[_Candidate],
        history: History,
        goals: Sequence[Goal] | Sequence[Avoided],
    ) -> Float32:
        """Return reachability (C, G), tokens relative to who would say each goal."""
        reach = np.empty((len(candidates), len(goals)), np.float32)
        speakers = [goal.speaker or history.responder for goal in goals]
        after = await self._encode([RoleText(goal.text, Role.AFTER) for goal in goals])
        for speaker in dict.fromkeys(speakers):
            first = await self._histories.first(history, speaker)
            second = await self._encode(
                [RoleText(c.text, Role.SECOND, relation_to(c.speaker, speaker)) for c in candidates]
            )
            said = [place for place, name in enumerate(speakers) if name == speaker]
            reach[:, said] = await asyncio.to_thread(reachability, first, second, after[said])
        return reach

    async def _encode(self, inputs: Sequence[RoleText]) -> Float32:
        return await self._encoder.encode(inputs, Priority.LIST, timeout=self._timeout)


def _candidate(given: str | GivenCandidate, responder: str) -> _Candidate:
    if isinstance(given, str):
        return _Candidate(None, given, responder)
    return _Candidate(given.id, given.text, given.speaker or responder)


def _ranked(
    request: RankRequest,
    candidates: Sequence[_Candidate],
    fit: Fit | None,
    goals: Float32,
    avoid: Float32,
) -> tuple[list[Ranked], list[Rejected]]:
    """Order the candidates by score, without those that lead to what is to be avoided."""
    weights = np.array([goal.weight for goal in request.goals])
    scores: Float64 = goals @ weights if request.goals else np.zeros(len(candidates))
    if fit is not None:
        scores = scores + (request.fit_weight if request.goals else 1.0) * fit.scores
    thresholds = np.array([avoided.threshold for avoided in request.avoid])
    over = avoid >= thresholds if request.avoid else np.zeros((len(candidates), 0), bool)
    kept = [place for place in np.argsort(-scores, kind="stable") if not over[place].any()]
    ranking = [
        Ranked.model_construct(
            index=int(place),
            id=candidates[place].id,
            text=candidates[place].text,
            score=float(scores[place]),
            fit=None if fit is None else float(fit.scores[place]),
            goals=goals[place].tolist(),
            contributions=fit.parts[place].tolist() if fit and fit.parts is not None else None,
        )
        for place in kept[: request.top_k]
    ]
    rejected = [
        _rejected(place, candidates[place], request.avoid, avoid[place], int(over[place].argmax()))
        for place in np.flatnonzero(over.any(axis=1)).tolist()
    ]
    return ranking, rejected


def _rejected(
    index: int,
    candidate: _Candidate,
    avoided: Sequence[Avoided],
    reach: Float32,
    place: int,
) -> Rejected:
    reached = float(reach[place])
    return Rejected.model_construct(
        index=index,
        id=candidate.id,
        text=candidate.text,
        reason=f"reachability {reached:.3f} of avoid.{place} is not below "
        f"{avoided[place].threshold:g}",
        avoid=place,
        reachability=reached,
    )

"""The use case of ranking: given candidates, or a pool's, after a history or toward goals."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.encoder import Aggregation
from models.mixture import max_sim, reachability, running_query
from models.roles import Relation, Role, RoleText, relation_to
from service.batching import Priority
from service.encoding import CachedEncoder
from service.errors import InvalidRequest
from service.history import Histories, History, chosen, new_rows
from service.metrics import Metrics
from service.pools import Pools, PoolView
from service.requests import (
    Avoided,
    Candidate,
    Goal,
    PoolVersion,
    RankAnswer,
    Ranked,
    RankRequest,
    Rejected,
    Selected,
)
from service.selection import selected
from service.timings import Timings

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

_MOST_PAIRS = 1 << 24
"""Pairs of utterances times candidates that MaxSim may score: about two seconds."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A candidate under consideration, by whom it would be said."""

    id: str | None
    text: str
    speaker: str


class Ranking:
    """Ranks candidates by eq. 3 and eq. 4 of C3L."""

    def __init__(
        self,
        histories: Histories,
        pools: Pools,
        encoder: CachedEncoder,
        metrics: Metrics,
        *,
        short_list: int,
        timeout: float,
    ) -> None:
        self._histories, self._pools, self._encoder = histories, pools, encoder
        self._metrics, self._short_list, self._timeout = metrics, short_list, timeout

    async def rank(self, namespace: str, request: RankRequest) -> RankAnswer:
        """Rank candidates; with goals by Σ weight · eq. 4 + fit_weight · next-utterance score.

        Of a pool the best by the next-utterance score are considered, as many as MaxSim re-ranks
        or as `top_k` asks for.

        Raises:
            SessionNotFound: There is no such session.
            PoolNotFound: There is no such pool.
            InvalidRequest: There is nothing to rank by: neither a context nor a goal.
            ServiceError: What reading, encoding and searching raise.
        """
        timings = Timings("encode", "state", "retrieve", "rerank")
        with timings.stage("state"):
            history = await self._histories.find(namespace, request)
        if not history.utterances and (request.pool or not request.goals):
            raise InvalidRequest.field("needs at least one utterance", "body", "context")
        aggregation = chosen(request, self._encoder.aggregation)
        view = self._pools.view(namespace, request.pool) if request.pool else None
        most = _most_candidates(len(history.utterances), aggregation)
        if view:
            count = min(max(self._short_list, request.top_k or 0), most)
            candidates = await self._of_pool(view, history, aggregation, count, timings)
        else:
            given = request.candidates or []
            if len(given) > most:
                raise InvalidRequest.field(
                    f"max_sim over {len(history.utterances)} utterances takes at most {most}",
                    "body",
                    "candidates",
                )
            candidates = [_candidate(one, history.responder) for one in given]
        with timings.stage("encode"):
            fit = await self._fit(candidates, history, request, aggregation, view)
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
        inputs = [RoleText(text, Role.SECOND, Relation.OTHER)]
        vectors = await self._encoder.encode(inputs, timeout=self._timeout)
        return [selected(hit, hit.score) for hit in await view.search(vectors[0], top_k)]

    async def _of_pool(
        self,
        view: PoolView,
        history: History,
        aggregation: Aggregation,
        count: int,
        timings: Timings,
    ) -> list[_Candidate]:
        with timings.stage("encode"):
            first, second = await self._histories.encode(history, history.responder)
        with timings.stage("retrieve"):
            query = await asyncio.to_thread(_query, first, second, aggregation)
            hits = await view.search(query, count)
        return [_Candidate(hit.candidate.id, hit.candidate.text, history.responder) for hit in hits]

    async def _fit(
        self,
        candidates: Sequence[_Candidate],
        history: History,
        request: RankRequest,
        aggregation: Aggregation,
        view: PoolView | None,
    ) -> Float32 | None:
        """Return the next-utterance score (C,); None where there is no context or no use for it."""
        if not history.utterances or (request.goals and not request.fit_weight):
            return None
        if view:
            after = view.vectors([candidate.id or "" for candidate in candidates])
        else:
            after = await self._encode([RoleText(c.text, Role.AFTER) for c in candidates])
        scores = np.empty(len(candidates), np.float32)
        for speaker in dict.fromkeys(candidate.speaker for candidate in candidates):
            said = [place for place, c in enumerate(candidates) if c.speaker == speaker]
            first, second = await self._histories.encode(history, speaker)
            scores[said] = await asyncio.to_thread(_scores, first, second, after[said], aggregation)
        return scores

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
            first, _ = await self._histories.encode(history, speaker)
            second = await self._encode(
                [RoleText(c.text, Role.SECOND, relation_to(c.speaker, speaker)) for c in candidates]
            )
            said = [place for place, name in enumerate(speakers) if name == speaker]
            reach[:, said] = await asyncio.to_thread(reachability, first, second, after[said])
        return reach

    async def _encode(self, inputs: Sequence[RoleText]) -> Float32:
        return await self._encoder.encode(inputs, Priority.LIST, timeout=self._timeout)


def _most_candidates(utterances: int, aggregation: Aggregation) -> int:
    by_pairs = aggregation.name == "max_sim"
    return _MOST_PAIRS // max(utterances, 1) ** 2 if by_pairs else _MOST_PAIRS


def _candidate(given: str | Candidate, responder: str) -> _Candidate:
    if isinstance(given, str):
        return _Candidate(None, given, responder)
    return _Candidate(given.id, given.text, given.speaker or responder)


def _query(first: Float32, second: Float32, aggregation: Aggregation) -> Float32:
    """Return the running query that the aggregation, or the retrieval for MaxSim, sums."""
    n = len(second)
    summed = aggregation.summed
    place = 0 if summed is None else max(0, n - summed - 1)
    return running_query(new_rows(first, second[place:], place), summed)


def _scores(first: Float32, second: Float32, after: Float32, aggregation: Aggregation) -> Float32:
    if aggregation.name == "max_sim":
        return max_sim(first, second, after)
    return np.asarray(after @ _query(first, second, aggregation))


def _ranked(
    request: RankRequest,
    candidates: Sequence[_Candidate],
    fit: Float32 | None,
    goals: Float32,
    avoid: Float32,
) -> tuple[list[Ranked], list[Rejected]]:
    """Order the candidates by score, without those that lead to what is to be avoided."""
    weights = np.array([goal.weight for goal in request.goals])
    scores: Float64 = goals @ weights if request.goals else np.zeros(len(candidates))
    if fit is not None:
        scores = scores + (request.fit_weight if request.goals else 1.0) * fit
    thresholds = np.array([avoided.threshold for avoided in request.avoid])
    over = avoid >= thresholds if request.avoid else np.zeros((len(candidates), 0), bool)
    kept = [place for place in np.argsort(-scores, kind="stable") if not over[place].any()]
    ranking = [
        Ranked.model_construct(
            index=int(place),
            id=candidates[place].id,
            text=candidates[place].text,
            score=float(scores[place]),
            fit=None if fit is None else float(fit[place]),
            goals=goals[place].tolist(),
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

"""The main use case: a turn of a session, and what could be said next."""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from time import time

import numpy as np

from turnwise.models.roles import Role
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.errors import (
    IdempotencyMismatch,
    ServiceError,
    SessionFull,
    StateUnavailable,
    TurnConflict,
)
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Pools, PoolView
from turnwise.service.selection.context import Histories, chosen, context_inputs
from turnwise.service.selection.deadline import deadline
from turnwise.service.selection.rerank import Reranking
from turnwise.service.selection.select import Choice, Context, Selector
from turnwise.service.sessions.step import NewVectors, Step
from turnwise.service.sessions.store import Answered, Session, SessionKey, Sessions
from turnwise.service.sessions.turns import Turn
from turnwise.service.wire.fields import RESPONDER
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.sessions import TurnAnswer, TurnRequest

ATTEMPTS = 200
"""Times that a commit is tried: of w concurrent writers, one succeeds in each round."""

_HEAD_START = 0.05
"""Seconds for the answer to leave before the encoder takes every core again, and for a client that
goes on at once to bring the next turn, in whose batch the text comes along for half of its time."""
_IDLE_SECONDS = 30.0
_PATIENCE = 1.0


class Turns:
    """Adds utterances to sessions and selects candidates."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        histories: Histories,
        pools: Pools,
        encoder: CachedEncoder,
        selector: Selector,
        reranking: Reranking,
        metrics: Metrics,
        max_turns: int,
        timeout: float,
    ) -> None:
        self._sessions, self._histories, self._pools = sessions, histories, pools
        self._encoder, self._selector, self._metrics = encoder, selector, metrics
        self._reranking, self._max_turns, self._timeout = reranking, max_turns, timeout
        self._idle: set[asyncio.Task[None]] = set()

    async def turn(
        self, namespace: str, session_id: str, request: TurnRequest, key: str | None = None
    ) -> TurnAnswer:
        """Add an utterance to a session, and select what could be said next.

        The answer is worked out before anything is written, so that a turn that fails leaves
        the session as it was. Where another turn lands first, this one is worked out again.

        Args:
            namespace: Whose session and pool.
            session_id: The session; its first turn creates it.
            request: What was said.
            key: Idempotency-Key: with the same request it gets the first answer again.

        Raises:
            IdempotencyMismatch: The key came with another request before.
            TurnConflict: `expected_turn` is not the next turn.
            SessionFull: The session has as many posts as it may.
            InvalidRequest: There is no such re-ranker, or nothing that could be explained.
            PoolNotFound: There is no such pool.
            DeadlineExceeded: It was not ready to be written in time.
            ServiceError: What reading, encoding, searching and writing raise.
        """
        timings = Timings("encode", "state", "retrieve", "rerank")
        session = SessionKey(namespace, session_id)
        retry = _Retry.of(key, request) if key else None
        self._reranking.check(request.rerank, explain=request.explain)
        aggregation = chosen(request, self._encoder.aggregation)
        choice = Choice(aggregation, request.top_k, request.explain, request.rerank)
        async with deadline(self._timeout) as limit:
            end = limit.when()
            for _ in range(ATTEMPTS):
                limit.reschedule(end)
                with timings.stage("state"), self._metrics.stage("state_read"):
                    base, answered = await self._sessions.read(
                        session,
                        rows=aggregation.rows_read,
                        second=choice.pairs_read,
                        idempotency_key=retry.key if retry else "",
                    )
                if answered and retry:
                    return retry.replay(answered)
                step = self._step(session_id, base, request)
                view = self._view(namespace, step, request)
                with timings.stage("encode"):
                    new = await step.encode(self._histories)
                selected = (
                    await self._selector.select(view, _context(step, new), choice, timings)
                    if view
                    else []
                )
                answer = TurnAnswer.model_construct(
                    session_id=session_id,
                    turn=len(step.posts),
                    candidates=selected,
                    pool=PoolVersion(name=view.name, version=view.version) if view else None,
                    model=self._encoder.name,
                    timings_ms=timings.milliseconds(),
                    replayed=False,
                )
                change = step.change(new, retry.answered(answer) if retry else None)
                limit.reschedule(None)  # so that what is refused has not landed
                with timings.stage("state"), self._metrics.stage("state_write"):
                    landed = await self._sessions.commit(session, base, change)
                if landed:
                    self._landed(session, step)
                    return answer.model_copy(update={"timings_ms": timings.milliseconds()})
        raise too_busy(session_id)

    async def close(self) -> None:
        """Let the encodings that nobody waits for come to their end, but not for long."""
        if self._idle:
            _, late = await asyncio.wait(self._idle, timeout=_PATIENCE)
            for task in late:
                task.cancel()

    def _step(self, session_id: str, base: Session | None, request: TurnRequest) -> Step:
        posts = base.posts if base else ()
        if request.expected_turn not in {None, len(posts) + 1}:
            raise TurnConflict(
                f"session '{session_id}' is at turn {len(posts)}: the next is {len(posts) + 1}, "
                f"not {request.expected_turn}"
            )
        if len(posts) >= self._max_turns:
            raise SessionFull(f"session '{session_id}' has {len(posts)} turns, as many as it may")
        post = Turn(request.speaker, request.text, time())
        responder = base.responder if base else RESPONDER
        return Step(base, (*posts, post), responder, self._encoder.fingerprint)

    def _view(self, namespace: str, step: Step, request: TurnRequest) -> PoolView | None:
        respond = request.respond
        if respond is None:
            respond = request.speaker != step.responder
        return self._pools.view(namespace, request.pool) if respond else None

    def _landed(self, session: SessionKey, step: Step) -> None:
        if not self._encoder.kind.paired:
            return
        task = asyncio.create_task(self._encode_first(session, step))
        self._idle.add(task)
        task.add_done_callback(self._idle.discard)

    async def _encode_first(self, session: SessionKey, step: Step) -> None:
        """Encode [B1] of the newest utterance; what fails here is work for the next turn."""
        inputs = context_inputs(step.said[-1:], Role.FIRST, step.responder)
        await asyncio.sleep(_HEAD_START)
        with suppress(ServiceError):
            vectors = await self._encoder.encode(inputs, Priority.IDLE, _IDLE_SECONDS)
            await self._sessions.put_first(session, step.epoch, len(step.said) - 1, vectors[0])


def too_busy(session_id: str) -> StateUnavailable:
    """Return the error of one that never came first."""
    return StateUnavailable(f"too many changes of session '{session_id}' at once; try again")


@dataclass(frozen=True, slots=True)
class _Retry:
    """An idempotency key and the request that came with it, as digests."""

    key: str
    body: str

    @classmethod
    def of(cls, key: str, request: TurnRequest) -> "_Retry":
        # Without defaults, and below without what is not known: while releases are exchanged, a
        # retry may reach one that has more fields, or fewer.
        return cls(_digest(key), _digest(request.model_dump_json(exclude_defaults=True)))

    def answered(self, answer: TurnAnswer) -> Answered:
        return Answered(self.key, self.body, answer.model_dump_json())

    def replay(self, answered: Answered) -> TurnAnswer:
        if answered.body != self.body:
            raise IdempotencyMismatch("this Idempotency-Key came with another body before")
        answer = TurnAnswer.model_validate_json(answered.answer, extra="ignore")
        return answer.model_copy(update={"replayed": True})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _context(step: Step, new: NewVectors) -> Context:
    texts = [said.text for said in step.said]
    if step.base is None:
        return Context(texts, new.first, new.second, new.rows)
    dropped = step.base.complete - step.keep_complete
    kept = step.base.rows[: max(len(step.base.rows) - dropped, 0)]
    return Context(
        texts=texts,
        first=new.first,
        second=np.concatenate([step.base.second[: step.keep_complete], new.second]),
        rows=np.concatenate([kept, new.rows]),
    )

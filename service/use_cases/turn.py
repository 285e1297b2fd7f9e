"""The use case of a turn; a retry (idempotency key) gets the first answer, a conflict gets 409.

A turn with a known idempotency key gets its first answer again; one with a wrong `expected_turn`
gets 409. Any other is added to its session, and gets what could be said next.

The way of a turn, top to bottom:

1. `api/routes/sessions.py` validates the request and calls `Turns.turn`.
2. `sessions/store.py` reads the session: its text, its vectors and rows, in one script.
3. `sessions/update.py` says which texts have no vectors yet: of a plain turn, the new utterance.
4. `selection/context.py` encodes them (through `encoder/`) and computes the rows.
5. `selection/pipeline.py` takes the running query from the rows, searches the pool (`pools/`), and
   orders the short list anew by MaxSim or with a re-ranker (`selection/short_list.py`).
6. `sessions/store.py` commits the change in one script, unless another turn landed first: then the
   turn starts again at 2. The journal, where there is one, gets a line.

Nothing is written before step 6, so a turn that fails leaves the session as it was.
"""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import time

from turnwise.models.roles import Role, context_inputs
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.errors import IdempotencyMismatch, ServiceError, SessionFull, TurnConflict
from turnwise.service.journal import Journal, Offered, TurnLine
from turnwise.service.observe.metrics import Metrics, TurnOutcome
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, PoolView
from turnwise.service.selection.context import Contexts, aggregation_of
from turnwise.service.selection.deadline import deadline
from turnwise.service.selection.pipeline import Choice, Selection, Selector
from turnwise.service.selection.short_list import Reranking
from turnwise.service.sessions.store import (
    Answered,
    Offer,
    Session,
    SessionKey,
    SessionStore,
    until_landed,
)
from turnwise.service.sessions.turns import Turn
from turnwise.service.sessions.update import Update
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.fields import RESPONDER
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.sessions import TurnAnswer, TurnRequest

_HEAD_START = 0.05
"""Seconds before the idle work begins. The answer leaves first, and the next turn of a fast client
can share a batch with that work, at half its cost."""
_IDLE_SECONDS = 30.0
_PATIENCE = 1.0


class Turns:
    """Adds turns to sessions and selects candidates."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        contexts: Contexts,
        pools: Pools,
        encoder: CachedEncoder,
        selector: Selector,
        reranking: Reranking,
        metrics: Metrics,
        journal: Journal | None,
        max_turns: int,
        timeout: float,
    ) -> None:
        self._sessions, self._contexts, self._pools = sessions, contexts, pools
        self._encoder, self._selector, self._metrics = encoder, selector, metrics
        self._reranking, self._max_turns, self._timeout = reranking, max_turns, timeout
        self._journal = journal
        self._idle: set[asyncio.Task[None]] = set()

    async def turn(
        self, namespace: str, session_id: str, request: TurnRequest, key: str | None = None
    ) -> TurnAnswer:
        """Add a turn to a session, and return the candidates to say next.

        Args:
            namespace: The namespace of the session and the pool.
            session_id: The session; its first turn creates it.
            request: The turn.
            key: Idempotency-Key: a repeated request with the same key gets the first answer again.

        Raises:
            IdempotencyMismatch: An earlier request with this key had another body.
            TurnConflict: `expected_turn` is not the next turn.
            SessionFull: The session has as many turns as the limit allows.
            InvalidRequest: There is no such re-ranker, its scores cannot be explained, the filter
                makes no sense, or the request wants a confidence that there cannot be.
            PoolNotFound: There is no such pool.
            DeadlineExceeded: The answer was not ready in time.
            ServiceError: Reading, encoding, searching or writing failed.
        """
        self._reranking.check(request.rerank, explain=request.explain)
        aggregation = aggregation_of(request, self._encoder.aggregation)
        asked = _Asked(
            session=SessionKey(namespace, session_id),
            choice=Choice(request, aggregation, Filter.of(request.where)),
            retry=_Retry.of(key, request) if key else None,
            timings=Timings(self._metrics, "encode", "state", "retrieve", "rerank"),
        )
        async with deadline(self._timeout) as limit:
            attempt = partial(self._attempt, asked, limit, limit.when())
            return await until_landed(asked.session, attempt)

    async def close(self) -> None:
        """Finish the idle work, but wait only briefly for it."""
        if self._idle:
            _, late = await asyncio.wait(self._idle, timeout=_PATIENCE)
            for task in late:
                task.cancel()

    async def _attempt(
        self, asked: "_Asked", limit: asyncio.Timeout, end: float | None
    ) -> TurnAnswer | None:
        """Return the answer; None where another turn was committed first."""
        base, answered = await self._read(asked)
        if answered and asked.retry:
            return asked.retry.replay(answered)
        update = self._update(asked, base)
        view = await self._view(asked, update.responder)
        with asked.timings.stage("encode"):
            new = await self._contexts.encode_update(update)
            said = None
            if view:
                responder, repeat = update.responder, asked.request.repeat
                said = await self._contexts.said(update.turns, responder, repeat)
        selection = Selection([])
        if view and said:
            context = await self._contexts.context(update, new, pairs=asked.choice.pairs_read)
            choice = asked.choice.within(Filter.of(base.where)) if base else asked.choice
            selection = await self._selector.select(view, context, said, choice, asked.timings)
        answer = self._answer(asked, len(update.turns), view, selection)
        kept_answer = asked.retry.answered(answer) if asked.retry else None
        change = update.change(new, kept_answer, _offer(answer))
        limit.reschedule(None)  # a commit that was cancelled could still land
        with asked.timings.stage("state", metric="session_write"):
            version = await self._sessions.commit(asked.session, base, change)
        if version is None:
            limit.reschedule(end)
            return None
        if view:
            outcome = _outcome(selection)
            self._metrics.turns.labels(asked.session.namespace, view.name, outcome).inc()
        if self._journal:
            self._journal.write(_journal_line(asked, update, version, answer))
        if len(new.first) == len(update.without_first):  # that of the newest is not there yet
            self._encode_first_when_idle(asked.session, update)
        return answer.model_copy(update={"timings_ms": asked.timings.milliseconds()})

    async def _read(self, asked: "_Asked") -> tuple[Session | None, Answered | None]:
        with asked.timings.stage("state", metric="session_read"):
            return await self._sessions.read(
                asked.session,
                encoded=self._contexts.reads_vectors(pairs=asked.choice.pairs_read),
                idempotency_key=asked.retry.key if asked.retry else "",
            )

    def _update(self, asked: "_Asked", base: Session | None) -> Update:
        before, name, request = base.turns if base else (), asked.session.id, asked.request
        if request.expected_turn not in {None, len(before) + 1}:
            raise TurnConflict(
                f"session '{name}' is at turn {len(before)}: the next is {len(before) + 1}, "
                f"not {request.expected_turn}"
            )
        if len(before) >= self._max_turns:
            raise SessionFull(f"session '{name}' has {len(before)} turns, which is the limit")
        turn = Turn(request.speaker, request.text, time())
        responder = base.responder if base else RESPONDER
        return Update(base, (*before, turn), responder)

    async def _view(self, asked: "_Asked", responder: str) -> PoolView | None:
        """Return the pool to select from; None where no candidates are returned."""
        respond = asked.request.respond
        if respond is None:
            respond = asked.request.speaker != responder
        if not respond:
            return None
        return await self._pools.view(asked.session.namespace, asked.request.pool)

    def _answer(
        self, asked: "_Asked", turn: int, view: PoolView | None, selection: Selection
    ) -> TurnAnswer:
        return TurnAnswer.model_construct(
            session_id=asked.session.id,
            turn=turn,
            candidates=selection.candidates,
            confidence=selection.confidence,
            abstained=selection.abstained,
            pool=PoolVersion(name=view.name, version=view.version) if view else None,
            model=self._encoder.name,
            timings_ms=asked.timings.milliseconds(),
            replayed=False,
        )

    def _encode_first_when_idle(self, session: SessionKey, update: Update) -> None:
        if not self._encoder.kind.encodes_first:
            return
        task = asyncio.create_task(self._encode_first(session, update))
        self._idle.add(task)
        task.add_done_callback(self._idle.discard)

    async def _encode_first(self, session: SessionKey, update: Update) -> None:
        """Encode [B1] of the newest utterance; if this fails, the next turn does it."""
        said = update.utterances
        inputs = context_inputs(said[-1:], Role.FIRST, update.responder)
        await asyncio.sleep(_HEAD_START)
        with suppress(ServiceError):
            vectors = await self._encoder.encode(inputs, Priority.IDLE, _IDLE_SECONDS)
            await self._sessions.put_b1(
                session, update.base, update.epoch, len(said) - 1, vectors[0]
            )


@dataclass(frozen=True, slots=True)
class _Retry:
    """Digests of an idempotency key and of the request that came with it."""

    key: str
    body: str

    @classmethod
    def of(cls, key: str, request: TurnRequest) -> "_Retry":
        # Defaults are left out here and unknown fields are ignored below: during a rolling update
        # a retry may reach a release with more fields, or fewer.
        return cls(_digest(key), _digest(request.model_dump_json(exclude_defaults=True)))

    def answered(self, answer: TurnAnswer) -> Answered:
        return Answered(self.key, self.body, answer.model_dump_json())

    def replay(self, answered: Answered) -> TurnAnswer:
        if answered.body != self.body:
            raise IdempotencyMismatch("an earlier request with this key had another body")
        answer = TurnAnswer.model_validate_json(answered.answer, extra="ignore")
        return answer.model_copy(update={"replayed": True})


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a turn, and the values that every attempt shares."""

    session: SessionKey
    choice: Choice
    retry: _Retry | None
    timings: Timings

    @property
    def request(self) -> TurnRequest:
        """The request as it was posted."""
        return self.choice.request


def _outcome(selection: Selection) -> TurnOutcome:
    if selection.abstained:
        return "abstained"
    return "answered" if selection.candidates else "empty"


def _offer(answer: TurnAnswer) -> Offer | None:
    if not (answer.pool and answer.candidates):
        return None
    return Offer(answer.pool.name, answer.model, [each.id for each in answer.candidates])


def _journal_line(asked: _Asked, update: Update, version: int, answer: TurnAnswer) -> TurnLine:
    turn = update.turns[-1]
    filters = [where for where in (update.base and update.base.where, asked.request.where) if where]
    offered = [
        Offered.model_construct(id=each.id, text=each.text, score=each.score)
        for each in answer.candidates
    ]
    return TurnLine.model_construct(
        at=turn.at,
        namespace=asked.session.namespace,
        session=asked.session.id,
        version=version,
        turn=answer.turn,
        speaker=turn.speaker,
        text=turn.text,
        responder=update.responder,
        model=answer.model,
        pool=answer.pool,
        where={"all": filters} if len(filters) > 1 else next(iter(filters), None),
        offered=offered,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""The use case of a turn: adds it to its session, and selects what could be said next.

A turn with a known idempotency key gets its first answer again; one with a wrong `expected_turn`
gets 409. A preview takes the same path up to step 5, and changes nothing.

The path of a turn, from top to bottom:

1. `api/routes/sessions.py` validates the request and calls `Turns.turn`.
2. `sessions/store.py` reads the session in one script: its turns, vectors and rows, and which
   candidate was chosen last: the responder says it now, unless the turn names another one.
3. `sessions/update.py` says which utterances have no vectors yet; in a plain turn, the new one.
4. `selection/context.py` encodes them (through `encoder/`) and computes the rows.
5. `selection/pipeline.py` searches the pool (`pools/`) with the running query of the rows. Where
   the first hit is not sure, the model's own re-ranker reads the first ones. It scores the hits by
   MaxSim or with another re-ranker where the request asks for it.
6. `sessions/store.py` commits the change in one script, unless a turn on another replica landed
   first: then the turn starts again at 2. `turn_records.py` counts the turn, and writes a line to
   the journal where there is one.

Before step 2 a turn waits for the earlier ones of its session on this replica
(`sessions/writers.py`). Nothing is written before step 6, so a turn that fails leaves the session
as it was.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import time
from typing import NamedTuple

from turnwise.models.texts import write_count
from turnwise.service.errors import InvalidRequest, SessionFull, TurnConflict
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter, PoolView
from turnwise.service.selection.context import Contexts
from turnwise.service.selection.deadline import deadline
from turnwise.service.selection.idle import IdleEncoding
from turnwise.service.selection.pipeline import Pipeline, Selection
from turnwise.service.selection.repeats import collect_repeats
from turnwise.service.selection.request import Options, SelectionRequest
from turnwise.service.sessions.responder import (
    choose_responder,
    name_speaker,
    warn_without_responder,
)
from turnwise.service.sessions.store import Answered, Offer, Session, SessionKey, SessionStore
from turnwise.service.sessions.turns import Turn
from turnwise.service.sessions.update import NewVectors, Update
from turnwise.service.sessions.writers import SessionWriters
from turnwise.service.use_cases.candidates import find_candidate
from turnwise.service.use_cases.pools import Pools
from turnwise.service.use_cases.retries import Retry
from turnwise.service.use_cases.turn_records import TurnRecords
from turnwise.service.wire.fields import RESPONDER
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.sessions import TurnAnswer, TurnRequest

_log = logging.getLogger("turnwise.sessions")


class Turns:
    """Adds turns to sessions and selects candidates."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        writers: SessionWriters,
        contexts: Contexts,
        pools: Pools,
        pipeline: Pipeline,
        idle: IdleEncoding,
        records: TurnRecords,
        max_turns: int,
        timeout: float,
    ) -> None:
        """Take the parts.

        Args:
            sessions: Keeps the sessions.
            writers: Lets the turns of a session go one after another.
            contexts: Encodes their utterances.
            pools: Finds the pool of a turn.
            pipeline: Selects candidates.
            idle: Encodes after the answer what the next turn will need.
            records: Records the turns.
            max_turns: Greatest number of turns of a session.
            timeout: Seconds that a turn may take.
        """
        self._sessions = sessions
        self._writers = writers
        self._contexts = contexts
        self._pools = pools
        self._pipeline = pipeline
        self._idle = idle
        self._records = records
        self._max_turns = max_turns
        self._timeout = timeout
        self._warned = set[str]()

    async def turn(
        self, namespace: str, session_id: str, request: TurnRequest, key: str | None = None
    ) -> TurnAnswer:
        """Add a turn to a session, and return the candidates to say next.

        Args:
            namespace: The namespace of the session and the pool.
            session_id: The session; its first turn creates it.
            request: The turn. With `commit` false it is only previewed: nothing is written.
            key: Idempotency-Key: a repeated request with the same key gets the first answer again.
                A preview ignores it.

        Raises:
            IdempotencyMismatch: An earlier request with this key had another body.
            TurnConflict: `expected_turn` is not the next turn.
            SessionFull: The session has as many turns as the limit allows.
            InvalidRequest: There is no such re-ranker, its scores cannot be explained, the filter
                makes no sense, the request wants a confidence that there cannot be, or another
                speaker than the responder names a candidate.
            PoolNotFound: There is no such pool.
            CandidateNotFound: The pool lacks the candidate that the turn names.
            DeadlineExceeded: The answer was not ready in time.
            Overloaded: Too many turns of the session wait.
            ServiceError: Reading, encoding, searching or writing failed.
        """
        posted = self._prepare(SessionKey(namespace, session_id), request, key)
        async with deadline(self._timeout) as limit:
            if request.commit:
                attempt = partial(self._attempt, posted, limit)
                return await self._writers.change(posted.session, attempt)
            base, _ = await self._read(posted)
            response = await self._respond(posted, await self._extend(posted, base))
            return response.answer

    async def answer_after(
        self, namespace: str, before: Sequence[Turn], request: TurnRequest, responder: str
    ) -> TurnAnswer:
        """Return the answer to a turn, after earlier turns that the caller gives; keep nothing.

        Args:
            namespace: The namespace of the pool.
            before: The turns before, oldest first.
            request: The turn, with a text.
            responder: The speaker who says the candidates.

        Raises:
            InvalidRequest: As `turn` says.
            PoolNotFound: There is no such pool.
            DeadlineExceeded: The answer was not ready in time.
            ServiceError: Encoding or searching failed.
        """
        posted = self._prepare(SessionKey(namespace, ""), request, None)
        turn = Turn(request.speaker, request.text or "", time())
        async with deadline(self._timeout):
            response = await self._respond(posted, Update(None, (*before, turn), responder))
        return response.answer

    async def close(self) -> None:
        """Finish the idle work, but wait only briefly for it."""
        await self._idle.close()

    def _prepare(self, session: SessionKey, request: TurnRequest, key: str | None) -> "_Posted":
        """Check a request, and return it with the values that every attempt shares."""
        self._pipeline.reranking.check(request.rerank, explain=request.explain)
        return _Posted(
            session=session,
            request=request,
            options=Options(
                aggregation=self._contexts.choose_aggregation(request),
                where=Filter.of(request.where),
                repeat=request.repeat,
                exclude=frozenset(request.exclude),
                rerank=request.rerank,
                diversity=request.diversity,
                explain=request.explain,
                wordings=request.wordings,
                slots=request.slots,
            ),
            retry=Retry.of(key, request) if key and request.commit else None,
            timings=self._records.start_timings(),
        )

    async def _attempt(self, posted: "_Posted", limit: asyncio.Timeout) -> TurnAnswer | None:
        """Return the answer; None where another turn was committed first."""
        base, answered = await self._read(posted)
        if answered and posted.retry:
            return posted.retry.replay(answered)
        update = await self._extend(posted, base)
        new, selection, answer = await self._respond(posted, update)
        version = await self._commit(posted, update, new, answer, limit)
        if version is None:
            return None
        self._records.add(
            posted.session, posted.request, update, version, selection=selection, answer=answer
        )
        self._idle.begin(posted.session, update, new)
        return answer.model_copy(update={"timings_ms": posted.timings.milliseconds()})

    async def _respond(self, posted: "_Posted", update: Update) -> "_Response":
        """Encode what is new in an update, and select the candidates after it."""
        view = await self._find_view(posted, update)
        with posted.timings.stage("encode"):
            new = await self._contexts.encode_update(update)
        selection = Selection([])
        if view:
            selection = await self._select(posted, update, new, view)
        answer = self._answer(posted, update, view, selection)
        if await self._contexts.is_truncated(update.utterances[-1]):
            answer = answer.model_copy(update={"truncated": True})
        return _Response(new, selection, answer)

    async def _read(self, posted: "_Posted") -> tuple[Session | None, Answered | None]:
        with posted.timings.stage("state", metric="session_read"):
            return await self._sessions.read(
                posted.session,
                encoded=self._contexts.reads_vectors(pairs=posted.options.needs_pairs),
                idempotency_key=posted.retry.key if posted.retry else "",
            )

    async def _extend(self, posted: "_Posted", base: Session | None) -> Update:
        """Return the update of a session by the new turn.

        Raises:
            TurnConflict: The request expects another turn.
            SessionFull: The session has as many turns as the limit allows.
        """
        name = posted.session.id
        request = posted.request
        before = base.turns if base else ()
        next_turn = len(before) + 1
        if request.expected_turn is not None and request.expected_turn != next_turn:
            raise TurnConflict(
                f"session '{name}' is at turn {len(before)}: the next is {next_turn}, "
                f"not {request.expected_turn}"
            )
        if len(before) >= self._max_turns:
            raise SessionFull(
                f"session '{name}' has {write_count(len(before), 'turn')}, which is the limit"
            )
        speakers = [turn.speaker for turn in before]
        responder_before = base.responder if base else RESPONDER
        responder = choose_responder(responder_before, [*speakers, request.speaker])
        speaker = name_speaker(request.speaker, responder)
        text = await self._read_text(posted, speaker, responder)
        candidate = request.candidate
        if candidate is None and base and speaker == responder:
            candidate = base.choice
        return Update(base, (*before, Turn(speaker, text, time(), candidate)), responder)

    async def _read_text(self, posted: "_Posted", speaker: str, responder: str) -> str:
        """Return the text of a turn: its own, or else that of the candidate that it names."""
        request = posted.request
        if request.candidate is None:
            return request.text or ""
        if speaker != responder:
            message = f"only the responder, '{responder}', says candidates"
            raise InvalidRequest.field(message, "candidate")
        view = await self._pools.view(posted.session.namespace, request.pool)
        candidate = await find_candidate(view, request.candidate)
        return request.text or candidate.text

    async def _find_view(self, posted: "_Posted", update: Update) -> PoolView | None:
        """Return the pool to select from; None where no candidates are returned."""
        respond = posted.request.respond
        if respond is None:
            respond = update.turns[-1].speaker != update.responder
        if not respond:
            return None
        return await self._pools.view(posted.session.namespace, posted.request.pool)

    async def _select(
        self, posted: "_Posted", update: Update, new: NewVectors, view: PoolView
    ) -> Selection:
        options = posted.options
        if update.base:
            options = options.within(Filter.of(update.base.where), update.base.slots)
        with posted.timings.stage("encode"):
            repeats = await collect_repeats(
                self._contexts, update.turns, update.responder, options.repeat
            )
        context = await self._contexts.complete(update, new, pairs=options.needs_pairs)
        return await self._pipeline.select(
            SelectionRequest(view, context, repeats, options, posted.timings),
            top_k=posted.request.top_k,
            min_confidence=posted.request.min_confidence,
        )

    def _answer(
        self, posted: "_Posted", update: Update, view: PoolView | None, selection: Selection
    ) -> TurnAnswer:
        warnings = [*selection.warnings, *self._warn(posted.session.namespace, update)]
        return TurnAnswer.model_construct(
            session_id=posted.session.id,
            turn=len(update.turns) if posted.request.commit else None,
            candidates=selection.candidates,
            confidence=selection.confidence,
            abstained=selection.abstained,
            reranked=selection.cascade == "reranked",
            warning=next(iter(warnings), None),
            warnings=warnings,
            pool=PoolVersion(name=view.name, version=view.version) if view else None,
            model=self._contexts.model,
            timings_ms=posted.timings.milliseconds(),
            replayed=False,
        )

    def _warn(self, namespace: str, update: Update) -> list[str]:
        """Return a warning if the responder does not speak; log the first one of a namespace."""
        warning = warn_without_responder(update.turns, update.responder)
        if warning is None:
            return []
        if namespace not in self._warned:
            self._warned.add(namespace)
            _log.warning("no turn of a session is by its responder; its answers say what to do")
        return [warning]

    async def _commit(
        self,
        posted: "_Posted",
        update: Update,
        new: NewVectors,
        answer: TurnAnswer,
        limit: asyncio.Timeout,
    ) -> int | None:
        """Commit a turn; return the session's version after it, None if another turn was first."""
        answered = posted.retry.keep(answer) if posted.retry else None
        offer = None
        if answer.pool and answer.candidates:
            offer = Offer(answer.pool.name, answer.model, [each.id for each in answer.candidates])
        change = update.change(new, answered, offer)
        end = limit.when()
        limit.reschedule(None)  # no deadline: a commit that is cancelled could still take effect
        with posted.timings.stage("state", metric="session_write"):
            version = await self._sessions.commit(posted.session, update.base, change)
        if version is None:
            limit.reschedule(end)
        return version


@dataclass(frozen=True, slots=True)
class _Posted:
    """A turn as it was posted, and the values that every attempt shares."""

    session: SessionKey
    request: TurnRequest
    options: Options
    retry: Retry | None
    timings: Timings


class _Response(NamedTuple):
    """The answer to a turn, and the parts from which it was made."""

    new: NewVectors
    selection: Selection
    answer: TurnAnswer

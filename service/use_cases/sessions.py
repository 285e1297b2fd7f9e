"""The use cases of a session, except turns: settings, transcript, feedback, undo, deletion.

A deletion removes the session from Redis at once; `journal compact` removes it from the journal.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

from turnwise.models.arrays import Float32
from turnwise.models.scores import Aggregation
from turnwise.service.errors import (
    Conflict,
    InvalidRequest,
    PoolNotFound,
    ServiceError,
    SessionStarted,
)
from turnwise.service.journal import DeletionLine, FeedbackLine, Journal, UndoLine
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Filter
from turnwise.service.selection.context import Contexts, EncodedContext
from turnwise.service.sessions.feedback import FeedbackStore, Kept
from turnwise.service.sessions.responder import name_speaker
from turnwise.service.sessions.store import Session, SessionKey, SessionStore, session_not_found
from turnwise.service.sessions.turns import Turn, last_turns
from turnwise.service.sessions.update import Update
from turnwise.service.sessions.writers import SessionWriters
from turnwise.service.use_cases.learning import Learning
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.fields import MAX_TOP_K
from turnwise.service.wire.filters import Where
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.sessions import (
    Feedback,
    FeedbackRequest,
    ScoreMatrix,
    ScoresQuery,
    SessionRequest,
    SessionsDeleted,
    SessionsPage,
    Transcript,
    TranscriptTurn,
    Undone,
)


class Sessions:
    """Opens, reads, shortens and deletes sessions, and takes feedback."""

    def __init__(
        self,
        *,
        store: SessionStore,
        writers: SessionWriters,
        feedback: FeedbackStore,
        learning: Learning,
        contexts: Contexts,
        pools: Pools,
        metrics: Metrics,
        journal: Journal | None,
    ) -> None:
        self._store = store
        self._writers = writers
        self._feedback = feedback
        self._learning = learning
        self._contexts = contexts
        self._pools = pools
        self._metrics = metrics
        self._journal = journal

    async def open(self, namespace: str, session_id: str, request: SessionRequest) -> Transcript:
        """Set the responder, the filter or the slots; create the session if it is missing.

        A setting that the request leaves out does not change.

        Raises:
            InvalidRequest: The filter makes no sense.
            SessionStarted: It has turns, and another responder.
            NamespaceFull: It would be new, and the namespace has as many as it may have.
            Overloaded: Too many changes of the session wait.
        """
        Filter.of(request.where)
        session = SessionKey(namespace, session_id)
        return await self._writers.change(session, partial(self._open, session, request))

    async def _open(self, session: SessionKey, request: SessionRequest) -> Transcript | None:
        base, _ = await self._store.read(session)
        settings = _Settings.after(request, base)
        if base and settings.are_those_of(base):
            return _make_transcript(session.id, base, await self._feedback.read(session))
        if base and base.turns and base.responder != settings.responder:
            raise SessionStarted(
                f"session '{session.id}' has turns, so its responder stays '{base.responder}'"
            )
        update = Update(base, base.turns if base else (), settings.responder)
        where = json.dumps(settings.where)
        await self._commit(session, update, where=where, slots=json.dumps(settings.slots))
        return None  # the next attempt finds these settings, and reads when the session expires

    async def transcript(self, namespace: str, session_id: str) -> Transcript:
        """Return the transcript.

        Raises:
            SessionNotFound: There is no such session.
        """
        key = SessionKey(namespace, session_id)
        session = await self._store.find(key)
        return _make_transcript(session_id, session, await self._feedback.read(key))

    async def add_feedback(
        self, namespace: str, session_id: str, turn: int, request: FeedbackRequest
    ) -> Feedback:
        """Keep an event on a candidate that a turn offered, and let the candidate learn from it.

        The same event again changes nothing.

        Raises:
            ServiceError: As `FeedbackStore.add` says.
        """
        session = SessionKey(namespace, session_id)
        kept = await self._feedback.add(session, turn, request)
        if kept.is_new:
            await self._record(session, kept)
        learned = await self._learning.learn(session, turn, kept.pool, request)
        return kept.feedback.model_copy(update={"learned": learned})

    async def _record(self, session: SessionKey, kept: Kept) -> None:
        """Write a new event to the journal, and count it."""
        feedback = kept.feedback
        if self._journal:
            line = FeedbackLine(
                namespace=session.namespace,
                session=session.id,
                version=kept.version,
                turn=feedback.turn,
                candidate=feedback.candidate,
                event=feedback.event,
                text=feedback.text,
            )
            self._journal.write(line)
        try:
            await self._pools.info(session.namespace, kept.pool)
        except PoolNotFound:  # a deleted pool has no metrics
            return
        except ServiceError:  # this replica cannot serve the pool
            pass
        labels = (session.namespace, kept.pool, kept.model)
        self._metrics.feedback.labels(*labels, feedback.event).inc()
        if feedback.event in {"chosen", "edited"}:
            self._metrics.chosen_reciprocal_rank.labels(*labels).observe(1 / feedback.rank)

    async def undo(self, namespace: str, session_id: str) -> Undone:
        """Remove the last turn.

        Raises:
            SessionNotFound: There is no such session.
            Conflict: It has no turn.
            Overloaded: Too many changes of the session wait.
        """
        session = SessionKey(namespace, session_id)
        return await self._writers.change(session, partial(self._undo, session))

    async def _undo(self, session: SessionKey) -> Undone | None:
        base = await self._store.find(session)
        if not base.turns:
            raise Conflict(f"session '{session.id}' has no turn to undo")
        update = Update(base, base.turns[:-1], base.responder)
        version = await self._commit(session, update)
        if version is None:
            return None
        if self._journal:
            undo = UndoLine(
                namespace=session.namespace,
                session=session.id,
                version=version,
                turn=len(base.turns),
            )
            self._journal.write(undo)
        removed = _make_transcript_turn(len(base.turns), base.turns[-1])
        return Undone(session_id=session.id, turn=len(update.turns), removed=removed)

    async def delete(self, namespace: str, session_id: str) -> None:
        """Delete a session.

        Raises:
            SessionNotFound: There is no such session.
        """
        session = SessionKey(namespace, session_id)
        now = await self._store.current_version()
        version = await self._store.delete(session)
        if self._journal:  # the journal may have lines of a session that has expired
            line = DeletionLine(namespace=namespace, session=session_id, version=version or now)
            self._journal.write(line)
        if version is None:
            raise session_not_found(session)

    async def page(self, namespace: str, prefix: str, cursor: str | None) -> SessionsPage:
        """Return a page of the ids that begin with a prefix.

        Raises:
            InvalidRequest: The cursor is not one of the service, or has become invalid.
        """
        ids, after = await self._store.page(namespace, prefix, cursor)
        return SessionsPage(ids=ids, cursor=after)

    async def erase(
        self, namespace: str, prefix: str, cursor: str | None, *, learned: bool
    ) -> SessionsDeleted:
        """Delete some of the sessions whose ids begin with a prefix, and the remains of lost ones.

        Args:
            namespace: The namespace of the sessions.
            prefix: The beginning of their ids.
            cursor: As the request before returned it.
            learned: Whether to remove what candidates learned from them, after the last ones.

        Raises:
            InvalidRequest: The cursor is not one of the service, or has become invalid.
        """
        now = await self._store.current_version()
        deleted = 0
        ids, after = await self._store.page(namespace, prefix, cursor, part="*")
        for each in ids:
            version = await self._store.delete(SessionKey(namespace, each))
            if version is not None:
                deleted += 1
            if self._journal and version and version > now:  # newer than the line of the prefix
                line = DeletionLine(namespace=namespace, session=each, version=version)
                self._journal.write(line)
        if self._journal:
            self._journal.write(DeletionLine(namespace=namespace, prefix=prefix, version=now))
        removed = None
        if learned and after is None:
            removed = await self._learning.forget(namespace, prefix)
        return SessionsDeleted(deleted=deleted, cursor=after, learned=removed)

    async def scores(self, namespace: str, session_id: str, query: ScoresQuery) -> ScoreMatrix:
        """Return the score matrix: each candidate's score after each utterance.

        Raises:
            SessionNotFound: There is no such session.
            PoolNotFound: There is no such pool.
            CandidateNotFound: It lacks one of the candidates.
            InvalidRequest: The pool is pairwise, or there are too many candidates for MaxSim.
        """
        aggregation = self._contexts.choose_aggregation(query)
        if aggregation.name == "max_sim" and len(query.ids) > MAX_TOP_K:
            raise InvalidRequest.field(f"max_sim scores at most {MAX_TOP_K} candidates", "ids")
        view = await self._pools.view(namespace, query.pool)
        if view.encoder_name == "pairwise":
            message = f"pool '{query.pool}' uses the pairwise model, which has no score matrix"
            raise InvalidRequest.field(message, "pool")
        vectors = await view.vectors(query.ids)
        base = await self._store.find(SessionKey(namespace, session_id), encoded=True)
        update = Update(base, base.turns, base.responder)
        new = await self._contexts.encode_update(update)
        context = await self._contexts.complete(update, new, pairs=True)
        ids = query.ids
        if not ids and context.texts:
            hits = await view.search(context.query(aggregation), query.top_k, Filter.of(base.where))
            ids = [hit.candidate.id for hit in hits]
            vectors = await view.vectors(ids)
        return ScoreMatrix.model_construct(
            session_id=session_id,
            pool=PoolVersion(name=view.name, version=view.version),
            ids=ids,
            turns=last_turns(base.turns),
            scores=await asyncio.to_thread(_compute_matrix, context, vectors, aggregation),
        )

    async def _commit(
        self,
        session: SessionKey,
        update: Update,
        *,
        where: str | None = None,
        slots: str | None = None,
    ) -> int | None:
        """Commit an update without vectors; return the new version, None if another was first."""
        new = self._contexts.keep_rows(update)
        change = replace(update.change(new), where=where, slots=slots)
        return await self._store.commit(session, update.base, change)


class _Settings(NamedTuple):
    """The settings of a session that a request may change."""

    responder: str
    where: Where | None
    slots: Mapping[str, str]

    @classmethod
    def after(cls, request: SessionRequest, base: Session | None) -> Self:
        """Return the settings after a request; `base` is the session before it, if there is one."""
        settings = cls(request.responder, request.where, request.slots or {})
        if base is None:
            return settings
        given = request.model_fields_set
        if "responder" not in given:
            settings = settings._replace(responder=base.responder)
        elif base.turns:
            settings = settings._replace(responder=name_speaker(request.responder, base.responder))
        if "where" not in given:
            settings = settings._replace(where=base.where)
        if "slots" not in given:
            settings = settings._replace(slots=base.slots)
        return settings

    def are_those_of(self, base: Session) -> bool:
        """Return whether a session has these settings."""
        return (
            base.responder == self.responder
            and base.slots == self.slots
            and Filter.of(base.where) == Filter.of(self.where)
        )


def _compute_matrix(
    context: EncodedContext, vectors: Float32, aggregation: Aggregation
) -> list[list[float]]:
    if not context.texts:
        return []
    scores: list[list[float]] = aggregation.matrix(*context.pairs, vectors).tolist()
    return scores


def _make_transcript(session_id: str, session: Session, feedback: list[Feedback]) -> Transcript:
    return Transcript(
        session_id=session_id,
        responder=session.responder,
        where=session.where,
        slots=dict(session.slots),
        turns=len(session.turns),
        transcript=[
            _make_transcript_turn(number, turn) for number, turn in enumerate(session.turns, 1)
        ],
        feedback=feedback,
        model=session.fingerprint,
        expires_at=session.expires_at,
    )


def _make_transcript_turn(number: int, turn: Turn) -> TranscriptTurn:
    return TranscriptTurn(turn=number, **turn._asdict())

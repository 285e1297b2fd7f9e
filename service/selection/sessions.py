"""What else is asked of a session: its responder, transcript, undo, end, and score matrix."""

import asyncio
from collections.abc import Sequence

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.scores import score_matrix
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.errors import Conflict, InvalidRequest, SessionStarted
from turnwise.service.pools import Pools
from turnwise.service.selection.context import Histories, chosen, session_not_found
from turnwise.service.selection.turn import ATTEMPTS, too_busy
from turnwise.service.sessions.step import NewVectors, Step
from turnwise.service.sessions.store import Session, SessionKey, Sessions
from turnwise.service.sessions.turns import Turn, last_turns
from turnwise.service.wire.fields import Aggregated
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.sessions import (
    ScoreMatrix,
    SessionRequest,
    Transcript,
    TranscriptTurn,
    Undone,
)


class Conversations:
    """Sessions beyond their turns."""

    def __init__(
        self, sessions: Sessions, histories: Histories, pools: Pools, encoder: CachedEncoder
    ) -> None:
        self._sessions, self._histories = sessions, histories
        self._pools, self._encoder = pools, encoder

    async def open(self, namespace: str, session_id: str, request: SessionRequest) -> Transcript:
        """Fix who responds before the first turn; a session without turns is created.

        Raises:
            SessionStarted: It has turns, and another responder.
        """
        session = SessionKey(namespace, session_id)
        for _ in range(ATTEMPTS):
            base, _ = await self._sessions.read(session)
            if base and base.responder == request.responder:
                return _transcript(session_id, base)
            if base and base.posts:
                raise SessionStarted(
                    f"session '{session_id}' has turns, so '{base.responder}' stays its responder"
                )
            step = Step(base, (), request.responder, self._encoder.fingerprint)
            await self._sessions.commit(session, base, step.change(self._nothing))
        raise too_busy(session_id)

    async def transcript(self, namespace: str, session_id: str) -> Transcript:
        """Return what was said.

        Raises:
            SessionNotFound: There is no such session.
        """
        return _transcript(session_id, await self._found(namespace, session_id))

    async def undo(self, namespace: str, session_id: str) -> Undone:
        """Take the last post back.

        Raises:
            SessionNotFound: There is no such session.
            Conflict: It has no post.
        """
        for _ in range(ATTEMPTS):
            base = await self._found(namespace, session_id)
            if not base.posts:
                raise Conflict(f"session '{session_id}' has no turn to take back")
            step = Step(base, base.posts[:-1], base.responder, base.fingerprint)
            change = step.change(self._nothing)
            if await self._sessions.commit(SessionKey(namespace, session_id), base, change):
                removed = _transcript_post(len(base.posts), base.posts[-1])
                return Undone(session_id=session_id, turn=len(step.posts), removed=removed)
        raise too_busy(session_id)

    async def delete(self, namespace: str, session_id: str) -> None:
        """Forget a session.

        Raises:
            SessionNotFound: There is no such session.
        """
        if not await self._sessions.delete(SessionKey(namespace, session_id)):
            raise session_not_found(session_id)

    async def scores(
        self,
        namespace: str,
        session_id: str,
        pool: str,
        ids: Sequence[str],
        aggregated: Aggregated,
    ) -> ScoreMatrix:
        """Return the running score matrix: each candidate's score after each utterance.

        Raises:
            SessionNotFound: There is no such session.
            PoolNotFound: There is no such pool.
            CandidateNotFound: It lacks one of the candidates.
            InvalidRequest: MaxSim or a pairwise pool, whose scores are no sums over rows.
        """
        aggregation = chosen(aggregated, self._encoder.aggregation)
        if aggregation.name == "max_sim":
            raise InvalidRequest.field("max_sim has no running matrix", "aggregation")
        view = self._pools.view(namespace, pool)
        if view.retrieval == "pairwise":
            raise InvalidRequest.field(
                f"pool '{pool}' is of the pairwise model, which has no running matrix", "pool"
            )
        vectors = view.vectors(ids)
        base = await self._found(namespace, session_id, rows=None)
        step = Step(base, base.posts, base.responder, self._encoder.fingerprint)
        new = await step.encode(self._histories)
        rows = np.concatenate([base.rows[: step.keep_complete], new.rows])
        return ScoreMatrix(
            session_id=session_id,
            pool=PoolVersion(name=view.name, version=view.version),
            ids=list(ids),
            turns=last_turns(base.posts),
            scores=await asyncio.to_thread(
                _matrix, rows, vectors, aggregation.summed, self._encoder.kind.paired
            ),
        )

    async def _found(self, namespace: str, session_id: str, rows: int | None = 0) -> Session:
        base, _ = await self._sessions.read(SessionKey(namespace, session_id), rows=rows)
        if base is None:
            raise session_not_found(session_id)
        return base

    @property
    def _nothing(self) -> NewVectors:
        none = self._histories.none
        return NewVectors(none, none, none)


def _matrix(
    rows: Float32, vectors: Float32, last_rows: int | None, paired: bool
) -> list[list[float]]:
    return score_matrix(rows, vectors, last_rows, paired=paired).tolist() if len(rows) else []


def _transcript(session_id: str, session: Session) -> Transcript:
    return Transcript(
        session_id=session_id,
        responder=session.responder,
        turns=len(session.posts),
        transcript=[_transcript_post(turn, post) for turn, post in enumerate(session.posts, 1)],
        model=session.fingerprint,
        expires_at=session.expires_at,
    )


def _transcript_post(turn: int, post: Turn) -> TranscriptTurn:
    return TranscriptTurn(turn=turn, speaker=post.speaker, text=post.text, at=post.at)

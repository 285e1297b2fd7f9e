"""What was said before, and its vectors toward whoever will say the target."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.roles import Role, RoleText, relation_to
from turnwise.models.scores import Aggregation
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.errors import Conflict, InvalidRequest, ServiceError, SessionNotFound
from turnwise.service.sessions.store import Session, SessionKey, Sessions
from turnwise.service.sessions.turns import Turn, utterances
from turnwise.service.wire.fields import RESPONDER, Aggregated, OptionalContext

_OF_A_TURN = 8
"""Texts that go before everything else; a whole context to work out again does not."""


@dataclass(frozen=True, slots=True)
class History:
    """Utterances of a session or of a context, and who will say what comes next."""

    utterances: tuple[Utterance, ...]
    responder: str
    session: Session | None = None

    @property
    def texts(self) -> list[str]:
        """Texts of the utterances."""
        return [utterance.text for utterance in self.utterances]


class Histories:
    """Finds what a request means by its history, and encodes it."""

    def __init__(self, sessions: Sessions, encoder: CachedEncoder, *, timeout: float) -> None:
        self._sessions, self._encoder, self._timeout = sessions, encoder, timeout

    async def find(self, namespace: str, asked: OptionalContext) -> History:
        """Return the history that a request names; an empty one where it names none.

        Raises:
            SessionNotFound: There is no such session.
        """
        if asked.session_id is None:
            posts = [Turn(post.speaker, post.text, 0.0) for post in asked.context or ()]
            return History(utterances(posts), RESPONDER)
        found, _ = await self._sessions.read(SessionKey(namespace, asked.session_id), second=True)
        if found is None:
            raise session_not_found(asked.session_id)
        return History(utterances(found.posts), found.responder, found)

    async def encode(self, history: History, target_speaker: str) -> tuple[Float32, Float32]:
        """Return [B1] and [B2], both (n, d), of a history toward a target of one speaker.

        There are no [B1] (0, d) of an encoder that forms no pairs. A session keeps those toward
        its responder; others are encoded with the tokens swapped.
        """
        said = history.utterances
        return await self.complete(said, said, target_speaker, *self._kept(history, target_speaker))

    async def first(self, history: History, target_speaker: str) -> Float32:
        """Return what `encode` does without [B2], which nobody encodes for this."""
        kept, _ = self._kept(history, target_speaker)
        first, _ = await self.complete(history.utterances, (), target_speaker, kept, self.none)
        return first

    async def second(self, history: History, target_speaker: str) -> Float32:
        """Return what `encode` does without [B1]."""
        _, kept = self._kept(history, target_speaker)
        _, second = await self.complete((), history.utterances, target_speaker, self.none, kept)
        return second

    async def complete(
        self,
        as_first: Sequence[Utterance],
        as_second: Sequence[Utterance],
        target_speaker: str,
        first: Float32,
        second: Float32,
    ) -> tuple[Float32, Float32]:
        """Encode what the vectors of the first utterances lack, in one call.

        Args:
            as_first: m utterances whose [B1] are needed, where the encoder forms pairs.
            as_second: n utterances whose [B2] are needed.
            target_speaker: Who will say the target.
            first: [B1] of the first of `as_first`.
            second: [B2] of the first of `as_second`.

        Returns:
            (m, d), or (0, d) of an encoder that forms no pairs, and (n, d), as Redis would return
            them: rounded to float16, so that a session scores the same whether its vectors were
            kept or are worked out again.
        """
        lack_first = as_first[len(first) :] if self._encoder.kind.paired else ()
        lack_second = as_second[len(second) :]
        inputs = context_inputs(lack_first, Role.FIRST, target_speaker)
        inputs += context_inputs(lack_second, Role.SECOND, target_speaker)
        if not inputs:
            return first, second
        priority = Priority.TURN if len(inputs) <= _OF_A_TURN else Priority.LIST
        encoded = await self._encoder.encode(inputs, priority, self._timeout)
        new = encoded.astype(np.float16).astype(np.float32)
        border = len(lack_first)
        return np.concatenate([first, new[:border]]), np.concatenate([second, new[border:]])

    def _kept(self, history: History, target_speaker: str) -> tuple[Float32, Float32]:
        """Return those [B1] and [B2] of a history toward a speaker that its session keeps."""
        session = history.session
        if (
            session
            and session.fingerprint == self._encoder.fingerprint
            and session.responder == target_speaker
        ):
            return session.first, session.second
        return self.none, self.none

    @property
    def none(self) -> Float32:
        """(0, d): no vectors."""
        return np.empty((0, self._encoder.dimension), np.float32)


def context_inputs(said: Sequence[Utterance], role: Role, target_speaker: str) -> list[RoleText]:
    """Return utterances in a context role toward a target of one speaker."""
    return [
        RoleText(utterance.text, role, relation_to(utterance.speaker, target_speaker))
        for utterance in said
    ]


def chosen(asked: Aggregated, card: Aggregation) -> Aggregation:
    """Return the aggregation that a request asks for; what it leaves out says the model's card."""
    name = asked.aggregation or ("last_rows" if asked.last_rows else card.name)
    return Aggregation(name, asked.last_rows or card.last_rows)


def nothing_said(asked: OptionalContext) -> ServiceError:
    """Return the error of a history without an utterance, where it takes one."""
    if asked.session_id is None:
        return InvalidRequest.field("needs at least one utterance", "context")
    return Conflict(f"session '{asked.session_id}' has no utterance yet")


def session_not_found(session_id: str) -> SessionNotFound:
    """Return the error that names the session."""
    return SessionNotFound(f"there is no session '{session_id}': its first turn creates it")

"""The context of a request: reading it from a session, and encoding it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.roles import Role, RoleText, relation_to
from turnwise.models.scores import Aggregation
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.errors import Conflict, InvalidRequest, ServiceError
from turnwise.service.sessions.store import SessionKey, SessionStore
from turnwise.service.sessions.turns import Turn, utterances
from turnwise.service.sessions.update import NewVectors, Update
from turnwise.service.wire.fields import RESPONDER, Aggregated, OptionalContext

_TEXTS_OF_A_TURN = 8
"""Most texts that take the critical lane; a longer context that must be encoded again does not."""
_ROWS_AT_ONCE = 8
"""Most rows that are computed on the event loop: a thread would take longer to start."""


@dataclass(frozen=True, slots=True)
class Context:
    """The utterances before a reply, and the vectors that a session keeps of them.

    Attributes:
        utterances: All of them.
        responder: The speaker who will say the candidates.
        first: [B1] of the leading utterances, relative to the responder; maybe none.
        second: [B2] likewise.
    """

    utterances: tuple[Utterance, ...]
    responder: str
    first: Float32
    second: Float32

    @property
    def texts(self) -> list[str]:
        """Texts of the utterances."""
        return [utterance.text for utterance in self.utterances]


class Contexts:
    """Reads contexts, and encodes the parts that have no vectors yet.

    Vectors are rounded to float16, as Redis stores them, so that a session scores the same whether
    its vectors were kept or are computed again.
    """

    def __init__(self, sessions: SessionStore, encoder: CachedEncoder, *, timeout: float) -> None:
        self._sessions, self._encoder, self._timeout = sessions, encoder, timeout

    async def read(self, namespace: str, request: OptionalContext) -> Context:
        """Return the context that a request names or gives; an empty one without either.

        Raises:
            SessionNotFound: There is no such session.
        """
        if request.session_id is None:
            turns = [Turn(turn.speaker, turn.text, 0.0) for turn in request.context or ()]
            return Context(utterances(turns), RESPONDER, self._none, self._none)
        session = await self._sessions.found(SessionKey(namespace, request.session_id), second=True)
        valid = session.fingerprint == self._encoder.fingerprint
        return Context(
            utterances(session.turns),
            session.responder,
            session.first if valid else self._none,
            session.second if valid else self._none,
        )

    async def encode(self, context: Context, target_speaker: str) -> tuple[Float32, Float32]:
        """Return [B1] and [B2], both (n, d), relative to the speaker of a target.

        [B1] is (0, d) of an encoder without pairs. A session keeps vectors relative to its
        responder; for other speakers the context is encoded with the relations swapped.
        """
        said = context.utterances
        first, second = self._kept(context, target_speaker)
        new_first, new_second = await self._encoded(
            said[len(first) :], said[len(second) :], target_speaker
        )
        return np.concatenate([first, new_first]), np.concatenate([second, new_second])

    async def encode_first(self, context: Context, target_speaker: str) -> Float32:
        """Return [B1] as `encode` does, without encoding [B2]."""
        kept, _ = self._kept(context, target_speaker)
        new, _ = await self._encoded(context.utterances[len(kept) :], (), target_speaker)
        return np.concatenate([kept, new])

    async def encode_second(self, context: Context, target_speaker: str) -> Float32:
        """Return [B2] as `encode` does, without encoding [B1]."""
        _, kept = self._kept(context, target_speaker)
        _, new = await self._encoded((), context.utterances[len(kept) :], target_speaker)
        return np.concatenate([kept, new])

    async def encode_update(self, update: Update) -> NewVectors:
        """Encode the texts of an update and compute their rows."""
        first, second = await self._encoded(
            update.without_first, update.without_second, update.responder
        )
        if len(second) <= _ROWS_AT_ONCE:
            return update.new_vectors(first, second)
        return await asyncio.to_thread(update.new_vectors, first, second)

    async def encode_texts(self, texts: Sequence[RoleText]) -> Float32:
        """Return (n, d) vectors of the candidates and goals of a request."""
        return await self._encoder.encode(texts, Priority.LIST, self._timeout)

    async def _encoded(
        self, as_first: Sequence[Utterance], as_second: Sequence[Utterance], target_speaker: str
    ) -> tuple[Float32, Float32]:
        """Return [B1], (0, d) of an encoder without pairs, and [B2], encoded in one call."""
        if not self._encoder.kind.paired:
            as_first = ()
        inputs = context_inputs(as_first, Role.FIRST, target_speaker)
        inputs += context_inputs(as_second, Role.SECOND, target_speaker)
        if not inputs:
            return self._none, self._none
        priority = Priority.TURN if len(inputs) <= _TEXTS_OF_A_TURN else Priority.LIST
        encoded = await self._encoder.encode(inputs, priority, self._timeout)
        vectors = encoded.astype(np.float16).astype(np.float32)
        return vectors[: len(as_first)], vectors[len(as_first) :]

    def _kept(self, context: Context, target_speaker: str) -> tuple[Float32, Float32]:
        if target_speaker == context.responder:
            return context.first, context.second
        return self._none, self._none

    @property
    def _none(self) -> Float32:
        return np.empty((0, self._encoder.dimension), np.float32)


def context_inputs(said: Sequence[Utterance], role: Role, target_speaker: str) -> list[RoleText]:
    """Return utterances in a context role, relative to the speaker of a target."""
    return [
        RoleText(utterance.text, role, relation_to(utterance.speaker, target_speaker))
        for utterance in said
    ]


def aggregation_of(request: Aggregated, default: Aggregation) -> Aggregation:
    """Return the aggregation of a request; the model card has the default of each field."""
    name = request.aggregation or ("last_rows" if request.last_rows else default.name)
    return Aggregation(name, request.last_rows or default.last_rows)


def empty_context(request: OptionalContext) -> ServiceError:
    """Return the error for a context without an utterance, where one is needed."""
    if request.session_id is None:
        return InvalidRequest.field("needs at least one utterance", "context")
    return Conflict(f"session '{request.session_id}' has no utterance yet")

"""The context of a request: what a session keeps, and new vectors where it keeps none.

Those are the vectors of the newest utterance, or of all utterances after the model changed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.roles import (
    EncoderKind,
    Role,
    RoleText,
    candidate_inputs,
    context_inputs,
    read_as,
)
from turnwise.models.scores import Aggregation, KeptRows, rows
from turnwise.service.encoder.cache import HEADS_AT_ONCE, CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.errors import Conflict, InvalidRequest, ServiceError
from turnwise.service.sessions.store import SessionKey, SessionStore
from turnwise.service.sessions.turns import Turn, utterances
from turnwise.service.sessions.update import NewVectors, Update
from turnwise.service.wire.fields import RESPONDER, Aggregated, OptionalContext, Repeat
from turnwise.service.wire.filters import Where

_TEXTS_OF_A_TURN = 8
"""Most texts that are encoded as a turn. A longer context that must be encoded again goes after
turns, as a list of texts."""
_ROWS_AT_ONCE = 8
"""Most rows that are computed on the event loop: a thread would take longer to start."""


@dataclass(frozen=True, slots=True)
class Context:
    """The utterances before a reply, and the vectors that a session keeps of them.

    Attributes:
        utterances: All of them.
        responder: The speaker who will say the candidates.
        first: [B1] of the first utterances, relative to the responder; maybe of none.
        encoded: [B2] of the first utterances; maybe of none. Those of a model with heads are
            relative to another speaker, and heads compute the other roles from them.
        turns: The turns that the utterances join.
        where: The filter of the session; None matches all candidates.
    """

    utterances: tuple[Utterance, ...]
    responder: str
    first: Float32
    encoded: Float32
    turns: Sequence[Turn]
    where: Where | None = None

    @property
    def texts(self) -> list[str]:
        """Texts of the utterances."""
        return [utterance.text for utterance in self.utterances]


@dataclass(frozen=True, slots=True)
class EncodedContext:
    """A context of n utterances with its vectors.

    Attributes:
        texts: Of its utterances.
        rows: Of all of them.
        first: (n or n - 1, d) [B1]; (0, d) where no pairs were asked for, or the model has none.
        second: (n, d) [B2]; (0, d) where no pairs were asked for.
    """

    texts: list[str]
    rows: KeptRows
    first: Float32
    second: Float32

    def query(self, aggregation: Aggregation) -> Float32:
        """Return the running query (d,); more than `ROWS_KEPT` last rows need the pairs."""
        query = self.rows.query(aggregation.summed)
        return aggregation.query(self.first, self.second) if query is None else query

    @property
    def pairs(self) -> tuple[Float32, Float32]:
        """[B1] and [B2], both (n, d); [B1] of the last utterance is zero, as it is in no pair."""
        missing = len(self.second) - len(self.first) if len(self.first) else 0
        return np.pad(self.first, ((0, missing), (0, 0))), self.second


@dataclass(frozen=True, slots=True)
class Said:
    """The replies of a session that must not be offered again.

    Attributes:
        texts: k texts of the responder's turns.
        after: (k, d) their [AFTER], if candidates close to them must not be offered either; else
            (0, d).
    """

    texts: frozenset[str]
    after: Float32


class Contexts:
    """Reads contexts, and encodes the parts that have no vectors yet.

    Vectors are rounded to float16, as Redis stores them, so that a session scores the same whether
    its vectors were kept or are computed again.
    """

    def __init__(self, sessions: SessionStore, encoder: CachedEncoder, *, timeout: float) -> None:
        self._sessions, self._encoder, self._timeout = sessions, encoder, timeout
        self._heads = encoder.kind is EncoderKind.HEADS

    async def read(self, namespace: str, request: OptionalContext) -> Context:
        """Return the context that a request names or gives; an empty one without either.

        Raises:
            SessionNotFound: There is no such session.
        """
        if request.session_id is None:
            turns = [Turn(turn.speaker, turn.text, 0.0) for turn in request.context or ()]
            return Context(utterances(turns), RESPONDER, self._none, self._none, turns)
        key = SessionKey(namespace, request.session_id)
        session = await self._sessions.found(key, encoded=True)
        return Context(
            utterances(session.turns),
            session.responder,
            session.first,
            session.encoded,
            session.turns,
            session.where,
        )

    async def encode(self, context: Context, target_speaker: str) -> tuple[Float32, Float32]:
        """Return [B1] and [B2], both (n, d), relative to the speaker of a target.

        [B1] is (0, d) of an encoder without pairs. A session keeps vectors relative to its
        responder. For other speakers, a model with prefixes encodes the context again with the
        relations swapped; a model with heads does not.
        """
        said = context.utterances
        first, encoded = self._kept(context, target_speaker)
        new_first, new = await self._encoded(
            said[len(first) :], said[len(encoded) :], target_speaker
        )
        first, encoded = np.concatenate([first, new_first]), np.concatenate([encoded, new])
        if self._heads and len(said) > HEADS_AT_ONCE:
            return await asyncio.to_thread(self._pairs, said, first, encoded, target_speaker)
        return self._pairs(said, first, encoded, target_speaker)

    async def encode_first(self, context: Context, target_speaker: str) -> Float32:
        """Return [B1] as `encode` does, without encoding [B2]."""
        if not self._encoder.kind.encodes_first:
            return (await self.encode(context, target_speaker))[0]
        kept, _ = self._kept(context, target_speaker)
        new, _ = await self._encoded(context.utterances[len(kept) :], (), target_speaker)
        return np.concatenate([kept, new])

    async def encode_newest(self, context: Context, target_speaker: str, count: int) -> Float32:
        """Return [B2] of the last `count` utterances, as `encode` does, and encode no others."""
        start = max(0, len(context.utterances) - count)
        _, kept = self._kept(context, target_speaker)
        said, kept = context.utterances[start:], kept[start:]
        _, new = await self._encoded((), said[len(kept) :], target_speaker)
        return self._in_role(Role.SECOND, said, np.concatenate([kept, new]), target_speaker)

    async def encode_update(self, update: Update) -> NewVectors:
        """Encode the texts of an update and compute the rows after it.

        [B1] of the newest utterance is among the vectors if it is in the cache.
        """
        as_first, newest = update.without_first, update.newest_without_first
        if self._encoder.knows(context_inputs(newest, Role.FIRST, update.responder)):
            as_first += newest
        first, encoded = await self._encoded(as_first, update.not_encoded, update.responder)
        if self._is_quick(update):
            return self._with_rows(update, first, encoded)
        return await asyncio.to_thread(self._with_rows, update, first, encoded)

    async def context(self, update: Update, new: NewVectors, *, pairs: bool) -> EncodedContext:
        """Return the whole context of an update; its [B1] and [B2] only where `pairs` are asked."""
        assert new.rows is not None  # noqa: S101 - `encode_update` computed them
        first, second = self._none, self._none
        if pairs:
            said, speaker = update.utterances, update.responder
            first, encoded = update.first(new.first), update.encoded(new.encoded)
            first, second = await asyncio.to_thread(self._pairs, said, first, encoded, speaker)
        texts = [utterance.text for utterance in update.utterances]
        return EncodedContext(texts, new.rows, first, second)

    async def said(self, turns: Sequence[Turn], responder: str, repeat: Repeat) -> Said:
        """Return what the responder has said in these turns and must not be offered again."""
        if repeat is True:
            return Said(frozenset(), self._none)
        texts = frozenset(turn.text for turn in turns if turn.speaker == responder)
        if repeat != "near" or not texts:
            return Said(texts, self._none)
        return Said(texts, await self.encode_texts(candidate_inputs(texts)))

    def reads_vectors(self, *, pairs: bool) -> bool:
        """Return whether a turn needs a session's vectors: for pairs, and with heads always."""
        return pairs or self._heads

    async def encode_texts(self, texts: Sequence[RoleText]) -> Float32:
        """Return (n, d) vectors of the candidates and goals of a request."""
        return await self._encoder.encode(texts, Priority.LIST, self._timeout)

    async def encode_candidates(self, items: Sequence[RoleText], after: Float32 | None) -> Float32:
        """Return (C, d) [B2] of candidates.

        Heads estimate them from `after`, the (C, d) vectors of a pool, without encoding anything.
        """
        if after is None or not self._heads:
            return await self.encode_texts(items)
        supposed = [RoleText(item.text, Role.SUPPOSED, item.relation) for item in items]
        return await self._encoder.suppose(supposed, after)

    async def _encoded(
        self, as_first: Sequence[Utterance], as_second: Sequence[Utterance], target_speaker: str
    ) -> tuple[Float32, Float32]:
        """Return the vectors that a session keeps, encoded in one call.

        They are [B1], (0, d) of an encoder that does not encode it, and [B2].
        """
        if not self._encoder.kind.encodes_first:
            as_first = ()
        inputs = context_inputs(as_first, Role.FIRST, target_speaker)
        if self._heads:
            inputs += [RoleText(said.text, *read_as(Role.SECOND)) for said in as_second]
        else:
            inputs += context_inputs(as_second, Role.SECOND, target_speaker)
        if not inputs:
            return self._none, self._none
        priority = Priority.TURN if len(inputs) <= _TEXTS_OF_A_TURN else Priority.LIST
        encoded = await self._encoder.encode(inputs, priority, self._timeout)
        vectors = encoded.astype(np.float16).astype(np.float32)
        return vectors[: len(as_first)], vectors[len(as_first) :]

    def _kept(self, context: Context, target_speaker: str) -> tuple[Float32, Float32]:
        if target_speaker == context.responder or self._heads:
            return context.first, context.encoded
        return self._none, self._none

    def _pairs(
        self, said: Sequence[Utterance], first: Float32, encoded: Float32, target_speaker: str
    ) -> tuple[Float32, Float32]:
        """Return [B1] and [B2] of utterances from the vectors that a session keeps."""
        if self._heads:
            first = self._in_role(Role.FIRST, said, encoded, target_speaker)
        return first, self._in_role(Role.SECOND, said, encoded, target_speaker)

    def _in_role(
        self, role: Role, said: Sequence[Utterance], encoded: Float32, target_speaker: str
    ) -> Float32:
        return self._encoder.in_roles(encoded, context_inputs(said, role, target_speaker))

    def _is_quick(self, update: Update) -> bool:
        if self._heads:
            return len(update.utterances) <= HEADS_AT_ONCE
        return len(update.not_encoded) <= _ROWS_AT_ONCE

    def _with_rows(self, update: Update, first: Float32, encoded: Float32) -> NewVectors:
        said, speaker = update.utterances, update.responder
        before = update.kept_rows or KeptRows.none(
            self._encoder.dimension, paired=self._encoder.kind.paired
        )
        start = before.count
        whole_first = update.first(first)
        if self._heads:
            earlier = update.encoded(encoded)[: len(said) - 1]
            whole_first = self._in_role(Role.FIRST, said[:-1], earlier, speaker)
        second = self._in_role(Role.SECOND, said[start:], update.encoded(encoded, start), speaker)
        return NewVectors(first, encoded, before.then(rows(whole_first, second, start)))

    @property
    def _none(self) -> Float32:
        return np.empty((0, self._encoder.dimension), np.float32)


def aggregation_of(request: Aggregated, default: Aggregation) -> Aggregation:
    """Return the aggregation of a request; the model card has the default of each field."""
    name = request.aggregation or ("last_rows" if request.last_rows else default.name)
    return Aggregation(name, request.last_rows or default.last_rows)


def empty_context(request: OptionalContext) -> ServiceError:
    """Return the error for a context without an utterance, where one is needed."""
    if request.session_id is None:
        return InvalidRequest.field("needs at least one utterance", "context")
    return Conflict(f"session '{request.session_id}' has no utterance yet")

"""The context of a request: the vectors that its session keeps, and new ones where it keeps none.

A plain turn needs new vectors of its newest utterance; after a change of the model all utterances
are encoded again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.roles import (
    EncoderKind,
    Relation,
    Role,
    RoleText,
    context_inputs,
    said_inputs,
)
from turnwise.models.scores import Aggregation, KeptRows, rows
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.cache import HEADS_AT_ONCE, CachedEncoder
from turnwise.service.errors import Conflict, InvalidRequest, ServiceError
from turnwise.service.sessions.responder import choose_responder, name_speaker
from turnwise.service.sessions.store import SessionKey, SessionStore
from turnwise.service.sessions.turns import Turn, join_turns
from turnwise.service.sessions.update import NewVectors, Update
from turnwise.service.wire.fields import RESPONDER, USER, Aggregated, OptionalContext
from turnwise.service.wire.filters import Where

_TEXTS_OF_A_TURN = 8
"""Most texts that are encoded with the priority of a turn. More texts, such as a long context that
must be encoded again, wait behind turns."""
_ROWS_AT_ONCE = 8
"""Most rows that are computed on the event loop: a thread would take longer to start."""


@dataclass(frozen=True, slots=True)
class Context:
    """The utterances before a reply, and the vectors that a session keeps of them.

    Attributes:
        utterances: n utterances, oldest first.
        responder: The speaker who will say the candidates.
        first: (k, d) [B1] of the first k ≤ n utterances, relative to the responder.
        encoded: (m, d) [B2] of the first m ≤ n utterances. A model with heads keeps them as it
            reads them, and its heads compute [B1] and [B2] from them.
        turns: The turns that the utterances join.
        where: The filter of the session; None matches all candidates.
        slots: The values of the session for slots.
    """

    utterances: tuple[Utterance, ...]
    responder: str
    first: Float32
    encoded: Float32
    turns: Sequence[Turn]
    where: Where | None = None
    slots: Mapping[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The texts of the utterances."""
        return [utterance.text for utterance in self.utterances]

    def name_speaker(self, speaker: str | None) -> str:
        """Return a speaker's name as this context has it; None means the responder."""
        return name_speaker(speaker or self.responder, self.responder)


@dataclass(frozen=True, slots=True)
class EncodedContext:
    """A context of n utterances with its vectors.

    Attributes:
        utterances: Its utterances, oldest first.
        responder: The speaker who will say the candidates.
        rows: Their rows; None where the running query is computed from the pairs.
        first: (n or n - 1, d) [B1]; (0, d) where no pairs were asked for, or the model has none.
        second: (n, d) [B2]; (0, d) where no pairs were asked for.
        said: (d,) the newest utterance in the space of examples; None where the responder said it,
            or the context has no vectors.
    """

    utterances: Sequence[Utterance]
    responder: str
    rows: KeptRows | None
    first: Float32
    second: Float32
    said: Float32 | None = None

    @property
    def texts(self) -> list[str]:
        """The texts of the utterances."""
        return [utterance.text for utterance in self.utterances]

    def query(self, aggregation: Aggregation) -> Float32:
        """Return the running query (d,), from the rows if they are enough, else from the pairs."""
        query = self.rows.query(aggregation.summed) if self.rows else None
        return aggregation.query(self.first, self.second) if query is None else query

    @property
    def pairs(self) -> tuple[Float32, Float32]:
        """[B1] and [B2], both (n, d); [B1] of the last utterance is zero, as it is in no pair."""
        missing = len(self.second) - len(self.first) if len(self.first) else 0
        return np.pad(self.first, ((0, missing), (0, 0))), self.second


class Contexts:
    """Reads contexts, and encodes the parts that have no vectors yet.

    | method | encodes [B1] of | encodes [B2] of | relative to |
    |---|---|---|---|
    | `encode_pairs` | all utterances | all utterances | any speaker |
    | `encode_context` | all utterances | all utterances | the responder |
    | `encode_first` | all utterances | none | any speaker |
    | `encode_second` | none | the last utterances | any speaker |
    | `encode_for_heads` | none | all utterances; none without heads | another speaker |
    | `encode_utterance` | none | a single utterance | another speaker |
    | `encode_update` | all; the newest if it is cached | all utterances | the responder |

    With heads all of them encode an utterance once, in the role `SAID`, and the heads compute [B1]
    and [B2]. What a session keeps is not encoded again. `encode_texts` and `encode_candidates`
    encode texts outside of the context.

    Vectors are rounded to float16, as Redis stores them, so that a session scores the same whether
    its vectors were kept or are computed again.

    Attributes:
        model: The name of the model that encodes them.
        has_heads: Whether the model has heads.
    """

    def __init__(self, sessions: SessionStore, encoder: CachedEncoder, *, timeout: float) -> None:
        self.model = encoder.name
        self.has_heads = encoder.kind is EncoderKind.HEADS
        self._sessions = sessions
        self._encoder = encoder
        self._timeout = timeout

    def choose_aggregation(self, request: Aggregated) -> Aggregation:
        """Return the aggregation of a request; the model card has the default of each field."""
        default = self._encoder.aggregation
        name = request.aggregation or ("last_rows" if request.last_rows else default.name)
        return Aggregation(name, request.last_rows or default.last_rows)

    async def read(self, namespace: str, request: OptionalContext) -> Context:
        """Return the context that a request names or gives; an empty one without either.

        Raises:
            SessionNotFound: There is no such session.
        """
        if request.session_id is None:
            given = request.context or []
            responder = choose_responder(RESPONDER, [turn.speaker for turn in given])
            turns = [Turn(name_speaker(each.speaker, responder), each.text, 0.0) for each in given]
            return Context(join_turns(turns), responder, self._no_vectors, self._no_vectors, turns)
        key = SessionKey(namespace, request.session_id)
        session = await self._sessions.find(key, encoded=True)
        return Context(
            join_turns(session.turns),
            session.responder,
            session.first,
            session.encoded,
            session.turns,
            session.where,
            session.slots,
        )

    async def encode_pairs(self, context: Context, target_speaker: str) -> tuple[Float32, Float32]:
        """Return [B1] and [B2], both (n, d), relative to the speaker of a target.

        An encoder without pairs has no [B1], so it is (0, d). A session keeps vectors relative to
        its responder. For another speaker, a model with prefixes encodes the context again, with
        other relations; a model with heads does not.
        """
        utterances = context.utterances
        first, encoded = await self._encode_missing(context, target_speaker)
        return await self._compute_pairs(utterances, first, encoded, target_speaker)

    async def encode_first(self, context: Context, target_speaker: str) -> Float32:
        """Return [B1] (n, d) as `encode_pairs` does, without encoding [B2]."""
        if not self._encoder.kind.encodes_first:
            return (await self.encode_pairs(context, target_speaker))[0]
        first, _ = await self._encode_missing(
            context, target_speaker, skip_second=len(context.utterances)
        )
        return first

    async def encode_second(self, context: Context, target_speaker: str, count: int) -> Float32:
        """Return [B2] (count, d) of the last utterances as `encode_pairs` does, and no others."""
        said = context.utterances
        start = max(0, len(said) - count)
        _, encoded = await self._encode_missing(
            context, target_speaker, skip_first=len(said), skip_second=start
        )
        return self._compute_role(Role.SECOND, said[start:], encoded, target_speaker)

    async def encode_for_heads(self, context: Context) -> Context:
        """Return a context with all vectors that heads need; unchanged if the model has no heads.

        From these the heads compute [B1] and [B2] relative to any speaker.
        """
        if not self.has_heads:
            return context
        _, encoded = await self._encode_missing(context, context.responder)
        return replace(context, encoded=encoded)

    async def encode_context(self, context: Context) -> EncodedContext:
        """Return a context with its pairs relative to its responder, without rows."""
        utterances = context.utterances
        responder = context.responder
        first, encoded = await self._encode_missing(context, responder)
        said = self._newest_said(utterances, responder, encoded)
        first, second = await self._compute_pairs(utterances, first, encoded, responder)
        return EncodedContext(utterances, responder, None, first, second, said)

    async def encode_utterance(self, text: str) -> EncodedContext:
        """Return the context of one utterance by another speaker than the responder."""
        inputs = [RoleText(text, Role.SECOND, Relation.OTHER), *said_inputs([text])]
        second, said = np.split(await self._encoder.encode(inputs, timeout=self._timeout), 2)
        utterances = [Utterance(USER, text)]
        placed = self._encoder.as_examples(said)[0]
        return EncodedContext(utterances, RESPONDER, None, self._no_vectors, second, placed)

    def _newest_said(
        self, utterances: Sequence[Utterance], responder: str, encoded: Float32
    ) -> Float32 | None:
        """Return the newest utterance (d,) in the space of examples.

        Args:
            utterances: The utterances of the context.
            responder: The speaker who will say the candidates.
            encoded: The last utterances as a session keeps them, the newest at the end.

        Returns:
            None if the responder said the newest utterance, or it has no vector.
        """
        if not len(encoded) or not utterances or utterances[-1].speaker == responder:
            return None
        newest: Float32 = self._encoder.as_examples(encoded[-1:])[0]
        return newest

    def without_vectors(
        self, utterances: Sequence[Utterance], responder: str = RESPONDER
    ) -> EncodedContext:
        """Return a context of texts alone, which is all that a pairwise pool needs."""
        return EncodedContext(utterances, responder, None, self._no_vectors, self._no_vectors)

    async def encode_update(self, update: Update) -> NewVectors:
        """Encode the texts of an update and compute the rows after it.

        [B1] of the newest utterance is among the vectors if it is in the cache.
        """
        as_first = update.without_first
        newest = update.newest_without_first
        if self._encoder.knows(context_inputs(newest, Role.FIRST, update.responder)):
            as_first += newest
        first, encoded = await self._encode(as_first, update.not_encoded, update.responder)
        if self.has_heads:
            is_quick = len(update.utterances) <= HEADS_AT_ONCE
        else:
            is_quick = len(update.not_encoded) <= _ROWS_AT_ONCE
        if is_quick:
            return self._add_rows(update, first, encoded)
        return await asyncio.to_thread(self._add_rows, update, first, encoded)

    def keep_rows(self, update: Update) -> NewVectors:
        """Return no new vectors, and the rows that an update keeps: it encodes nothing."""
        return replace(NewVectors.none(self._encoder.dimension), rows=update.kept_rows)

    async def complete(self, update: Update, new: NewVectors, *, pairs: bool) -> EncodedContext:
        """Return the whole context of an update, with its [B1] and [B2] if pairs are needed.

        Args:
            update: The update.
            new: The vectors that `encode_update` returned for it.
            pairs: Whether the rows are not enough.
        """
        utterances = update.utterances
        responder = update.responder
        first = self._no_vectors
        second = self._no_vectors
        if pairs:
            kept = update.first(new.first)
            encoded = update.encoded(new.encoded)
            first, second = await self._compute_pairs(utterances, kept, encoded, responder)
        said = self._newest_said(utterances, responder, new.encoded)
        return EncodedContext(utterances, responder, new.rows, first, second, said)

    async def is_truncated(self, utterance: Utterance) -> bool:
        """Return whether an utterance is longer than what the model reads of it."""
        return await self._encoder.is_too_long(RoleText(utterance.text, Role.SAID))

    def reads_vectors(self, *, pairs: bool) -> bool:
        """Return whether a turn needs a session's vectors: for pairs, and with heads always."""
        return pairs or self.has_heads

    async def encode_texts(self, texts: Sequence[RoleText]) -> Float32:
        """Return (n, d) vectors of the candidates and goals of a request."""
        return await self._encoder.encode(texts, Priority.LIST, self._timeout)

    async def encode_candidates(self, inputs: Sequence[RoleText], after: Float32 | None) -> Float32:
        """Return (C, d) [B2] of candidates.

        Heads estimate them from `after`, the (C, d) vectors of a pool, without encoding anything.
        """
        if after is None or not self.has_heads:
            return await self.encode_texts(inputs)
        supposed = [RoleText(text.text, Role.SUPPOSED, text.relation) for text in inputs]
        return await self._encoder.estimate(after, supposed)

    async def _encode(
        self, as_first: Sequence[Utterance], as_second: Sequence[Utterance], target_speaker: str
    ) -> tuple[Float32, Float32]:
        """Encode the vectors that a session keeps, in one call.

        Returns:
            [B1] of `as_first`, (0, d) of an encoder that does not encode it; and [B2] of
            `as_second`.
        """
        if not self._encoder.kind.encodes_first:
            as_first = ()
        inputs = context_inputs(as_first, Role.FIRST, target_speaker)
        if self.has_heads:
            inputs += said_inputs(each.text for each in as_second)
        else:
            inputs += context_inputs(as_second, Role.SECOND, target_speaker)
        if not inputs:
            return self._no_vectors, self._no_vectors
        priority = Priority.TURN if len(inputs) <= _TEXTS_OF_A_TURN else Priority.LIST
        encoded = await self._encoder.encode(inputs, priority, self._timeout)
        vectors = encoded.astype(np.float16).astype(np.float32)
        return vectors[: len(as_first)], vectors[len(as_first) :]

    async def _encode_missing(
        self, context: Context, target_speaker: str, *, skip_first: int = 0, skip_second: int = 0
    ) -> tuple[Float32, Float32]:
        """Return the [B1] and [B2] that a session keeps, and encode those that it lacks.

        Args:
            context: n utterances.
            target_speaker: The speaker to whom the vectors are relative.
            skip_first: Number of the oldest utterances whose [B1] is not needed.
            skip_second: Number of the oldest utterances whose [B2] is not needed.
        """
        said = context.utterances
        first = self._no_vectors
        second = self._no_vectors
        if target_speaker == context.responder or self.has_heads:
            first = context.first[skip_first:]
            second = context.encoded[skip_second:]
        as_first = said[skip_first + len(first) :]
        as_second = said[skip_second + len(second) :]
        new_first, new_second = await self._encode(as_first, as_second, target_speaker)
        return np.concatenate([first, new_first]), np.concatenate([second, new_second])

    async def _compute_pairs(
        self, utterances: Sequence[Utterance], first: Float32, encoded: Float32, target_speaker: str
    ) -> tuple[Float32, Float32]:
        """Return [B1] and [B2] of utterances from the vectors that a session keeps.

        Heads compute those of many utterances in a thread.
        """
        if not self.has_heads:
            return first, encoded
        if len(utterances) <= HEADS_AT_ONCE:
            return self._apply_heads(utterances, encoded, target_speaker)
        return await asyncio.to_thread(self._apply_heads, utterances, encoded, target_speaker)

    def _apply_heads(
        self, utterances: Sequence[Utterance], encoded: Float32, target_speaker: str
    ) -> tuple[Float32, Float32]:
        first = self._compute_role(Role.FIRST, utterances, encoded, target_speaker)
        return first, self._compute_role(Role.SECOND, utterances, encoded, target_speaker)

    def _compute_role(
        self, role: Role, utterances: Sequence[Utterance], encoded: Float32, target_speaker: str
    ) -> Float32:
        return self._encoder.in_roles(encoded, context_inputs(utterances, role, target_speaker))

    def _add_rows(self, update: Update, first: Float32, encoded: Float32) -> NewVectors:
        """Return the new vectors of an update with the rows of all its utterances."""
        utterances = update.utterances
        before = update.kept_rows
        if before is None:
            paired = self._encoder.kind.paired
            before = KeptRows.none(self._encoder.dimension, paired=paired)
        start = before.count
        second = self._compute_role(
            Role.SECOND, utterances[start:], update.encoded(encoded, start), update.responder
        )
        if self.has_heads:
            earlier = update.encoded(encoded)[: len(utterances) - 1]
            all_first = self._compute_role(Role.FIRST, utterances[:-1], earlier, update.responder)
        else:
            all_first = update.first(first)
        return NewVectors(first, encoded, before.then(rows(all_first, second, start)))

    @property
    def _no_vectors(self) -> Float32:
        return np.empty((0, self._encoder.dimension), np.float32)


def empty_context(request: OptionalContext) -> ServiceError:
    """Return the error for a context without an utterance, where one is needed."""
    if request.session_id is None:
        return InvalidRequest.field("needs at least one utterance", "context")
    return Conflict(f"session '{request.session_id}' has no utterance yet")

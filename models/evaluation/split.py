"""`Split`: the contexts and candidates of an evaluation; `encode_split` encodes both."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Dialogue, Record, Utterance, merge_runs, read_utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.metrics import Indices
from turnwise.models.roles import Role, RoleText, candidate_inputs, context_inputs
from turnwise.models.texts import write_count

LENGTHS = range(2, 11)
"""Utterances of the contexts that are measured, unless a task says otherwise."""

Propose = Callable[[Dialogue, int], Iterable[str]]
"""Takes a dialogue and the length of a context; returns texts that might come next."""


@dataclass(frozen=True, slots=True)
class Context:
    """Utterances, and the one that follows them or may follow them.

    Attributes:
        utterances: The utterances before, oldest first.
        target: The utterance after them.
        dialogue_id: The id of their dialogue, if it is known.
    """

    utterances: tuple[Utterance, ...]
    target: Utterance
    dialogue_id: str | None = None

    @property
    def texts(self) -> list[str]:
        """The texts of the utterances, oldest first."""
        return [said.text for said in self.utterances]

    def inputs(self, role: Role) -> list[RoleText]:
        """Return the utterances as an encoder reads them before this target."""
        return context_inputs(self.utterances, role, self.target.speaker)


@dataclass(frozen=True, slots=True)
class Split:
    """Contexts of all lengths, and the distinct texts that they are scored against.

    Attributes:
        contexts: N contexts.
        pool: Distinct texts.
        true: (N,) index in the pool of each context's true next utterance.
    """

    contexts: tuple[Context, ...]
    pool: tuple[str, ...]
    true: Indices

    @property
    def lengths(self) -> Indices:
        """The number of utterances of each context, (N,)."""
        return np.array([len(context.utterances) for context in self.contexts])

    @property
    def dialogues(self) -> Indices:
        """The number of the dialogue of each context, (N,).

        Contexts without an id count as one dialogue if they begin with the same utterances, as many
        as the shortest context has.
        """
        shortest = self.lengths.min()
        number: dict[str | tuple[Utterance, ...], int] = {}
        names = (
            context.utterances[:shortest] if context.dialogue_id is None else context.dialogue_id
            for context in self.contexts
        )
        return np.array([number.setdefault(name, len(number)) for name in names])


def make_split(
    dialogues: Iterable[Dialogue], lengths: Sequence[int] = LENGTHS, *, full_pool: bool = True
) -> Split:
    """Collect the contexts of all lengths.

    Args:
        dialogues: The dialogues of a split.
        lengths: Lengths of contexts; a dialogue longer than a length gives a context.
        full_pool: Put every distinct utterance into the pool, not only those that come next in
            some context.

    Raises:
        TurnwiseError: No dialogue is longer than the shortest context.
    """
    dialogues = list(dialogues)
    contexts = [
        Context(dialogue.utterances[:h], dialogue.utterances[h], dialogue.id)
        for h in lengths
        for dialogue in dialogues
        if len(dialogue.utterances) > h
    ]
    if not contexts:
        raise TurnwiseError(f"no dialogue is longer than {write_count(min(lengths), 'utterance')}")
    more = [said.text for dialogue in dialogues for said in dialogue.utterances]
    return split_of(contexts, more if full_pool else ())


def split_of(contexts: Sequence[Context], more: Iterable[str] = ()) -> Split:
    """Return contexts over a pool of their targets and of more texts."""
    targets = [context.target.text for context in contexts]
    index_of = {text: index for index, text in enumerate(dict.fromkeys([*targets, *more]))}
    return Split(tuple(contexts), tuple(index_of), np.array([index_of[text] for text in targets]))


def read_context(record: Record, field: str) -> tuple[Utterance, ...]:
    """Return a context that is not empty; where speakers are not given, they alternate.

    An utterance is a text or `{"speaker", "text"}`; consecutive ones of a speaker become one.

    Raises:
        DataError: The field holds something else.
    """
    items = enumerate(record.items(field))
    return merge_runs(said_at(record, f"{field}[{n}]", item, "AB"[n % 2]) for n, item in items)


def said_at(record: Record, field: str, value: object, speaker: str) -> Utterance:
    """Return the utterance that a field holds, of `speaker` where it names none.

    Raises:
        DataError: The field holds something else.
    """
    if not isinstance(value, dict):
        return Utterance(speaker, record.as_text(field, value))
    said = read_utterance(replace(record, fields=value, path=f"{record.path}{field}."))
    return Utterance(said.speaker, record.as_text(f"{field}.text", said.text))


def next_speaker(context: Sequence[Utterance]) -> str:
    """Return the speaker before the last one, or a new name if nobody else has spoken."""
    last = context[-1].speaker
    others = (said.speaker for said in reversed(context) if said.speaker != last)
    return next(others, "A" if last == "B" else "B")


class VectorTable:
    """Looks up vectors that were encoded beforehand, in one call."""

    def __init__(
        self, encoder: UtteranceEncoder, needed: Iterable[RoleText], *, to_mix: bool = False
    ) -> None:
        """Encode the inputs, as `encode_in_roles` does, or as `encode_to_mix`."""
        self._index_of = {item: index for index, item in enumerate(dict.fromkeys(needed))}
        encode = encoder.encode_to_mix if to_mix else encoder.encode_in_roles
        self._vectors = encode(list(self._index_of))

    def __getitem__(self, items: Sequence[RoleText]) -> Float32:
        """Return the (n, d) vectors of n inputs."""
        return self._vectors[[self._index_of[item] for item in items]]


@dataclass(frozen=True, slots=True)
class EncodedSplit:
    """A split in the vectors of one encoder.

    Attributes:
        encoder: The encoder.
        split: The split that was encoded.
        vectors: (pool, d) of the pool.
        first: For each context its b1 (h, d); (0, d) of an encoder that forms no pairs.
        second: For each context its b2 (h, d), or b of CCL, or the plain vectors.
        to_mix: For each context its b1 and b2 as they are mixed in pairs: the same, or raw.
    """

    encoder: UtteranceEncoder
    split: Split
    vectors: Float32
    first: tuple[Float32, ...]
    second: tuple[Float32, ...]
    to_mix: tuple[tuple[Float32, Float32], ...]


def encode_split(encoder: UtteranceEncoder, split: Split) -> EncodedSplit:
    """Encode the pool and all contexts, in one call."""
    second = [context.inputs(Role.SECOND) for context in split.contexts]
    first = [
        context.inputs(Role.FIRST) if encoder.kind.paired else [] for context in split.contexts
    ]
    after = candidate_inputs(split.pool)
    needed = [item for items in second + first for item in items]
    table = VectorTable(encoder, [*after, *needed])
    mixed = table if encoder.mixing == "unit" else VectorTable(encoder, needed, to_mix=True)
    return EncodedSplit(
        encoder=encoder,
        split=split,
        vectors=table[after],
        first=tuple(table[items] for items in first),
        second=tuple(table[items] for items in second),
        to_mix=tuple((mixed[b1], mixed[b2]) for b1, b2 in zip(first, second, strict=True)),
    )

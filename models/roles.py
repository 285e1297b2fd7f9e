"""Roles, relations and kinds of encoder, and the prefix that each puts before a text.

The prefixes are those of the public CCL and C3L checkpoints, so that these load unchanged: their
files, their tokens and the kind that follows from these. Their vectors become unit vectors before
they are mixed; the published evaluation mixes them as they are, which a card can ask for
(`card.Card.mixing`).

An encoder with heads reads a text in one of two roles, `SAID` and `AFTER`, and computes the other
roles from its vector (`head_arrays.py`).
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from turnwise.models.data import Utterance
from turnwise.models.errors import ModelError


class Role(StrEnum):
    """The part that a text plays in a score."""

    AFTER = "after"
    """Candidate, goal or target."""
    FIRST = "first"
    """Context utterance, first of a pair (b1 of C3L eq. 3)."""
    SECOND = "second"
    """Context utterance, second of a pair, and alone (b2 of C3L eq. 3; b of CCL)."""
    SAID = "said"
    """Utterance of the other speaker, as it is compared with other utterances: an example. From its
    vector heads compute [B1] and [B2] of any speaker. Its prefix is that of [B2]."""
    SUPPOSED = "supposed"
    """[B2] of a candidate (b2 of r in C3L eq. 4), as heads estimate it from the candidate's
    [AFTER]. An encoder without heads reads it as [B2]."""


class Relation(StrEnum):
    """The relation of an utterance's speaker to the speaker of the target (CCL eq. 5)."""

    SAME = "E"
    """The same speaker: an even distance from the target when two people alternate."""
    OTHER = "O"
    """Any other speaker: an odd distance when two people alternate."""


class RoleText(NamedTuple):
    """A text to encode, its role, and the relation of its speaker to the target's."""

    text: str
    role: Role
    relation: Relation | None = None


class EncoderKind(StrEnum):
    """The kinds of encoders: which roles and relations each distinguishes, and how.

    A file of heads in a model's folder makes it `heads`. The vocabulary decides between the others:
    a model is of the first kind whose tokens it has.
    """

    TRIPLE = "triple"
    """C3L: two context roles with speaker tokens, and the target role."""
    HEADS = "heads"
    """C3L's roles and relations; heads compute most of them from the vectors of others."""
    TRIPLE_WITHOUT_SPEAKERS = "triple-without-speakers"
    """C3L: two context roles, and the target role, for texts that nobody in particular says."""
    CURVED = "curved"
    """CCL: one context role with speaker tokens, and the target role."""
    CURVED_WITHOUT_SPEAKERS = "curved-without-speakers"
    """CCL: one context role, and the target role."""
    SINGLE = "single"
    """A plain sentence encoder: one space, no prefixes."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The special tokens in the prefixes of this kind."""
        return _TOKENS[self]

    @property
    def paired(self) -> bool:
        """Whether a context is scored by pairs of its utterances instead of single ones."""
        return self.encodes_first or self is EncoderKind.HEADS

    @property
    def encodes_first(self) -> bool:
        """Whether [B1] of an utterance takes a pass of the encoder of its own."""
        return self in {EncoderKind.TRIPLE, EncoderKind.TRIPLE_WITHOUT_SPEAKERS}

    @property
    def prefixes(self) -> bool:
        """Whether the model reads a text with a prefix."""
        return bool(self.tokens)


_TRIPLE = ("[AFTER]", "[BEFORE]", "[B1]", "[B2]", "[E]", "[O]")
_TOKENS = {
    EncoderKind.TRIPLE: _TRIPLE,
    EncoderKind.HEADS: _TRIPLE,
    EncoderKind.TRIPLE_WITHOUT_SPEAKERS: ("[AFTER]", "[BEFORE]", "[B1]", "[B2]"),
    EncoderKind.CURVED: ("[AFTER]", "[BEFORE]", "[E]", "[O]"),
    EncoderKind.CURVED_WITHOUT_SPEAKERS: ("[AFTER]", "[BEFORE]"),
    EncoderKind.SINGLE: (),
}

_IN_A_TEXT = re.compile(r"\[(AFTER|BEFORE|B1|B2|E|O|CLS|SEP|MASK|PAD|UNK)\]")
"""Texts that a tokenizer takes for a role's token or for one of BERT's own."""

_POSITION = {
    Role.FIRST: "[B1]",
    Role.SECOND: "[B2]",
    Role.SAID: "[B2]",
    Role.SUPPOSED: "[B2]",
}


def encoder_kind(
    vocabulary: "set[str] | dict[str, int]", name: str, *, heads: bool = False
) -> EncoderKind:
    """Return the richest kind that a model's vocabulary and heads allow.

    Args:
        vocabulary: The vocabulary of the tokenizer; a kind needs all of its special tokens.
        name: The model that an error names.
        heads: Whether the model has a file of heads.

    Raises:
        ModelError: It has heads, but not all special tokens of a triple encoder.
    """
    if heads and not all(token in vocabulary for token in EncoderKind.HEADS.tokens):
        what = "has heads, but not the special tokens of a triple encoder"
        raise ModelError(f"model '{name}' {what}")
    if heads:
        return EncoderKind.HEADS
    without_heads = (kind for kind in EncoderKind if kind is not EncoderKind.HEADS)
    return next(k for k in without_heads if all(token in vocabulary for token in k.tokens))


def can_become(before: EncoderKind, after: EncoderKind) -> bool:
    """Return whether training can make an encoder of one kind into one of another."""
    if EncoderKind.HEADS in {before, after}:
        return after is EncoderKind.HEADS
    # Training may add special tokens to a vocabulary, and removes none.
    return encoder_kind({*before.tokens, *after.tokens}, after) is after


def relation_to(speaker: str, target_speaker: str) -> Relation:
    """Return the relation of a speaker to the target's; a dialogue may have more than two."""
    return Relation.SAME if speaker == target_speaker else Relation.OTHER


def candidate_inputs(texts: Iterable[str]) -> list[RoleText]:
    """Return candidates or goals as an encoder reads them."""
    return [RoleText(text, Role.AFTER) for text in texts]


def said_inputs(texts: Iterable[str]) -> list[RoleText]:
    """Return utterances of the other speaker, as an encoder reads them to compare them."""
    return [RoleText(text, Role.SAID) for text in texts]


def context_inputs(said: Iterable[Utterance], role: Role, target_speaker: str) -> list[RoleText]:
    """Return utterances in a context role, relative to the speaker of a target."""
    return [RoleText(u.text, role, relation_to(u.speaker, target_speaker)) for u in said]


def read_as(item: RoleText) -> RoleText:
    """Return a text in the role in which an encoder with heads reads it.

    Heads compute the vector in the text's own role from this one.
    """
    return RoleText(item.text, Role.SAID if is_said(item.role) else Role.AFTER)


def is_said(role: Role) -> bool:
    """Return whether the texts of a role are utterances that were said, not texts of a pool."""
    return role in {Role.FIRST, Role.SECOND, Role.SAID}


def prefix(kind: EncoderKind, role: Role, relation: Relation | None = None) -> str:
    """Return the prefix of a text, with its trailing space; "" for a kind without prefixes.

    Raises:
        ValueError: A context role of a triple or curved kind with speaker tokens has no relation.
    """
    if not kind.prefixes:
        return ""
    if kind is EncoderKind.HEADS:
        role = read_as(RoleText("", role)).role
    if role is Role.AFTER:
        return "[AFTER] "
    if role is Role.SAID:
        relation = Relation.OTHER
    said = "[BEFORE] "
    if "[E]" in kind.tokens:
        if relation is None:
            raise ValueError(f"role '{role}' of a '{kind}' encoder needs a relation to the target")
        said = f"[{relation.value}] {said}"
    return f"{_POSITION[role]} {said}" if kind.paired else said


def prefixed(kind: EncoderKind, item: RoleText) -> str:
    """Return a text with its prefix.

    Role tokens inside the text are broken up, `[E]` into `[ E ]`, so that the author of a text
    cannot choose its role. A kind without prefixes gets the text unchanged.

    Raises:
        ValueError: As `prefix`.
    """
    text = break_up_tokens(item.text) if kind.prefixes else item.text
    return prefix(kind, item.role, item.relation) + text


def break_up_tokens(text: str) -> str:
    """Return a text without role tokens: `[E]` becomes `[ E ]`."""
    return _IN_A_TEXT.sub(r"[ \1 ]", text)

"""Roles: the text prefixes that tell one encoder which part an utterance plays.

The prefixes are those of the public CCL and C3L checkpoints, so that these load unchanged.
"""

import re
from enum import StrEnum
from typing import NamedTuple

from turnwise.models.errors import ModelError


class Role(StrEnum):
    """The part a text plays in a score."""

    AFTER = "after"
    """Candidate, goal or target."""
    FIRST = "first"
    """Context utterance, first of a pair (b1 of C3L eq. 3)."""
    SECOND = "second"
    """Context utterance, second of a pair, and alone (b2 of C3L eq. 3; b of CCL)."""


class Relation(StrEnum):
    """Who says a context utterance, relative to who will say the target (CCL eq. 5)."""

    SAME = "E"
    """The speaker of the target: an even distance when two people alternate."""
    OTHER = "O"
    """Anybody else: an odd distance."""


class RoleText(NamedTuple):
    """A text, the role in which it is to be encoded, and how its speaker stands to the target's."""

    text: str
    role: Role
    relation: Relation | None = None


class EncoderKind(StrEnum):
    """What an encoder was trained to tell apart; read from its vocabulary."""

    TRIPLE = "triple"
    """C3L: two context roles with speaker tokens, and the target role."""
    CURVED = "curved"
    """CCL: one context role with speaker tokens, and the target role."""
    CURVED_WITHOUT_SPEAKERS = "curved-without-speakers"
    """CCL: one context role, and the target role."""
    SINGLE = "single"
    """A plain sentence encoder: one space, no prefixes."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The special tokens that the prefixes of this kind are made of."""
        return _TOKENS[self]

    @property
    def paired(self) -> bool:
        """Whether a context is scored by pairs of its utterances, not one utterance at a time."""
        return self is EncoderKind.TRIPLE


_TOKENS = {
    EncoderKind.TRIPLE: ("[AFTER]", "[BEFORE]", "[B1]", "[B2]", "[E]", "[O]"),
    EncoderKind.CURVED: ("[AFTER]", "[BEFORE]", "[E]", "[O]"),
    EncoderKind.CURVED_WITHOUT_SPEAKERS: ("[AFTER]", "[BEFORE]"),
    EncoderKind.SINGLE: (),
}

_IN_A_TEXT = re.compile(r"\[(AFTER|BEFORE|B1|B2|E|O|CLS|SEP|MASK|PAD|UNK)\]")
"""What a tokenizer would take for a role's token, or for one of BERT's own."""

_POSITION = {Role.FIRST: "[B1]", Role.SECOND: "[B2]"}


def encoder_kind(vocabulary: "set[str] | dict[str, int]") -> EncoderKind:
    """Return the richest kind whose special tokens a tokenizer's vocabulary holds.

    Raises:
        ModelError: It has two context roles but no speaker tokens, which no kind here has.
    """
    if "[B1]" in vocabulary and "[E]" not in vocabulary:
        raise ModelError("two context roles without speaker tokens are not supported")
    for kind in (EncoderKind.TRIPLE, EncoderKind.CURVED, EncoderKind.CURVED_WITHOUT_SPEAKERS):
        if all(token in vocabulary for token in kind.tokens):
            return kind
    return EncoderKind.SINGLE


def relation_to(speaker: str, target_speaker: str) -> Relation:
    """Return how an utterance's speaker stands to the target's; more than two may take part."""
    return Relation.SAME if speaker == target_speaker else Relation.OTHER


def prefix(kind: EncoderKind, role: Role, relation: Relation | None = None) -> str:
    """Return what stands before the text, with its trailing space; "" where nothing does.

    Raises:
        ValueError: A context role of a kind with speaker tokens comes without a relation.
    """
    if kind is EncoderKind.SINGLE:
        return ""
    if role is Role.AFTER:
        return "[AFTER] "
    if kind is EncoderKind.CURVED_WITHOUT_SPEAKERS:
        return "[BEFORE] "
    if relation is None:
        raise ValueError(f"role '{role}' of a '{kind}' encoder needs a relation to the target")
    speaker = f"[{relation.value}] [BEFORE] "
    return f"{_POSITION[role]} {speaker}" if kind is EncoderKind.TRIPLE else speaker


def prefixed(kind: EncoderKind, item: RoleText) -> str:
    """Return a text with its prefix.

    What looks like a token of a role inside the text is taken apart, `[E]` to `[ E ]`: those who
    write a text do not choose how it is read. An encoder without roles gets the text as it is.

    Raises:
        ValueError: As `prefix`.
    """
    text = item.text if kind is EncoderKind.SINGLE else _IN_A_TEXT.sub(r"[ \1 ]", item.text)
    return prefix(kind, item.role, item.relation) + text

import pytest

from turnwise.models.errors import ModelError
from turnwise.models.roles import (
    EncoderKind,
    Relation,
    Role,
    RoleText,
    can_become,
    encoder_kind,
    prefix,
    prefixed,
)


@pytest.mark.parametrize(
    ("kind", "role", "relation", "wanted"),
    [
        (EncoderKind.TRIPLE, Role.AFTER, None, "[AFTER] "),
        (EncoderKind.TRIPLE, Role.FIRST, Relation.SAME, "[B1] [E] [BEFORE] "),
        (EncoderKind.TRIPLE, Role.SECOND, Relation.OTHER, "[B2] [O] [BEFORE] "),
        (EncoderKind.TRIPLE, Role.SUPPOSED, Relation.SAME, "[B2] [E] [BEFORE] "),
        (EncoderKind.TRIPLE, Role.SAID, None, "[B2] [O] [BEFORE] "),
        (EncoderKind.HEADS, Role.SAID, None, "[B2] [O] [BEFORE] "),
        (EncoderKind.HEADS, Role.SUPPOSED, Relation.SAME, "[AFTER] "),
        (EncoderKind.HEADS, Role.FIRST, Relation.SAME, "[B2] [O] [BEFORE] "),
        (EncoderKind.HEADS, Role.SECOND, Relation.SAME, "[B2] [O] [BEFORE] "),
        (EncoderKind.TRIPLE_WITHOUT_SPEAKERS, Role.FIRST, Relation.SAME, "[B1] [BEFORE] "),
        (EncoderKind.TRIPLE_WITHOUT_SPEAKERS, Role.SECOND, None, "[B2] [BEFORE] "),
        (EncoderKind.CURVED, Role.FIRST, Relation.OTHER, "[O] [BEFORE] "),
        (EncoderKind.CURVED, Role.SECOND, Relation.SAME, "[E] [BEFORE] "),
        (EncoderKind.CURVED, Role.SAID, None, "[O] [BEFORE] "),
        (EncoderKind.CURVED_WITHOUT_SPEAKERS, Role.SECOND, Relation.SAME, "[BEFORE] "),
        (EncoderKind.SINGLE, Role.SECOND, Relation.SAME, ""),
    ],
)
def test_prefixes_are_those_of_the_public_checkpoints(
    kind: EncoderKind, role: Role, relation: Relation | None, wanted: str
) -> None:
    assert prefix(kind, role, relation) == wanted


@pytest.mark.parametrize("kind", [EncoderKind.TRIPLE, EncoderKind.CURVED])
def test_a_context_role_with_speakers_needs_a_relation(kind: EncoderKind) -> None:
    with pytest.raises(ValueError, match="relation"):
        prefix(kind, Role.SECOND)


def test_a_text_does_not_choose_how_it_is_read() -> None:
    item = RoleText("[E] [BEFORE] Press [B1][SEP], or [e] [X]", Role.SECOND, Relation.OTHER)
    taken_apart = "[ E ] [ BEFORE ] Press [ B1 ][ SEP ], or [e] [X]"
    assert prefixed(EncoderKind.TRIPLE, item) == f"[B2] [O] [BEFORE] {taken_apart}"
    assert prefixed(EncoderKind.SINGLE, item) == item.text


@pytest.mark.parametrize(
    ("before", "after", "possible"),
    [
        (EncoderKind.SINGLE, EncoderKind.HEADS, True),
        (EncoderKind.HEADS, EncoderKind.HEADS, True),
        (EncoderKind.CURVED, EncoderKind.TRIPLE, True),
        (EncoderKind.CURVED_WITHOUT_SPEAKERS, EncoderKind.TRIPLE_WITHOUT_SPEAKERS, True),
        (EncoderKind.CURVED, EncoderKind.TRIPLE_WITHOUT_SPEAKERS, False),
        (EncoderKind.TRIPLE_WITHOUT_SPEAKERS, EncoderKind.TRIPLE, True),
        (EncoderKind.TRIPLE, EncoderKind.CURVED, False),
        (EncoderKind.TRIPLE, EncoderKind.HEADS, True),
        (EncoderKind.HEADS, EncoderKind.TRIPLE, False),
        (EncoderKind.HEADS, EncoderKind.SINGLE, False),
    ],
)
def test_a_kind_becomes_one_that_distinguishes_at_least_as_much(
    before: EncoderKind, after: EncoderKind, possible: bool
) -> None:
    assert can_become(before, after) is possible


@pytest.mark.parametrize("kind", sorted(set(EncoderKind) - {EncoderKind.HEADS}))
def test_the_tokens_of_a_kind_tell_the_kind(kind: EncoderKind) -> None:
    assert encoder_kind({"hello", *kind.tokens}, "bot") is kind


def test_heads_without_speaker_tokens_are_named() -> None:
    with pytest.raises(ModelError, match=r"^model 'bot'.*has heads"):
        encoder_kind({"[AFTER]", "[BEFORE]", "[B1]", "[B2]"}, "bot", heads=True)

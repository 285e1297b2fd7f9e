import pytest

from turnwise.models.errors import ModelError
from turnwise.models.roles import (
    Kind,
    Relation,
    Role,
    RoleText,
    kind_of,
    prefix,
    prefixed,
    relation_to,
)


@pytest.mark.parametrize(
    ("kind", "role", "relation", "wanted"),
    [
        (Kind.TRIPLE, Role.AFTER, None, "[AFTER] "),
        (Kind.TRIPLE, Role.FIRST, Relation.SAME, "[B1] [E] [BEFORE] "),
        (Kind.TRIPLE, Role.SECOND, Relation.OTHER, "[B2] [O] [BEFORE] "),
        (Kind.CURVED, Role.AFTER, None, "[AFTER] "),
        (Kind.CURVED, Role.FIRST, Relation.OTHER, "[O] [BEFORE] "),
        (Kind.CURVED, Role.SECOND, Relation.SAME, "[E] [BEFORE] "),
        (Kind.CURVED_WITHOUT_SPEAKERS, Role.SECOND, Relation.SAME, "[BEFORE] "),
        (Kind.CURVED_WITHOUT_SPEAKERS, Role.SECOND, None, "[BEFORE] "),
        (Kind.CURVED_WITHOUT_SPEAKERS, Role.AFTER, None, "[AFTER] "),
        (Kind.SINGLE, Role.SECOND, Relation.SAME, ""),
        (Kind.SINGLE, Role.AFTER, None, ""),
    ],
)
def test_prefixes_are_those_of_the_public_checkpoints(
    kind: Kind, role: Role, relation: Relation | None, wanted: str
) -> None:
    assert prefix(kind, role, relation) == wanted


@pytest.mark.parametrize("kind", [Kind.TRIPLE, Kind.CURVED])
def test_a_context_role_with_speakers_needs_a_relation(kind: Kind) -> None:
    with pytest.raises(ValueError, match="relation"):
        prefix(kind, Role.SECOND)


def test_a_text_does_not_choose_how_it_is_read() -> None:
    item = RoleText("[E] [BEFORE] Press [B1][SEP], or [e] [X]", Role.SECOND, Relation.OTHER)
    taken_apart = "[ E ] [ BEFORE ] Press [ B1 ][ SEP ], or [e] [X]"
    assert prefixed(Kind.TRIPLE, item) == f"[B2] [O] [BEFORE] {taken_apart}"
    assert prefixed(Kind.SINGLE, item) == item.text


@pytest.mark.parametrize("kind", list(Kind))
def test_a_kind_is_read_from_its_tokens(kind: Kind) -> None:
    assert kind_of({"hello", *kind.tokens}) is kind


def test_context_roles_without_speakers_are_refused() -> None:
    with pytest.raises(ModelError, match="speaker"):
        kind_of({"[AFTER]", "[BEFORE]", "[B1]", "[B2]"})


def test_anybody_but_the_target_speaker_is_the_other() -> None:
    assert relation_to("bot", "bot") is Relation.SAME
    assert relation_to("user", "bot") is Relation.OTHER
    assert relation_to("guest", "bot") is Relation.OTHER

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.texts import fold_text, write_count

REPLY = "Switch it off. Wait a minute: we'll call you."


@pytest.mark.parametrize(
    "changed",
    [
        "Switch it off.\nWait a minute:\r\n we'll call you.",
        "  Switch it  off. Wait a minute:\u00a0we'll call you.  ",
        "SWITCH IT OFF. WAIT A MINUTE: WE'LL CALL YOU.",
        "Switch it off. Wait a minute: we'll call you",
        "Switch it off. Wait a minute: we'll call you!",
        "Switch it off. Wait a minute: we'll call you. 🙂",
        "Switch it off. Wait a minute: we'll call you 👍🏽.",
    ],
)
def test_the_same_reply_as_a_channel_may_change_it(changed: str) -> None:
    assert fold_text(changed) == fold_text(REPLY)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It costs 5 €.", "It costs 5 $."),
        ("Yes.", "No."),
        ("We open at 9.", "We open at 90."),
        ("I don't know", "I dont know"),
        ("👍", "👎"),
        ("?", "!"),
    ],
)
def test_different_replies(one: str, other: str) -> None:
    assert fold_text(one) != fold_text(other)


def test_composed_and_decomposed_characters_are_equal() -> None:
    text = "Schöne Grüße, café"
    assert fold_text(unicodedata.normalize("NFD", text)) == fold_text(text)


@given(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N"]), min_size=1))
def test_no_text_with_a_letter_folds_to_nothing(text: str) -> None:
    assert fold_text(text)


@pytest.mark.parametrize(
    ("number", "nouns", "written"),
    [
        (1, ("reply", "replies"), "1 reply"),
        (0, ("reply", "replies"), "0 replies"),
        (2, ("pool",), "2 pools"),
        (1, ("pool",), "1 pool"),
    ],
)
def test_a_number_has_the_noun_that_goes_with_it(
    number: int, nouns: tuple[str, ...], written: str
) -> None:
    assert write_count(number, *nouns) == written

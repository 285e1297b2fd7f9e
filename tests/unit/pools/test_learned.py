"""What a candidate has learned: its limit, and what an upload or further examples leave of it."""

import pytest

from turnwise.service.pools import Candidate
from turnwise.service.pools.candidate import Learned
from turnwise.service.wire.pools import MOST_EXAMPLES

LEARNED = [Learned("One?", 1.0, "u1-a"), Learned("Two?", 2.0)]


def candidate(examples: int = 0, learned: int = 2) -> Candidate:
    given = [f"question {number}" for number in range(examples)]
    return Candidate.of("By card.", "pay", examples=given, learned=LEARNED[:learned])


def learned(each: Candidate) -> list[str]:
    return [example.text for example in each.learned]


@pytest.mark.parametrize(("text", "count"), [("Three?", 3), ("one", 2), ("  ONE? ", 2)])
def test_a_text_is_learned_once(text: str, count: int) -> None:
    assert len(candidate().learn(Learned(text, 3.0)).learned) == count


@pytest.mark.parametrize(
    ("examples", "left"),
    [
        (MOST_EXAMPLES - 2, ["Two?", "Three?"]),
        (MOST_EXAMPLES - 1, ["Three?"]),
        (MOST_EXAMPLES, ["One?", "Two?"]),
    ],
)
def test_the_oldest_learned_example_makes_room(examples: int, left: list[str]) -> None:
    assert learned(candidate(examples).learn(Learned("Three?", 3.0))) == left


def test_an_upload_keeps_what_was_learned() -> None:
    before = candidate(1)
    assert candidate(1, learned=0).keep_learned(before) == before
    assert learned(candidate(MOST_EXAMPLES - 1, learned=0).keep_learned(before)) == ["Two?"]
    own = Candidate.of("By card.", "pay", learned=[Learned("Three?", 3.0)])
    assert own.keep_learned(before) == own
    assert own.keep_learned(None) == own


def test_further_examples_take_the_place_of_learned_copies() -> None:
    after = candidate(1).add_examples(["QUESTION 0", "one", "Three?"])
    assert after.examples == ("question 0", "one", "Three?")
    assert learned(after) == ["Two?"]
    assert after.add_examples(["Three"]) == after
    full = candidate(MOST_EXAMPLES - 1).add_examples(["Three?", "Four?"])
    assert full.examples[-1] == "Three?"
    assert (len(full.examples), learned(full)) == (MOST_EXAMPLES, [])

import numpy as np
import pytest

from turnwise.service.pools import Candidate, Hit
from turnwise.service.selection.answers import choose_wordings, count_answers, name_answer


def hit(text: str, group: str | None = None) -> Hit:
    return Hit(Candidate(text, text, group=group), 0.0)


HITS = [hit("Nine.", "hours"), hit("Card."), hit("At nine.", "hours"), hit("9.", "hours")]


def test_one_wording_stands_for_its_group() -> None:
    assert choose_wordings(HITS, np.array([1.0, 3.0, 2.0, 0.5]), {}) == [1, 2]


@pytest.mark.parametrize(
    ("history", "chosen"),
    [
        ({}, 0),
        ({"nine": 4}, 2),  # the nearly equal wording was never said
        ({"nine": 4, "at nine": 2}, 2),
        ({"nine": 2, "at nine": 4}, 0),
        ({"nine": 4, "at nine": 2, "9": 0}, 2),  # the third one is much worse
    ],
)
def test_among_nearly_equal_wordings_the_one_said_longest_ago_comes_first(
    history: dict[str, int], chosen: int
) -> None:
    scores = np.array([1.0, 0.2, 0.97, 0.7])
    assert choose_wordings(HITS, scores, history) == [chosen, 1]


def test_copies_and_wordings_are_one_answer() -> None:
    assert count_answers(HITS) == 2
    names = [name_answer(each.candidate) for each in [*HITS, hit("card!")]]
    assert names[0] == names[2] == names[3] != names[1] == names[4]

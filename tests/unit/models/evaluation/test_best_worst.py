import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import krippendorff
import numpy as np
import pytest

from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.best_worst import (
    Annotation,
    Level,
    choices_of,
    krippendorff_alpha,
    make_tuples,
    ratings_of,
    read_annotations,
    read_items,
    score_items,
    spearman_brown,
    split_half_reliability,
    strong_agreement,
)

ANSWER = {"items": ["x", "y", "z"], "best": "y", "worst": "z", "annotator": "p"}


def write(path: Path, *records: object) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def items(count: int) -> list[str]:
    return [f"item {number}" for number in range(count)]


@pytest.mark.parametrize("count", [5, 6, 7, 12, 300])
def test_each_item_stands_in_six_of_2n_distinct_tuples(count: int) -> None:
    made = make_tuples(items(count))
    assert len({frozenset(three) for three in made}) == len(made) == 2 * count
    assert Counter(item for three in made for item in three) == dict.fromkeys(items(count), 6)
    assert all(len(set(three)) == 3 for three in made)


@pytest.mark.parametrize("count", [13, 15, 300])
def test_no_two_items_meet_twice(count: int) -> None:
    meetings = Counter(
        frozenset(pair) for three in make_tuples(items(count)) for pair in combinations(three, 2)
    )
    assert set(meetings.values()) == {1}


@pytest.mark.parametrize("given", [items(4), [*items(6), "item 0"]])
def test_too_few_items_or_equal_ones_are_rejected(given: list[str]) -> None:
    with pytest.raises(TurnwiseError, match="at least 5 items, all distinct"):
        make_tuples(given)


def test_scores_count_best_and_worst() -> None:
    answers = [
        Annotation(("a", "b", "c"), "a", "c", "p"),
        Annotation(("a", "b", "c"), "a", "b", "q"),
        Annotation(("a", "b", "d"), "d", "a", "p"),
    ]
    expected = {"a": (1 + 1 / 3) / 2, "b": (1 - 1 / 3) / 2, "c": 1 / 4, "d": 1}
    assert score_items(answers) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"items": ["x", "y"]}, "items"),
        ({"items": ["x", "y", "y"]}, "items"),
        ({"items": ["z", "y", "x"]}, "items"),  # answered already
        ({"best": "w"}, "best"),
        ({"worst": "y"}, "worst"),
        ({"annotator": ""}, "annotator"),
    ],
)
def test_a_bad_answer_is_named(tmp_path: Path, change: dict[str, object], field: str) -> None:
    path = tmp_path / "answers.jsonl"
    assert read_annotations(write(path, ANSWER)) == [Annotation(("x", "y", "z"), "y", "z", "p")]
    with pytest.raises(DataError) as caught:
        read_annotations(write(path, ANSWER, ANSWER | change))
    assert (caught.value.line, caught.value.field) == (2, field)


@pytest.mark.parametrize(
    ("line", "what"), [({"text": "b"}, "missing"), ({"id": "one"}, 'a second item "one"')]
)
def test_items_need_an_id_of_their_own(tmp_path: Path, line: object, what: str) -> None:
    with pytest.raises(DataError, match=f'line 2, field "id": {what}'):
        read_items(write(tmp_path / "items.jsonl", {"id": "one"}, line))


def answered(noise: float, annotators: int = 4) -> list[Annotation]:
    """Answers of people who see the items' true order through noise."""
    generator = np.random.default_rng(0)
    answers = []
    for three in make_tuples(items(24)):
        for annotator in range(annotators):
            seen = [int(item.split()[1]) + noise * generator.normal() for item in three]
            best = three[int(np.argmax(seen))]
            worst = three[int(np.argmin(seen))]
            answers.append(Annotation(three, best, worst, str(annotator)))
    return answers


@pytest.mark.parametrize("level", ["nominal", "ordinal"])
@pytest.mark.parametrize(("missing", "spread"), [(0, 1), (0.4, 3), (0.8, 0)])
def test_alpha_is_that_of_an_independent_library(level: Level, missing: float, spread: int) -> None:
    generator = np.random.default_rng(spread)
    true = generator.integers(0, 5, 60)
    ratings = (true + generator.integers(-spread, spread + 1, (4, 60))).astype(np.float64)
    ratings[generator.random(ratings.shape) < missing] = np.nan
    theirs = krippendorff.alpha(reliability_data=ratings, level_of_measurement=level)
    assert krippendorff_alpha(ratings, level) == pytest.approx(theirs)


def test_alpha_needs_units_with_two_ratings_and_two_values() -> None:
    assert krippendorff_alpha(np.array([[1, np.nan], [np.nan, 2]]), "nominal") is None
    assert krippendorff_alpha(np.ones((2, 3)), "ordinal") is None


def test_a_rating_is_one_item_of_a_tuple_however_that_was_ordered() -> None:
    answers = [
        Annotation(("b", "a", "c"), "a", "c", "q"),
        Annotation(("a", "b", "c"), "b", "c", "p"),
    ]
    assert ratings_of(answers).tolist() == [[0, 1, -1], [1, 0, -1]]


def test_alpha_of_answers_is_that_of_an_independent_library() -> None:
    answers = answered(4, annotators=5)
    keys = sorted({answer.key for answer in answers})
    given = {(a.annotator, a.key): (a.best, a.worst) for a in answers}
    naive = [
        [key.index(given[name, key][question]) for key in keys for question in (0, 1)]
        for name in sorted({answer.annotator for answer in answers})
    ]
    wanted = krippendorff.alpha(reliability_data=naive, level_of_measurement="nominal")
    assert krippendorff_alpha(choices_of(answers), "nominal") == pytest.approx(wanted)


def test_agreement_is_strong_where_four_of_five_choose_one_item() -> None:
    four = [Annotation(("a", "b", "c"), "a", "c", name) for name in "pqrs"]
    fifth = Annotation(("c", "a", "b"), "a", "b", "t")
    three = [Annotation(("a", "b", "d"), "a", "d", name) for name in "pqr"]
    two = [Annotation(("a", "b", "d"), "a", "b", name) for name in "st"]
    alone = Annotation(("a", "b", "e"), "a", "e", "p")
    # Best: all five twice. Worst: four of five, and three of five.
    assert strong_agreement(choices_of([*four, fifth, *three, *two, alone])) == 3 / 4
    assert strong_agreement(choices_of([alone])) is None


def test_halves_agree_where_annotators_do() -> None:
    same, close, chance = (split_half_reliability(answered(noise), 0) for noise in (0, 4, 1e9))
    assert same == pytest.approx(1)
    assert same > close > 0.7
    assert abs(chance) < 0.3


def test_halves_are_dealt_tuple_by_tuple() -> None:
    answers = [Annotation(("a", "b", "c"), "a", "c", name) for name in "pqrs"]
    answers += [Annotation(("a", "b", "d"), "d", "b", name) for name in "pqrs"]
    # Every half sees every tuple twice, so all halves score alike.
    assert split_half_reliability(answers, 0) == pytest.approx(1)


@pytest.mark.parametrize(
    ("half", "whole"), [(0.5, 2 / 3), (1.0, 1), (-1.0, None), (np.nextafter(-1, 0), None)]
)
def test_the_whole_is_more_reliable_than_a_half(half: float, whole: float | None) -> None:
    assert spearman_brown(half) == (None if whole is None else pytest.approx(whole))


def test_halves_of_too_few_items_have_no_reliability() -> None:
    assert split_half_reliability([Annotation(("a", "b", "c"), "a", "c", "p")], 0) is None

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.best_worst import (
    Answer,
    make_tuples,
    read_answers,
    read_items,
    score_items,
)

ANSWER = {"items": ["x", "y", "z"], "best": "y", "worst": "z", "annotator": "p"}


def items(count: int) -> list[str]:
    return [f"item {number}" for number in range(count)]


@pytest.mark.parametrize("count", [*range(5, 40), 300])
def test_each_item_stands_in_six_of_2n_distinct_tuples(count: int) -> None:
    made = make_tuples(items(count))
    assert len({frozenset(three) for three in made}) == len(made) == 2 * count
    assert Counter(item for three in made for item in three) == dict.fromkeys(items(count), 6)
    assert all(len(set(three)) == 3 for three in made)


@pytest.mark.parametrize("count", [13, *range(15, 40), 300])
def test_no_two_items_meet_twice(count: int) -> None:
    meetings = Counter(
        frozenset(pair) for three in make_tuples(items(count)) for pair in combinations(three, 2)
    )
    assert set(meetings.values()) == {1}


def test_the_seed_decides() -> None:
    assert make_tuples(items(20), seed=1) == make_tuples(items(20), seed=1)
    assert make_tuples(items(20), seed=1) != make_tuples(items(20), seed=2)


def test_an_item_stands_anywhere_in_its_tuples() -> None:
    places = Counter(three.index("item 0") for seed in range(9) for three in make_tuples(
        items(20), seed) if "item 0" in three)  # fmt: skip
    assert len(places) == 3


@pytest.mark.parametrize("given", [items(4), [*items(6), "item 0"]])
def test_too_few_items_or_equal_ones_are_refused(given: list[str]) -> None:
    with pytest.raises(TurnwiseError, match="at least 5 items, all distinct"):
        make_tuples(given)


def test_scores_count_best_and_worst() -> None:
    answers = [
        Answer(("a", "b", "c"), "a", "c", "p"),
        Answer(("a", "b", "c"), "a", "b", "q"),
        Answer(("a", "b", "d"), "d", "a", "p"),
    ]
    expected = {"a": (1 + 1 / 3) / 2, "b": (1 - 1 / 3) / 2, "c": 1 / 4, "d": 1}
    assert score_items(answers) == pytest.approx(expected)


def test_scores_of_consistent_answers_follow_the_true_order() -> None:
    value = {item: number for number, item in enumerate(items(30))}
    answers = [
        Answer(three, max(three, key=value.__getitem__), min(three, key=value.__getitem__), "p")
        for three in make_tuples(items(30))
    ]
    scores = score_items(answers)
    assert (scores["item 0"], scores["item 29"]) == (0, 1)
    assert sum(scores[f"item {n}"] for n in range(10)) < sum(
        scores[f"item {n}"] for n in range(20, 30)
    )


def test_answers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(ANSWER))
    assert read_answers(path) == [Answer(("x", "y", "z"), "y", "z", "p")]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"items": ["x", "y"]}, "items"),
        ({"items": ["x", "y", "y"]}, "items"),
        ({"items": ["z", "y", "x"]}, "items"),  # answered already
        ({"best": "w"}, "best"),
        ({"worst": "w"}, "worst"),
        ({"worst": "y"}, "worst"),
        ({"annotator": ""}, "annotator"),
    ],
)
def test_a_bad_answer_is_named(tmp_path: Path, change: dict[str, object], field: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, (ANSWER, ANSWER | change))))
    with pytest.raises(DataError) as caught:
        read_answers(path)
    assert (caught.value.line, caught.value.field) == (2, field)


def test_a_file_without_answers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").touch()
    with pytest.raises(DataError, match="no answer in it"):
        read_answers(tmp_path / "none.jsonl")


def test_items_need_an_id(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "one", "text": "a"}\n{"text": "b"}')
    with pytest.raises(DataError, match='line 2, field "id": missing'):
        read_items(path)


def test_an_item_that_came_before_is_named(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "one"}\n{"id": "two"}\n{"id": "one"}')
    with pytest.raises(DataError, match='line 3, field "id": a second item "one"'):
        read_items(path)

from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.evaluation import metrics
from turnwise.models.evaluation.metrics import (
    auroc,
    calibration_error,
    group_by_length,
    median_ms,
    pearson,
    ranking_metrics,
    ranks,
    ranks_of,
    retrieval_metrics,
    risks,
    search_metrics,
    spearman,
)

LABELS = st.lists(st.booleans(), min_size=2, max_size=6).filter(lambda x: any(x) and not all(x))


def measured(scores: Sequence[float], labels: Sequence[bool], **kwargs: str) -> dict[str, float]:
    return ranking_metrics(np.array(scores, np.float32), np.array(labels), **kwargs)


def in_order(labels: Sequence[bool]) -> dict[str, float]:
    """The definitions, for labels in the order of the ranking, best first."""
    places = [place for place, right in enumerate(labels, 1) if right]
    wrong = [place for place, right in enumerate(labels, 1) if not right]
    precisions = [sum(labels[:place]) / place for place in places]
    return {
        "r_2@1": float(np.mean([right < other for right in places for other in wrong])),
        **{f"r_n@{k}": sum(labels[:k]) / len(places) for k in (1, 2, 5) if k < len(labels)},
        "map": float(np.mean(precisions)),
        "mrr": 1 / places[0],
        "p@1": float(labels[0]),
    }


def orders(scores: Sequence[float]) -> list[tuple[int, ...]]:
    """All orders of the candidates, best first, that the scores allow."""
    best = sorted(scores, reverse=True)
    places = range(len(scores))
    return [order for order in permutations(places) if [scores[p] for p in order] == best]


@given(LABELS, st.data())
def test_metrics_of_a_ranking_are_means_over_the_orders_of_ties(
    labels: list[bool], data: st.DataObject
) -> None:
    scores = data.draw(st.lists(st.integers(0, 2), min_size=len(labels), max_size=len(labels)))
    all_of = [in_order([labels[place] for place in order]) for order in orders(scores)]
    expected = {name: np.mean([order[name] for order in all_of]) for name in all_of[0]}
    assert measured(scores, labels, name="n") == pytest.approx(expected)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.data())
def test_ranks_are_means_over_the_orders_of_ties(scores: list[int], data: st.DataObject) -> None:
    true = data.draw(st.integers(0, len(scores) - 1))
    found = ranks(np.array([scores], np.float32), np.array([true]))
    places = np.array([order.index(true) + 1 for order in orders(scores)])
    assert found.expected.tolist() == pytest.approx([places.mean()])
    assert found.reciprocal.tolist() == pytest.approx([(1 / places).mean()])
    for k in (1, 2, 5):
        assert found.within(k).tolist() == pytest.approx([(places <= k).mean()])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6).filter(
        lambda passages: any(right for _, right in passages)
    )
)
def test_gains_are_means_over_the_orders_of_ties(passages: list[tuple[int, bool]]) -> None:
    scores = [score for score, _ in passages]
    right = np.array([right for _, right in passages])
    found = search_metrics(np.array(scores, np.float32), right)
    ordered = np.array([right[list(order)] for order in orders(scores)])
    discounts = 1 / np.log2(np.arange(len(scores)) + 2)
    best = discounts[: right.sum()].sum()
    assert found["ndcg@10"] == pytest.approx((ordered @ discounts).mean() / best)
    assert found["r@1"] == pytest.approx(ordered[:, 0].mean())
    assert found["mrr"] == pytest.approx((1 / (ordered.argmax(axis=1) + 1)).mean())


def test_nan_ranks_last_and_infinity_first() -> None:
    scores = np.array([[np.nan, 0.5, 0.2], [0.1, np.nan, 0.2], [np.inf, 3.4e38, 0]], np.float32)
    assert ranks(scores, np.array([0, 1, 0])).expected.tolist() == [3, 3, 1]
    assert ranks(scores, np.array([2, 0, 1])).expected.tolist() == [2, 2, 2]
    assert measured([np.nan, 0.1, 0.2], [True, False, False])["mrr"] == pytest.approx(1 / 3)
    assert measured([np.inf, 3.4e38], [False, True])["p@1"] == 0


def test_retrieval_metrics_of_known_ranks() -> None:
    of_true = ranks_of([np.array([2.0, 1, 0]), np.array([1.0, 2, 3, 4, 5, 6])], [1, 0])
    assert retrieval_metrics(of_true, 11) == pytest.approx(
        {
            "average_rank": 4,
            "normalised_rank": 0.3,
            "r@1": 0,
            "r@5": 0.5,
            "r@10": 1,
            "mrr": (1 / 2 + 1 / 6) / 2,
        }
    )
    assert of_true.hits((1, 2, 6)) == {"hits@1": 0, "hits@2": 0.5, "hits@6": 1}
    assert of_true[np.array([False, True])].expected.tolist() == [6]
    assert retrieval_metrics(ranks(np.ones((1, 1)), np.zeros(1, int)), 1)["normalised_rank"] == 0


def test_spans_of_lengths_hold_each_context_once() -> None:
    lengths = np.array([0, 1, 2, 3, 4, 5, 8, 9, 40])
    found = group_by_length(lengths)
    assert list(found) == [f"turns={span}" for span in ("0", "1", "2", "3-4", "5-8", "9+")]
    assert sum(those.astype(int) for those in found.values()).tolist() == [1] * 9
    assert lengths[found["turns=5-8"]].tolist() == [5, 8]
    assert list(group_by_length(np.array([3, 3]))) == ["turns=3-4"]


def test_correlations_are_undefined_for_constants_and_two_points() -> None:
    line = np.arange(5.0)
    assert pearson(line, line * 3 - 1) == pytest.approx(1)
    assert pearson(np.ones(5), line) is spearman(line, np.ones(5)) is None
    assert pearson(line[:2], line[:2]) is None


ANSWERS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=6)
"""Confidences in fifths, so that some are equal, and whether the answers are right."""


@given(ANSWERS)
def test_auroc_is_the_share_of_pairs_that_are_in_order(answers: list[tuple[int, bool]]) -> None:
    pairs = [(x, y) for x, right in answers if right for y, other in answers if not other]
    won = [1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs]
    scores, right = map(np.array, zip(*answers, strict=True))
    got = auroc(scores / 5, right)
    assert got == (pytest.approx(np.mean(won)) if pairs else None)


@given(ANSWERS)
def test_risks_are_means_over_the_orders_of_ties(answers: list[tuple[int, bool]]) -> None:
    curves = []
    for order in permutations(answers):
        if all(x[0] >= y[0] for x, y in pairwise(order)):
            wrong = [not right for _, right in order]
            curves.append(np.cumsum(wrong) / np.arange(1, len(wrong) + 1))
    scores, right = map(np.array, zip(*answers, strict=True))
    assert risks(scores / 5, right) == pytest.approx(np.mean(curves, axis=0))


@pytest.mark.parametrize("bins", [1, 3, 10, 1000])
def test_the_calibration_error_is_that_of_bins_of_the_same_size(
    bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random(200)
    right = generator.random(200) < confidence**2
    monkeypatch.setattr(metrics, "BINS", bins)
    ordered = sorted(zip(confidence.tolist(), right.tolist(), strict=True))
    error = 0.0
    start = 0
    for part in range(min(bins, 200)):
        size = 200 // min(bins, 200) + (part < 200 % min(bins, 200))
        some = ordered[start : start + size]
        start = start + size
        error += abs(sum(p for p, _ in some) - sum(r for _, r in some)) / 200
    assert calibration_error(confidence, right) == pytest.approx(error)


def test_timing_warms_up_and_stops_when_it_has_taken_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[int] = []
    monkeypatch.setattr(metrics, "ENOUGH", 9.0)
    assert median_ms(called.append, 2) >= 0
    assert called == [0, 0, 1]
    called.clear()
    monkeypatch.setattr(metrics, "TIMED", 3)
    median_ms(called.append, 100)
    assert called == [0, 0, 49, 99]
    del called[3:]
    monkeypatch.setattr(metrics, "ENOUGH", 0.0)
    median_ms(called.append, 2)
    assert called[3:] == [0, 0]

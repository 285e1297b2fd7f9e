from collections.abc import Sequence
from itertools import permutations

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, P, Qrel, R, ScoredDoc

from turnwise.models.evaluation.ranking_metrics import ranking_metrics

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


@given(LABELS, st.data())
@settings(deadline=None)
def test_a_tie_counts_the_mean_over_all_orders(labels: list[bool], data: st.DataObject) -> None:
    scores = data.draw(st.lists(st.integers(0, 2), min_size=len(labels), max_size=len(labels)))
    orders = [
        in_order([labels[place] for place in order])
        for order in permutations(range(len(labels)))
        if [scores[place] for place in order] == sorted(scores, reverse=True)
    ]
    expected = {name: np.mean([order[name] for order in orders]) for name in orders[0]}
    assert measured(scores, labels, name="n") == pytest.approx(expected)


def test_an_independent_library_agrees() -> None:
    generator = np.random.default_rng(0)
    qrels, run, ours = [], [], []
    for query in range(40):
        labels = generator.permutation([True] * int(generator.integers(1, 9)) + [False] * 2)
        scores = generator.permutation(len(labels)).astype(np.float32)
        ours.append(measured(list(scores), list(labels), name="n"))
        for place, (score, right) in enumerate(zip(scores, labels, strict=True)):
            qrels.append(Qrel(str(query), str(place), int(right)))
            run.append(ScoredDoc(str(query), str(place), float(score)))
    names = {R @ 1: "r_n@1", R @ 2: "r_n@2", AP: "map", RR: "mrr", P @ 1: "p@1"}
    theirs = ir_measures.calc_aggregate(list(names), qrels, run)
    for measure, name in names.items():
        assert np.mean([line[name] for line in ours]) == pytest.approx(theirs[measure]), name


def test_a_constant_score_is_worth_chance() -> None:
    metrics = measured([0.5] * 10, [True] + [False] * 9)
    chance = {"r_2@1": 0.5, "r_10@1": 0.1, "r_10@2": 0.2, "r_10@5": 0.5, "p@1": 0.1}
    assert {name: metrics[name] for name in chance} == pytest.approx(chance)


def test_a_score_that_is_no_number_ranks_last() -> None:
    assert measured([np.nan, 0.1, -np.inf], [False, True, False])["mrr"] == 1
    assert measured([np.nan, 0.1, 0.2], [True, False, False])["mrr"] == pytest.approx(1 / 3)


def test_infinite_scores_are_the_best() -> None:
    assert measured([np.inf, 3.4e38], [False, True])["p@1"] == 0

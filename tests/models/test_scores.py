"""Scores against float64 loops that transcribe the equations, and against known defects."""

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from turnwise.models.arrays import Float32
from turnwise.models.scores import (
    ROWS_KEPT,
    Aggregation,
    KeptRows,
    contributions,
    max_sim,
    max_sim_contributions,
    reachability,
    row,
    rows,
    running_query,
    score_matrix,
)

checked = settings(derandomize=True, deadline=None, max_examples=40)


class Case(NamedTuple):
    first: Float32
    second: Float32
    candidates: Float32


def units(rng: np.random.Generator, count: int, d: int) -> Float32:
    vectors = rng.normal(size=(count, d)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def case(seed: int, n: int, c: int, d: int = 8) -> Case:
    rng = np.random.default_rng(seed)
    return Case(units(rng, n, d), units(rng, n, d), units(rng, c, d))


cases = st.builds(
    case, st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 6), st.integers(2, 16)
)
limits = st.none() | st.integers(1, 10)


def naive_cosine(x: Float32, y: Float32, a: Float32) -> float:
    total = x.astype(np.float64) + y.astype(np.float64)
    norm = np.linalg.norm(total)
    return float(total @ a.astype(np.float64) / norm) if norm else 0.0


def naive_score(case: Case, candidate: int, last_rows: int | None = None) -> float:
    first, second, a = case.first, case.second, case.candidates[candidate]
    n = len(first)
    if n == 1:
        return float(second[0].astype(np.float64) @ a.astype(np.float64))
    total = 0.0
    for j in range(n):
        if last_rows is None or j >= n - last_rows:
            for i in range(j):
                total += naive_cosine(first[i], second[j], a)
    return total


def naive_max_sim(case: Case, candidate: int) -> float:
    if len(case.first) == 1:
        return naive_score(case, candidate)
    return fmean(score for score, _, _ in naive_counted_pairs(case, candidate))


def naive_counted_pairs(case: Case, candidate: int) -> list[tuple[float, int, int]]:
    first, second, a = case.first, case.second, case.candidates[candidate]
    pairs = [
        (-np.float32(naive_cosine(first[i], second[j], a)), j, i)
        for j in range(len(first))
        for i in range(j)
    ]
    used: set[int] = set()
    counted = []
    for negative, j, i in sorted(pairs):
        if i not in used or j not in used:
            counted.append((-float(negative), i, j))
            used |= {i, j}
    return counted


def naive_reachability(case: Case, candidate: int, goal: Float32) -> float:
    b2 = case.candidates[candidate]
    score = float(b2.astype(np.float64) @ goal.astype(np.float64))
    n = len(case.first)
    return score + sum(naive_cosine(b1, b2, goal) for b1 in case.first) / max(n, 1)


def prefix(case: Case, n: int) -> Case:
    return Case(case.first[:n], case.second[:n], case.candidates)


def linear_scores(case: Case, last_rows: int | None = None) -> Float32:
    return case.candidates @ running_query(rows(case.first, case.second), last_rows)


SCORERS: dict[str, Callable[[Case], Float32]] = {
    "running_query": linear_scores,
    "contributions": lambda c: contributions(*c).sum(axis=0),
    "max_sim": lambda c: max_sim(*c),
    "reachability": lambda c: reachability(c.first, c.candidates, c.second).sum(axis=1),
}
each_scorer = pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS.keys())


# Each aggregation against the equation that it names, in float64.
sums = st.just(Aggregation()) | st.builds(Aggregation, st.just("last_rows"), st.integers(1, 10))
aggregations = sums | st.just(Aggregation("max_sim"))


def naive(case: Case, candidate: int, aggregation: Aggregation) -> float:
    if aggregation.name == "max_sim":
        return naive_max_sim(case, candidate)
    return naive_score(case, candidate, aggregation.summed)


@checked
@given(cases, aggregations)
def test_scores_are_those_of_the_equation(case: Case, aggregation: Aggregation) -> None:
    wanted = [naive(case, place, aggregation) for place in range(len(case.candidates))]
    scores = aggregation.scores(*case)
    assert scores.dtype == np.float32
    assert_allclose(scores, wanted, atol=1e-5)


@checked
@given(cases, aggregations, st.booleans())
def test_contributions_sum_to_the_scores(
    case: Case, aggregation: Aggregation, paired: bool
) -> None:
    first = case.first if paired else case.first[:0]
    parts = aggregation.contributions(first, case.second, case.candidates)
    assert parts.shape == (len(case.second), len(case.candidates))
    scores = aggregation.scores(first, case.second, case.candidates)
    # Parts of a near-opposite pair are large and cancel.
    assert_allclose(parts.sum(axis=0), scores, atol=1e-5 + 1e-6 * np.abs(parts).max())


@checked
@given(cases, sums, st.booleans())
def test_the_query_of_the_vectors_is_that_of_all_rows(
    case: Case, aggregation: Aggregation, paired: bool
) -> None:
    first = case.first if paired else case.first[:0]
    wanted = running_query(rows(first, case.second), aggregation.summed, paired=paired)
    assert_allclose(aggregation.query(first, case.second), wanted, atol=1e-6)


@checked
@given(cases, limits, st.booleans(), st.data())
def test_kept_rows_have_the_query_of_all_rows(
    case: Case, last_rows: int | None, paired: bool, data: st.DataObject
) -> None:
    whole = rows(case.first if paired else case.first[:0], case.second)
    kept = KeptRows.none(whole.shape[1], paired=paired)
    while kept.count < len(whole):
        new = whole[kept.count :][: data.draw(st.integers(1, len(whole)))]
        replaced = kept.then(-new[:1]).without_last()  # as where a turn joins the last utterance
        kept = (kept if data.draw(st.booleans()) else replaced).then(new)
    wanted = running_query(whole, last_rows, paired=paired)
    query = kept.query(last_rows)
    if query is None:
        assert last_rows is not None
        assert last_rows > ROWS_KEPT
    else:
        assert_allclose(query, wanted, atol=1e-5)


def test_max_sim_has_the_query_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 4, 8)).astype(np.float32)
    query = Aggregation("max_sim").query(first, second)
    assert query.tolist() == pytest.approx(Aggregation().query(first, second).tolist())


@checked
@given(cases, limits)
def test_score_matrix_is_the_score_after_every_turn(case: Case, last_rows: int | None) -> None:
    matrix = score_matrix(rows(case.first, case.second), case.candidates, last_rows)
    assert matrix.shape == (len(case.first), len(case.candidates))
    for (t, c), score in np.ndenumerate(matrix):
        assert score == pytest.approx(naive_score(prefix(case, t + 1), c, last_rows), abs=1e-5)


@checked
@given(cases)
def test_contributions_are_each_side_of_the_pairs(case: Case) -> None:
    first, second, candidates = (x.astype(np.float64) for x in case)
    expected = np.zeros((len(first), len(candidates)))
    if len(first) == 1:
        expected = second @ candidates.T
    for j in range(len(first)):
        for i in range(j):
            norm = np.linalg.norm(first[i] + second[j])
            expected[i] += first[i] @ candidates.T / norm
            expected[j] += second[j] @ candidates.T / norm
    assert_allclose(contributions(*case), expected, rtol=1e-5, atol=1e-5)


@checked
@given(cases, st.lists(st.integers(0, 1), min_size=2, max_size=7))
def test_max_sim_breaks_ties_by_newer_then_older_utterance(case: Case, said: list[int]) -> None:
    first, second = case.first[np.minimum(said, len(case.first) - 1)], case.second[[0] * len(said)]
    repeated = Case(first, second, case.candidates)
    expected = [naive_max_sim(repeated, c) for c in range(len(case.candidates))]
    assert_allclose(max_sim(*repeated), expected, atol=1e-5)


@checked
@given(cases)
def test_max_sim_contributions_split_the_counted_pairs(case: Case) -> None:
    first, second, candidates = (x.astype(np.float64) for x in case)
    for c, parts in enumerate(max_sim_contributions(*case).T):
        counted = naive_counted_pairs(case, c)
        expected = np.zeros(len(first)) if counted else second @ candidates[c]
        for _, i, j in counted:
            norm = np.linalg.norm(first[i] + second[j]) * len(counted)
            expected[i] += first[i] @ candidates[c] / norm
            expected[j] += second[j] @ candidates[c] / norm
        assert_allclose(parts, expected, rtol=1e-5, atol=1e-5)


def test_max_sim_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = case(seed=3, n=6, c=5)
    scores, parts = max_sim(*whole), max_sim_contributions(*whole)
    monkeypatch.setattr("turnwise.models.scores._PAIR_SCORES", 2 * 6**2)
    assert_allclose(max_sim(*whole), scores, atol=1e-6)
    assert_allclose(max_sim_contributions(*whole), parts, atol=1e-6)


@checked
@given(cases, st.integers(0, 8), st.integers(1, 4))
def test_reachability_is_equation_4(case: Case, n: int, goals: int) -> None:
    context = prefix(case, n)
    targets = units(np.random.default_rng(n), goals, case.first.shape[1])
    scores = reachability(context.first, context.candidates, targets)
    assert scores.shape == (len(case.candidates), goals)
    for (c, g), score in np.ndenumerate(scores):
        assert score == pytest.approx(naive_reachability(context, c, targets[g]), abs=1e-5)


def test_scores_stay_exact_over_a_long_context() -> None:
    long = case(seed=1, n=120, c=3, d=384)
    expected = [naive_score(long, c) for c in range(3)]
    assert_allclose(linear_scores(long), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_an_opposite_pair_adds_nothing(seed: int) -> None:
    b1, _, candidates = case(seed, n=2, c=3, d=384)
    opposite = Case(b1, np.stack([b1[1], -b1[0]]), candidates)
    assert_array_equal(row(opposite.first[:1], opposite.second[1]), np.zeros(384))
    assert_array_equal(contributions(*opposite), np.zeros((2, 3)))
    assert_array_equal(max_sim(*opposite), np.zeros(3))


def test_an_opposite_candidate_is_reached_by_its_own_term_alone() -> None:
    b1 = case(seed=3, n=1, c=1).first
    assert_allclose(reachability(b1, -b1, b1), [[-1.0]], atol=1e-6)


def test_everything_is_float32() -> None:
    first, second, candidates = case(seed=4, n=3, c=2)
    stored = rows(first, second)
    results = [
        stored,
        running_query(stored),
        score_matrix(stored, candidates),
        contributions(first, second, candidates),
        max_sim(first, second, candidates),
        reachability(first, candidates, second),
        *(row(first[:m], second[m]) for m in range(3)),
    ]
    assert {result.dtype for result in results} == {np.dtype(np.float32)}


# One test for each defect of the published implementations that concerns scores.


@checked
@given(cases)
def test_an_utterance_is_not_paired_with_itself(case: Case) -> None:
    unpaired = case.first.copy()
    unpaired[-1] = -unpaired[-1]
    assert_array_equal(rows(unpaired, case.second), rows(case.first, case.second))


@checked
@given(cases, st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_rows_appended_as_utterances_come_equal_rows_from_scratch(
    case: Case, steps: list[int]
) -> None:
    stored = np.empty((0, case.first.shape[1]), np.float32)
    for step in steps:  # a step above one: no row is lost when several come before scoring
        known = slice(len(stored), len(stored) + step)
        new = [row(case.first[:j], case.second[j]) for j in range(*known.indices(len(case.first)))]
        stored = np.concatenate([stored, *(r[None] for r in new)])
    assert_array_equal(stored, rows(case.first, case.second))


@checked
@given(cases)
def test_the_last_row_is_the_newest_row(case: Case) -> None:
    stored = rows(case.first, case.second)
    assert_array_equal(running_query(stored, last_rows=1), stored[-1])


@each_scorer
def test_scoring_twice_gives_the_same_and_changes_no_input(
    scorer: Callable[[Case], Float32],
) -> None:
    given_case = case(seed=6, n=4, c=3)
    kept = [array.copy() for array in given_case]
    assert_array_equal(scorer(given_case), scorer(given_case))
    for array, before in zip(given_case, kept, strict=True):
        assert_array_equal(array, before)


@each_scorer
@pytest.mark.parametrize("n", [1, 2, 6])
def test_a_score_does_not_depend_on_its_neighbours(
    scorer: Callable[[Case], Float32], n: int
) -> None:
    together = case(seed=7, n=n, c=6)
    alone = [scorer(together._replace(candidates=a[None]))[0] for a in together.candidates]
    assert_allclose(scorer(together), alone, atol=1e-6)


def test_a_goal_score_does_not_depend_on_the_other_goals() -> None:
    first, goals, candidates = case(seed=9, n=4, c=5)
    alone = [reachability(first, candidates, goal[None])[:, 0] for goal in goals]
    assert_allclose(reachability(first, candidates, goals).T, alone, atol=1e-6)


def test_sessions_of_different_lengths_scored_as_a_batch_keep_their_scores() -> None:
    pool = case(seed=10, n=1, c=4).candidates
    sessions = [case(seed=n, n=n, c=1)._replace(candidates=pool) for n in (8, 1, 2, 3)]
    batch = np.stack([running_query(rows(s.first, s.second)) for s in sessions]) @ pool.T
    for session, scores in zip(sessions, batch, strict=True):
        assert_allclose(scores, [naive_score(session, c) for c in range(4)], atol=1e-5)


def test_rows_outlive_a_change_of_the_catalogue() -> None:
    session, other = case(seed=11, n=5, c=4), case(seed=12, n=1, c=9)
    stored = rows(session.first, session.second)
    score_matrix(stored, session.candidates)
    swapped = score_matrix(stored, other.candidates)[-1]
    moved = session._replace(candidates=other.candidates)
    assert_allclose(swapped, [naive_score(moved, c) for c in range(9)], atol=1e-5)


@pytest.mark.parametrize("last_rows", [0, -1])
def test_last_rows_below_one_are_refused(last_rows: int) -> None:
    first, second, candidates = case(seed=13, n=3, c=2)
    stored = rows(first, second)
    with pytest.raises(ValueError, match="last_rows must be at least 1"):
        running_query(stored, last_rows)
    with pytest.raises(ValueError, match="last_rows must be at least 1"):
        contributions(first, second, candidates, last_rows)


def test_an_empty_context_has_no_query() -> None:
    with pytest.raises(ValueError, match="at least one utterance"):
        running_query(np.empty((0, 4), np.float32))


@checked
@given(cases, limits)
def test_without_pairs_scores_are_sums_over_the_utterances(
    case: Case, last_rows: int | None
) -> None:
    first = case.first[:0]
    parts = case.second.astype(np.float64) @ case.candidates.astype(np.float64).T
    n = len(parts)
    oldest = 0 if last_rows is None else max(0, n - last_rows)
    kept = np.where(np.arange(n)[:, None] >= oldest, parts, 0)
    made = rows(first, case.second)
    assert_array_equal(made, case.second)
    aggregation = Aggregation("last_rows", last_rows) if last_rows else Aggregation()
    scores = aggregation.scores(first, case.second, case.candidates)
    assert_allclose(scores, kept.sum(axis=0), atol=1e-5)
    assert_allclose(contributions(first, case.second, case.candidates, last_rows), kept, atol=1e-5)
    matrix = score_matrix(made, case.candidates, paired=False)
    assert_allclose(matrix, parts.cumsum(axis=0), atol=1e-5)
    assert_allclose(max_sim(first, case.second, case.candidates), parts.mean(axis=0), atol=1e-5)
    shares = max_sim_contributions(first, case.second, case.candidates)
    assert_allclose(shares, parts / n, atol=1e-5)

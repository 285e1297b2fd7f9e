"""Scores against float64 loops that transcribe the equations."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from turnwise.models.arrays import Float32, Float64
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
)

checked = settings(derandomize=True, max_examples=40)


class Case(NamedTuple):
    first: Float32
    second: Float32
    candidates: Float32


def units(rng: np.random.Generator, count: int, d: int) -> Float32:
    """Vectors that cannot be written to, so that a score that changes its input fails."""
    vectors = rng.normal(size=(count, d)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors.setflags(write=False)
    return vectors


def case(seed: int, n: int, c: int, d: int = 8) -> Case:
    rng = np.random.default_rng(seed)
    return Case(units(rng, n, d), units(rng, n, d), units(rng, c, d))


def without_pairs(case: Case) -> Case:
    return case._replace(first=case.first[:0])


paired_cases = st.builds(
    case, st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 6), st.integers(2, 16)
)
cases = paired_cases | paired_cases.map(without_pairs)
aggregations = st.sampled_from([Aggregation(), Aggregation("max_sim")]) | st.builds(
    Aggregation, st.just("last_rows"), st.integers(1, 10)
)


def naive_cosine(x: Float32, y: Float32, a: Float32) -> float:
    total = x.astype(np.float64) + y.astype(np.float64)
    norm = np.linalg.norm(total)
    return float(total @ a.astype(np.float64) / norm) if norm else 0.0


def naive_counted_pairs(case: Case, candidate: int) -> list[tuple[int, int]]:
    """The pairs that MaxSim counts: those that hold an utterance of no better pair."""
    first = case.first
    second = case.second
    a = case.candidates[candidate]
    pairs = [
        (-np.float32(naive_cosine(first[i], second[j], a)), j, i)
        for j in range(len(first))
        for i in range(j)
    ]
    used: set[int] = set()
    counted = []
    for _, j, i in sorted(pairs):
        if i not in used or j not in used:
            counted.append((i, j))
            used |= {i, j}
    return counted


def naive_parts(case: Case, candidate: int, aggregation: Aggregation) -> Float64:
    """The (n,) parts of the utterances in the score of a candidate; their sum is the score."""
    first, second, candidates = (x.astype(np.float64) for x in case)
    a = candidates[candidate]
    n = len(second)
    oldest = max(0, n - (aggregation.summed or n))
    if len(first) == 0 or n == 1:
        alone = np.where(np.arange(n) >= oldest, second @ a, 0)
        return alone / n if aggregation.name == "max_sim" else alone
    pairs = [(i, j) for j in range(oldest, n) for i in range(j)]
    share = 1.0
    if aggregation.name == "max_sim":
        pairs = naive_counted_pairs(case, candidate)
        share = 1 / len(pairs)
    parts = np.zeros(n)
    for i, j in pairs:
        norm = np.linalg.norm(first[i] + second[j])
        parts[i] += share * first[i] @ a / norm
        parts[j] += share * second[j] @ a / norm
    return parts


def naive_scores(case: Case, aggregation: Aggregation) -> list[float]:
    places = range(len(case.candidates))
    return [float(naive_parts(case, place, aggregation).sum()) for place in places]


def naive_reachability(case: Case, candidate: int, goal: Float32) -> float:
    b2 = case.candidates[candidate]
    score = float(b2.astype(np.float64) @ goal.astype(np.float64))
    n = len(case.first)
    return score + sum(naive_cosine(b1, b2, goal) for b1 in case.first) / max(n, 1)


@checked
@given(cases, aggregations)
def test_scores_are_those_of_the_equation(case: Case, aggregation: Aggregation) -> None:
    scores = aggregation.scores(*case)
    assert scores.dtype == np.float32
    assert_allclose(scores, naive_scores(case, aggregation), atol=1e-5)


@checked
@given(cases, aggregations)
def test_contributions_are_each_side_of_the_pairs_that_count(
    case: Case, aggregation: Aggregation
) -> None:
    parts = aggregation.contributions(*case)
    assert parts.dtype == np.float32
    places = range(len(case.candidates))
    wanted = np.stack([naive_parts(case, place, aggregation) for place in places], axis=1)
    assert_allclose(parts, wanted, rtol=1e-5, atol=1e-5)


@checked
@given(cases, st.lists(st.integers(1, 3), min_size=8, max_size=8), st.booleans())
def test_kept_rows_have_the_query_of_all_rows(case: Case, sizes: list[int], joins: bool) -> None:
    paired = len(case.first) > 0
    whole = rows(case.first, case.second)
    kept = KeptRows.none(whole.shape[1], paired=paired)
    for size in sizes:
        new = whole[kept.count :][:size]
        if len(new) and joins:  # a turn joins the last utterance
            kept = kept.then(-new[:1]).without_last()
        kept = kept.then(new)
    for last_rows in (None, 1, 2, 3, 9):
        query = kept.query(last_rows)
        if query is None:
            assert last_rows is not None
            assert last_rows > ROWS_KEPT
        else:
            assert query.dtype == np.float32
            assert_allclose(query, running_query(whole, last_rows, paired=paired), atol=1e-5)


@checked
@given(cases, aggregations)
def test_the_matrix_has_the_scores_after_every_turn(case: Case, aggregation: Aggregation) -> None:
    first, second, candidates = case
    before = [Case(first[:t], second[:t], candidates) for t in range(1, len(second) + 1)]
    wanted = [naive_scores(so_far, aggregation) for so_far in before]
    assert_allclose(aggregation.matrix(*case), wanted, atol=1e-5)


@checked
@given(paired_cases, st.lists(st.integers(0, 1), min_size=2, max_size=7))
def test_max_sim_breaks_ties_by_newer_then_older_utterance(case: Case, said: list[int]) -> None:
    first = case.first[np.minimum(said, len(case.first) - 1)]
    second = case.second[[0] * len(said)]
    repeated = Case(first, second, case.candidates)
    assert_allclose(max_sim(*repeated), naive_scores(repeated, Aggregation("max_sim")), atol=1e-5)


def test_max_sim_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = case(seed=3, n=6, c=5)
    scores = max_sim(*whole)
    parts = max_sim_contributions(*whole)
    monkeypatch.setattr("turnwise.models.scores.PAIR_SCORES", 2 * 6**2)
    assert_allclose(max_sim(*whole), scores, atol=1e-6)
    assert_allclose(max_sim_contributions(*whole), parts, atol=1e-6)


@checked
@given(paired_cases, st.integers(0, 8), st.integers(1, 4))
def test_reachability_is_equation_4(case: Case, n: int, goals: int) -> None:
    context = case._replace(first=case.first[:n])
    targets = units(np.random.default_rng(n), goals, case.first.shape[1])
    scores = reachability(context.first, context.candidates, targets)
    assert scores.shape == (len(case.candidates), goals)
    assert scores.dtype == np.float32
    for (c, g), score in np.ndenumerate(scores):
        assert score == pytest.approx(naive_reachability(context, c, targets[g]), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_an_opposite_pair_adds_nothing(seed: int) -> None:
    b1, _, candidates = case(seed, n=2, c=3, d=384)
    opposite = Case(b1, np.stack([b1[1], -b1[0]]), candidates)
    assert_array_equal(row(opposite.first[:1], opposite.second[1]), np.zeros(384))
    assert_array_equal(contributions(*opposite), np.zeros((2, 3)))
    assert_array_equal(max_sim(*opposite), np.zeros(3))


def test_an_opposite_candidate_is_reached_by_its_own_term_alone() -> None:
    b1 = case(seed=3, n=1, c=1).first
    assert_allclose(reachability(b1, -b1, b1), [[-1.0]], atol=1e-6)


@checked
@given(cases, st.integers(0, 8))
def test_rows_appended_to_a_context_are_those_from_scratch(case: Case, known: int) -> None:
    first, second, _ = case
    appended = [rows(first, second[:known]), rows(first, second[known:], known)]
    assert_array_equal(np.concatenate(appended), rows(first, second))


@pytest.mark.parametrize(
    ("count", "last_rows", "message"),
    [
        (3, 0, "last_rows must be at least 1"),
        (3, -1, "last_rows must be at least 1"),
        (0, None, "at least one utterance"),
    ],
)
def test_a_query_needs_a_row(count: int, last_rows: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        running_query(np.zeros((count, 4), np.float32), last_rows)

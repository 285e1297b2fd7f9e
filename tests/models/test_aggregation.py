"""Each aggregation against the equation that it names, in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tests.models.test_mixture import Case, cases, checked, naive_max_sim, naive_score

from turnwise.models.scores import Aggregation, rows, running_query

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
@given(cases, sums)
def test_without_pairs_the_last_utterances_are_summed(case: Case, aggregation: Aggregation) -> None:
    wanted = case.candidates @ case.second[-(aggregation.summed or 0) :].sum(axis=0)
    assert_allclose(aggregation.scores(case.first[:0], *case[1:]), wanted, atol=1e-5)


@checked
@given(cases, sums, st.booleans())
def test_the_rows_read_are_enough_for_the_query(
    case: Case, aggregation: Aggregation, paired: bool
) -> None:
    first = case.first if paired else case.first[:0]
    newest = rows(first, case.second)[-(aggregation.rows_read or 0) :]
    wanted = running_query(newest, aggregation.summed, paired=paired)
    assert_allclose(aggregation.query(first, case.second), wanted, atol=1e-6)


def test_max_sim_has_the_query_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 4, 8)).astype(np.float32)
    query = Aggregation("max_sim").query(first, second)
    assert query.tolist() == pytest.approx(Aggregation().query(first, second).tolist())

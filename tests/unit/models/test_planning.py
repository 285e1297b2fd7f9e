"""Plans against brute force over the permutations, scored by loops that transcribe the paper."""

from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.models.arrays import Float64
from turnwise.models.planning import (
    MAX_GOALS,
    Order,
    plan_chain,
    plan_greedy,
    published_pull_query,
    pull_query,
)

checked = settings(derandomize=True, max_examples=40)


class Goals(NamedTuple):
    links: Float64
    pull: Float64 | None


def goals(seed: int, n: int, history: bool = True) -> Goals:
    """Goals whose arrays cannot be written to, so that a plan that changes its input fails."""
    rng = np.random.default_rng(seed)
    links = rng.uniform(-1, 1, (n, n))
    pull = rng.normal(size=n)
    links.setflags(write=False)
    pull.setflags(write=False)
    return Goals(links, pull if history else None)


problems = st.builds(goals, st.integers(0, 2**32), st.integers(1, 6), st.booleans())


@st.composite
def tied_problems(draw: st.DrawFn) -> Goals:
    """Goals of few distinct numbers, so that many orders score the same."""
    n = draw(st.integers(1, 5))
    tenths = st.integers(-1, 1).map(lambda tenth: tenth / 10)
    links = draw(st.lists(tenths, min_size=n * n, max_size=n * n))
    pull = draw(st.none() | st.lists(tenths, min_size=n, max_size=n))
    return Goals(np.reshape(links, (n, n)), None if pull is None else np.array(pull))


def naive_score(order: tuple[int, ...], problem: Goals) -> float:
    score = sum(float(problem.links[x, y]) for x, y in pairwise(order))
    if problem.pull is None:
        return score
    score += float(problem.pull[order[0]])
    for p in range(2, len(order) + 1):
        score -= (p - 1) / (len(order) - 1) * float(problem.pull[order[p - 1]])
    return score


def brute_force(problem: Goals) -> list[tuple[float, tuple[int, ...]]]:
    """All orders, best first; of equal scores the lexicographically smallest first."""
    orders = permutations(range(len(problem.links)))
    return sorted((-round(naive_score(o, problem), 9), o) for o in orders)


def assert_are_orders_of(orders: tuple[Order, ...], problem: Goals) -> None:
    """Distinct permutations, in decreasing order of the scores that they really have."""
    n = len(problem.links)
    for order in orders:
        assert sorted(order.order) == list(range(n))
        assert order.score == pytest.approx(naive_score(order.order, problem), abs=1e-9)
    scores = [order.score for order in orders]
    assert scores == sorted(scores, reverse=True)
    assert len({order.order for order in orders}) == len(orders)


@checked
@given(problems, st.integers(1, 30))
def test_the_best_orders_are_those_of_brute_force(problem: Goals, top: int) -> None:
    orders = plan_chain(*problem, top=top)
    assert_are_orders_of(orders, problem)
    expected = [-negative for negative, _ in brute_force(problem)[:top]]
    assert [order.score for order in orders] == pytest.approx(expected, abs=1e-8)


@checked
@given(tied_problems(), st.integers(1, 30))
def test_of_equal_orders_the_lexicographically_smallest_come_first(
    problem: Goals, top: int
) -> None:
    orders = plan_chain(*problem, top=top)
    assert [order.order for order in orders] == [o for _, o in brute_force(problem)[:top]]


def planted(n: int) -> tuple[Float64, tuple[int, ...]]:
    """Links whose only way to score n - 1 is one known order, amid distractors."""
    rng = np.random.default_rng(n)
    path = rng.permutation(n)
    links = rng.uniform(-1, 0.9, (n, n))
    links[path[:-1], path[1:]] = 1
    return links, tuple(path.tolist())


@pytest.mark.parametrize("n", [10, MAX_GOALS])
def test_a_planted_path_of_many_goals_is_found(n: int) -> None:
    links, path = planted(n)
    (best,) = plan_chain(links)
    assert best.order == path
    assert best.score == pytest.approx(n - 1)


def test_the_diagonal_is_not_read() -> None:
    links, pull = goals(4, 5)
    hollow = links.copy()
    np.fill_diagonal(hollow, np.nan)
    assert plan_chain(hollow, pull, top=9) == plan_chain(links, pull, top=9)


@pytest.mark.parametrize(
    ("utterances", "pull", "published"), [(1, 0.0, 0.0), (2, 0.25, 1.0), (4, 1.25, 6.0)]
)
def test_pull_is_half_the_mean_over_two_utterances_and_published_as_the_sum_of_all(
    utterances: int, pull: float, published: float
) -> None:
    context = np.outer(np.arange(utterances), [1, 0]).astype(np.float32)
    goal = np.array([1, 9], np.float32)
    assert pull_query(context) @ goal == pull
    assert published_pull_query(context) @ goal == published


@checked
@given(problems)
def test_greedy_curving_is_the_best_order_by_history_alone(problem: Goals) -> None:
    pull = np.arange(3.0) if problem.pull is None else problem.pull
    greedy = plan_greedy(pull)
    best, _ = brute_force(Goals(np.zeros((len(pull), len(pull))), pull))[0]
    assert greedy.score == pytest.approx(-best, abs=1e-8)


@pytest.mark.parametrize(
    ("links", "pull", "message"),
    [
        (np.zeros((0, 0)), None, "at least one goal"),
        (np.zeros((17, 17)), None, "17 goals are more than the 16"),
        (np.zeros((2, 3)), None, "square"),
        (np.zeros(4), None, "square"),
        (np.full((2, 2), np.inf), None, "links holds a number that is not finite"),
        (np.zeros((2, 2)), np.zeros(3), "3 goals"),
        (np.zeros((2, 2)), np.array([1, np.nan]), "pull holds a number that is not finite"),
    ],
)
def test_arrays_that_make_no_sense_are_refused(
    links: Float64, pull: Float64 | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan_chain(links, pull)


def test_a_top_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="top must be at least 1"):
        plan_chain(np.zeros((2, 2)), top=0)


@pytest.mark.parametrize("pull", [np.zeros(0), np.zeros((2, 2))])
def test_greedy_refuses_what_is_no_finite_vector(pull: Float64) -> None:
    with pytest.raises(ValueError, match="pull"):
        plan_greedy(pull)

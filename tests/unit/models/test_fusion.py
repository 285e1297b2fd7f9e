from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.arrays import Float64
from turnwise.models.confidence import Spread
from turnwise.models.fusion import DEFAULT_FUSION, NO_EXAMPLE, Fusion

FUSION = Fusion(example=4.0, height=1.0, offset=-3.0, softness=0.5)
REPLIES = Spread(0.2, 0.1, 50)
EXAMPLES = Spread(0.3, 0.15, 90)

numbers = st.floats(-3, 3).map(lambda number: float(np.float32(number)))
cosines = st.floats(-1, 1)
maybe_cosines = st.one_of(cosines, st.just(NO_EXAMPLE))
spreads = st.builds(Spread, st.floats(-2, 2), st.floats(0, 2), st.integers(2, 10**6))


def fuse(replies: list[float], examples: list[float], of_replies: Spread = REPLIES) -> Float64:
    return FUSION.scores(np.array(replies), np.array(examples), of_replies, EXAMPLES)


def naive(reply: float, cosine: float) -> float:
    z = (reply - 0.2) / 0.1
    h = 4.0 * cosine + 1.0 * (cosine - 0.3) / 0.15 - 3.0
    return 0.2 + 0.1 * 0.5 * log(exp(z / 0.5) + exp(h / 0.5))


@given(st.floats(-0.5, 1), cosines)
def test_a_fused_score_is_the_soft_maximum_of_a_naive_computation(
    reply: float, cosine: float
) -> None:
    assert fuse([reply], [cosine]) == pytest.approx([naive(reply, cosine)], abs=1e-9)


@given(numbers, maybe_cosines, spreads)
def test_an_example_never_lowers_its_own_candidate(
    reply: float, cosine: float, of_replies: Spread
) -> None:
    assert fuse([reply], [cosine], of_replies)[0] >= reply


@given(st.lists(st.tuples(numbers, maybe_cosines), min_size=1), spreads)
def test_a_candidate_without_examples_keeps_its_score_to_the_bit(
    candidates: list[tuple[float, float]], of_replies: Spread
) -> None:
    replies, examples = map(list, zip(*candidates, strict=True))
    kept = np.array(examples) == NO_EXAMPLE
    assert (fuse(replies, examples, of_replies)[kept] == np.array(replies)[kept]).all()


@given(numbers, cosines, cosines)
def test_a_better_example_never_gives_a_lower_score(reply: float, one: float, other: float) -> None:
    worse, better = sorted([one, other])
    assert fuse([reply], [better])[0] >= fuse([reply], [worse])[0]


def test_scores_that_are_all_equal_divide_by_nothing() -> None:
    same = Spread(0.5, 0.0, 2)
    scores = DEFAULT_FUSION.scores(np.array([0.5, 0.5]), np.array([0.9, NO_EXAMPLE]), same, same)
    assert np.isfinite(scores).all()
    assert scores[0] >= scores[1] == 0.5


@pytest.mark.parametrize("wrong", [{"example": -1.0}, {"height": -0.1}, {"softness": 0.0}])
def test_coefficients_that_would_punish_examples_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a fusion needs"):
        replace(FUSION, **wrong)

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turnwise.models.arrays import Float64
from turnwise.models.confidence import Spread
from turnwise.models.fusion import DEFAULT_FUSION, NO_EXAMPLE, Fusion

FUSION = Fusion(example=4.0, height=1.0, offset=-3.0, softness=0.5, agreement=0.3, utterances=-0.4)
REPLIES = Spread(0.2, 0.1, 50)
EXAMPLES = Spread(0.3, 0.15, 90)

numbers = st.floats(-3, 3).map(lambda number: float(np.float32(number)))
cosines = st.floats(-1, 1)
maybe_cosines = st.one_of(cosines, st.just(NO_EXAMPLE))
spreads = st.builds(Spread, st.floats(-2, 2), st.floats(0, 2), st.integers(2, 10**6))


lengths = st.integers(1, 200)


def fuse(
    replies: list[float], examples: list[float], of_replies: Spread = REPLIES, utterances: int = 1
) -> Float64:
    return FUSION.scores(np.array(replies), np.array(examples), of_replies, EXAMPLES, utterances)


def naive_evidence(reply: float, cosine: float, utterances: int) -> float:
    z = (reply - 0.2) / 0.1
    height = (cosine - 0.3) / 0.15
    return 4.0 * cosine + 1.0 * height + 0.3 * z - 0.4 * log(min(utterances, 8)) - 3.0


def naive(reply: float, cosine: float, utterances: int) -> float:
    z = (reply - 0.2) / 0.1
    h = naive_evidence(reply, cosine, utterances)
    return 0.2 + 0.1 * 0.5 * log(exp(z / 0.5) + exp(h / 0.5))


@given(st.floats(-0.5, 1), cosines, lengths)
def test_a_fused_score_is_the_soft_maximum_of_a_naive_computation(
    reply: float, cosine: float, utterances: int
) -> None:
    expected = naive(reply, cosine, utterances)
    assert fuse([reply], [cosine], utterances=utterances) == pytest.approx([expected], abs=1e-9)


@given(st.floats(-0.5, 1), cosines, lengths)
def test_an_example_has_matched_if_it_says_more_than_the_reply(
    reply: float, cosine: float, utterances: int
) -> None:
    more = naive_evidence(reply, cosine, utterances) - (reply - 0.2) / 0.1
    assume(abs(more) > 1e-9)
    arrays = np.array([reply, reply]), np.array([cosine, NO_EXAMPLE])
    matched = FUSION.has_matched(*arrays, REPLIES, EXAMPLES, utterances)
    assert matched.tolist() == [more > 0, False]


@given(st.lists(st.tuples(numbers, maybe_cosines), min_size=1), spreads)
def test_a_candidate_without_examples_keeps_its_score_to_the_bit(
    candidates: list[tuple[float, float]], of_replies: Spread
) -> None:
    replies, examples = map(list, zip(*candidates, strict=True))
    kept = np.array(examples) == NO_EXAMPLE
    assert (fuse(replies, examples, of_replies)[kept] == np.array(replies)[kept]).all()


def test_no_example_counts_nothing_where_no_cosine_counts() -> None:
    fusion = replace(FUSION, example=0.0, height=0.0)
    scores = fusion.scores(np.array([0.4]), np.array([NO_EXAMPLE]), REPLIES, EXAMPLES)
    assert scores.tolist() == [0.4]


def test_scores_that_are_all_equal_divide_by_nothing() -> None:
    same = Spread(0.5, 0.0, 2)
    scores = DEFAULT_FUSION.scores(np.array([0.5, 0.5]), np.array([0.9, NO_EXAMPLE]), same, same)
    assert np.isfinite(scores).all()
    assert scores[0] >= scores[1] == 0.5


@pytest.mark.parametrize(
    "wrong", [{"example": -1.0}, {"height": -0.1}, {"agreement": -0.1}, {"softness": 0.0}]
)
def test_coefficients_that_would_punish_examples_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a fusion needs"):
        replace(FUSION, **wrong)

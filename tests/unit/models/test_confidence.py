import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models import confidence
from turnwise.models.arrays import Float64
from turnwise.models.confidence import (
    Calibration,
    Moments,
    Spread,
    features,
    held_out,
    logits,
    regress,
    rescale,
)

WEIGHTS = [0.8, 1.5, 2.0, -0.3, 0.2]
CALIBRATION = Calibration(*WEIGHTS, -4.0)


def unit_vectors(n: int, seed: int = 0, d: int = 16) -> Float64:
    vectors = np.random.default_rng(seed).standard_normal((n, d)) + 0.3
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.parametrize("n", [1, 2, 300])
def test_moments_give_the_mean_and_the_deviation_of_all_scores(n: int) -> None:
    vectors = unit_vectors(n)
    query = unit_vectors(1, seed=1)[0] * 3
    spread = Moments.of(vectors.astype(np.float16)).spread(query.astype(np.float32), n)
    scores = vectors.astype(np.float16).astype(np.float64) @ query
    assert spread == pytest.approx((scores.mean(), scores.std(), n), abs=1e-4)


def test_moments_of_long_vectors_are_exact_along_the_axes_and_near_elsewhere() -> None:
    widths = np.where(np.arange(200) < confidence.AXES, 1.0, 0.1)
    vectors = np.random.default_rng(2).standard_normal((5000, 200)) * widths
    moments = Moments.of(vectors)
    assert moments.axes.shape == (confidence.AXES, 200)
    for query in np.random.default_rng(3).standard_normal((20, 200)):
        spread = moments.spread(query.astype(np.float32), 5000)
        assert spread.deviation == pytest.approx((vectors @ query).std(), rel=0.01)


def test_of_many_vectors_moments_see_some_that_are_evenly_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confidence, "SAMPLE", 100)
    vectors = unit_vectors(1001).astype(np.float32)
    query = unit_vectors(1, seed=1)[0]
    scores = vectors[::11].astype(np.float64) @ query
    spread = Moments.of(vectors).spread(query.astype(np.float32), 1001)
    assert spread == pytest.approx((scores.mean(), scores.std(), 1001), abs=1e-5)


def naive_features(scores: list[float], norm: float, utterances: int) -> list[float]:
    first, second = sorted(scores, reverse=True)[:2]
    mean = sum(scores) / len(scores)
    deviation = (sum((score - mean) ** 2 for score in scores) / len(scores)) ** 0.5
    deviation = max(deviation, 1e-6)
    return [
        (first - mean) / deviation,
        (first - second) / deviation,
        first / norm,
        float(np.log(len(scores))),
        float(np.log(utterances)),
    ]


@given(
    st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=2, max_size=30),
    st.floats(0.1, 20),
    st.integers(1, 50),
)
def test_features_are_those_of_a_naive_computation(
    scores: list[float], norm: float, utterances: int
) -> None:
    second, first = sorted(scores)[-2:]
    spread = Spread(np.mean(scores), np.std(scores), len(scores))
    got = features(first, second, spread, norm, utterances)
    assert got == pytest.approx(naive_features(scores, norm, utterances), rel=1e-6, abs=1e-6)
    logit = got @ WEIGHTS - 4.0
    assert CALIBRATION.confidence(got) == pytest.approx(1 / (1 + np.exp(-logit)))


def answers(n: int, w: list[float]) -> tuple[Float64, Float64]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, len(w) - 1)) * np.arange(1, len(w))
    p = 1 / (1 + np.exp(-(x @ w[:-1] + w[-1])))
    return x, rng.random(n) < p


def test_a_regression_is_where_the_gradient_of_the_likelihood_is_zero() -> None:
    x, right = answers(400, [1.0, -2.0, 0.5])
    w = regress(x, right)
    with_one = np.column_stack([x, np.ones(len(x))])
    left = with_one.T @ (1 / (1 + np.exp(-with_one @ w)) - right) + 1e-3 * w
    assert left == pytest.approx(np.zeros(3), abs=1e-4)
    assert w == pytest.approx([1.0, -2.0, 0.5], abs=0.5)


def test_a_regression_of_answers_that_a_line_separates_is_finite() -> None:
    x = np.array([[-1.0], [-0.5], [0.5], [1.0]])
    w = regress(x, np.array([False, False, True, True]))
    assert np.isfinite(w).all()
    assert w[0] > 1


def test_held_out_confidences_know_nothing_of_their_own_group() -> None:
    x, right = answers(300, [1.0, 0.0])
    groups = np.arange(300) // 10
    before = held_out(x, right, groups)
    changed = right.copy()
    changed[groups == 3] = ~changed[groups == 3]
    after = held_out(x, changed, groups)
    assert after[groups == 3] == pytest.approx(before[groups == 3])
    assert after != pytest.approx(before)
    assert np.isnan(held_out(x, right, np.zeros(300, np.intp))).all()


@given(st.floats(0.001, 0.999), st.floats(0.1, 5), st.floats(-3, 3))
def test_rescaling_moves_the_logit(p: float, slope: float, offset: float) -> None:
    moved = slope * np.log(p / (1 - p)) + offset
    assert rescale(p, slope, offset) == pytest.approx(1 / (1 + np.exp(-moved)), rel=1e-6)
    assert rescale(p, 1.0, 0.0) == pytest.approx(p)
    assert np.isfinite(logits(np.array([0.0, 1.0]))).all()

import numpy as np
import pytest

from turnwise.models.arrays import Float64
from turnwise.models.evaluation.answers import EncodedAnswers
from turnwise.models.fusion import Fusion
from turnwise.models.training.fusion import (
    draw_trials,
    fit_fusion,
    negative_log_likelihood,
    standardise,
)


def units(rng: np.random.Generator, *shape: int) -> Float64:
    vectors = rng.standard_normal((*shape, 16))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def pool_of(noise: float) -> EncodedAnswers:
    """Six answers whose questions lie around a point, and whose replies lie elsewhere."""
    rng = np.random.default_rng(0)
    questions = units(rng, 6)[:, None] + noise * units(rng, 6, 8)
    questions /= np.linalg.norm(questions, axis=-1, keepdims=True)
    replies = units(rng, 6).astype(np.float32)
    outside = np.empty((0, 16), np.float32)
    return EncodedAnswers(replies, tuple(questions.astype(np.float32)), outside)


def test_the_gradient_is_that_of_finite_differences() -> None:
    trial = standardise(pool_of(0.8).trial(2, 0.5, seed=1))
    w = np.array([3.0, 1.0, -2.0, 0.6, 1.2])
    _, gradient = negative_log_likelihood(w, trial)
    for index, step in enumerate(np.eye(5) * 1e-6):
        up, down = (negative_log_likelihood(w + sign * step, trial)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-6, abs=1e-5)


def test_the_loss_is_that_of_fused_scores() -> None:
    drawn = pool_of(0.8).trial(2, 0.5, seed=1)
    loss, _ = negative_log_likelihood(np.array([3.0, 1.0, -2.0, 0.6, 1.2]), standardise(drawn))
    fused = drawn.scores(Fusion(3.0, 1.0, -2.0, 0.6))
    deviations = np.array([spread.deviation for spread in drawn.of_replies])
    likelihood = np.exp(1.2 * fused / deviations[:, None])
    right = likelihood[np.arange(len(fused)), drawn.right] / likelihood.sum(axis=1)
    assert loss == pytest.approx(-np.log(right).mean())


def test_where_replies_say_nothing_examples_decide() -> None:
    pool = pool_of(0.5)
    fusion = fit_fusion([draw_trials(pool)])
    trial = pool.trial(3, 1.0, seed=9)
    assert (trial.scores(fusion).argmax(axis=1) == trial.right).mean() > 0.9

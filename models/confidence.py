"""The confidence of an answer: the probability that its first candidate is a right one.

The scores that a query Q has over a pool are roughly normal: their mean is Q · m and their variance
Q' S Q, with the mean vector m and the covariance S of the pool's vectors. The score of a right
candidate is far above the mean. The best of many wrong ones is far above it too, so the size of the
pool counts. `features` measures how far the first candidate is above the others, and a logistic
regression on the features, the calibration, turns that into a probability.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64

SAMPLE = 20_000
"""Most vectors that `Moments` are computed from."""
AXES = 64
"""Most directions along which `Moments` keep the variance."""
FOLDS = 5
"""Parts of the answers in `held_out`."""
NARROWEST = 1e-6
"""Least standard deviation of scores and least norm of a query: nothing is divided by zero."""
_LEAST = 1e-9
"""Least confidence that has a logit."""
_RIDGE = 1e-3
"""Weight of the squared coefficients in `regress`, so that separable examples have a best fit."""

Values = float | Float64
"""A number of one answer, or the numbers (n,) of n answers."""


class Spread(NamedTuple):
    """The scores of a query over the candidates that were searched.

    Attributes:
        mean: Their mean.
        deviation: Their standard deviation.
        candidates: Their number, at least 2. Wordings of one answer count as one.
    """

    mean: float
    deviation: float
    candidates: int


@dataclass(frozen=True, slots=True)
class Moments:
    """The mean and the covariance of the vectors of a pool, the latter along its main axes.

    S is taken as A' A + floor · I: exact along the `AXES` directions of largest variance, and
    equally wide along all others. Deviations are then within 2 % of the exact ones (the shipped
    model, 3,000 replies of DailyDialog), and a turn reads a sixth of the bytes.

    Attributes:
        mean: (d,).
        axes: A, (r, d).
        floor: The variance along other directions.
    """

    mean: Float32
    axes: Float32
    floor: float

    @classmethod
    def of(cls, vectors: NDArray[np.floating[Any]]) -> Self:
        """Compute the moments of n ≥ 1 vectors (n, d), from at most `SAMPLE` evenly spread ones."""
        stride = ceil(len(vectors) / SAMPLE)
        sample = vectors[::stride].astype(np.float32)
        mean = sample.mean(axis=0)
        sample -= mean
        variances, directions = np.linalg.eigh(sample.T @ sample / np.float32(len(sample)))
        others = variances[:-AXES]
        floor = float(others.mean()) if len(others) else 0.0
        kept = np.sqrt(np.maximum(variances[-AXES:] - floor, 0.0))
        return cls(mean, np.ascontiguousarray(kept[:, None] * directions.T[-AXES:]), floor)

    def spread(self, query: Float32, candidates: int) -> Spread:
        """Return the mean and the standard deviation of the scores of a query (d,)."""
        along = self.axes @ query
        variance = float(along @ along) + self.floor * float(query @ query)
        return Spread(float(query @ self.mean), max(variance, 0.0) ** 0.5, candidates)


def features(first: float, second: float, spread: Spread, norm: float, utterances: int) -> Float64:
    """Return the features of an answer, in the order of the coefficients of `Calibration`.

    Args:
        first: Score of the first candidate.
        second: Score of the next candidate with another text.
        spread: The scores of all candidates.
        norm: Length of the query, so that a score is norm · cosine.
        utterances: Number of utterances of the context, at least 1.

    Returns:
        (k,).
    """
    deviation = max(spread.deviation, NARROWEST)
    height = (first - spread.mean) / deviation
    margin = (first - second) / deviation
    cosine = first / max(norm, NARROWEST)
    return np.array([height, margin, cosine, np.log(spread.candidates), np.log(utterances)])


@dataclass(frozen=True, slots=True)
class Calibration:
    """The coefficients of `features` in the logit of the confidence, and the intercept.

    Attributes:
        height: Coefficient of the height, the first score's distance from the mean score.
        margin: Coefficient of the margin, the first score's distance from the next one.
        cosine: Coefficient of the cosine of the query and the first candidate.
        candidates: Coefficient of the logarithm of the number of candidates.
        utterances: Coefficient of the logarithm of the number of utterances of the context.
        offset: The intercept.
        fitted: Figures of the fit, for people.
    """

    height: float
    margin: float
    cosine: float
    candidates: float
    utterances: float
    offset: float
    fitted: dict[str, float] = field(default_factory=dict)

    def confidence(self, features: Float64) -> Float64:
        """Return the confidence of one answer (k,), or of n answers (n, k)."""
        weights = [self.height, self.margin, self.cosine, self.candidates, self.utterances]
        return expit(features @ np.array(weights) + self.offset)


class Prior(NamedTuple):
    """Coefficients that a regression stays near if there are few answers.

    Attributes:
        mean: (k + 1,) the coefficients, the intercept last.
        weight: (k + 1,) the weight of the squared distance from each of them.
    """

    mean: Float64
    weight: Float64


def held_out(
    features: Float64,
    right: NDArray[np.bool_],
    groups: NDArray[np.intp],
    prior: Prior | None = None,
) -> Float64:
    """Return the confidence (n,) of each answer by a regression on the other `FOLDS` - 1 folds.

    Args:
        features: (n, k) of n answers.
        right: (n,) whether the first candidate was right.
        groups: (n,) numbers; answers with the same number, such as the answers of a dialogue, share
            a fold.
        prior: As in `regress`.

    Returns:
        NaN for all if there is only one group, which leaves no others to fit on.
    """
    names, group = np.unique(groups, return_inverse=True)
    if len(names) == 1:
        return np.full(len(right), np.nan)
    fold = np.random.default_rng(0).permutation(len(names))[group] % FOLDS
    confidence = np.empty(len(right))
    for held in np.unique(fold):
        w = regress(features[fold != held], right[fold != held], prior)
        confidence[fold == held] = expit(features[fold == held] @ w[:-1] + w[-1])
    return confidence


def rescale(confidence: Values, slope: float, offset: float) -> Float64:
    """Return the confidence whose logit is slope · logit + offset (Platt, 1999)."""
    return expit(slope * logits(confidence) + offset)


def logits(confidence: Values) -> Float64:
    """Return the logits of confidences; 0 and 1, which have none, are clipped first."""
    kept = np.clip(confidence, _LEAST, 1 - _LEAST)
    return np.asarray(np.log(kept) - np.log1p(-kept))


def regress(features: Float64, right: NDArray[np.bool_], prior: Prior | None = None) -> Float64:
    """Return the coefficients (k + 1,) of a logistic regression, the intercept last.

    Args:
        features: (n, k) of n answers.
        right: (n,) whether the first candidate was right; without a prior, some must be right and
            some wrong.
        prior: Coefficients to stay near; None for a slight preference of small ones.
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped] # noqa: PLC0415

    x = np.column_stack([features, np.ones(len(features))])
    mean, weight = prior or Prior(np.zeros(x.shape[1]), np.full(x.shape[1], _RIDGE))

    def loss(w: Float64) -> tuple[float, Float64]:
        z = x @ w
        pull = weight * (w - mean)
        value = np.logaddexp(0, z).sum() - z[right].sum() + pull @ (w - mean) / 2
        return value, x.T @ (expit(z) - right) + pull

    def curvature(w: Float64) -> Float64:
        p = expit(x @ w)
        return (x * (p * (1 - p))[:, None]).T @ x + np.diag(weight)

    found = minimize(loss, mean, jac=True, hess=curvature, method="trust-exact")
    return np.asarray(found.x, np.float64)


def expit(logit: Values) -> Float64:
    """Return 1 / (1 + e^-logit), without overflow for any logit."""
    return np.asarray(np.exp(-np.logaddexp(0, -np.asarray(logit))), np.float64)

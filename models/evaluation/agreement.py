"""How far annotators agree: Krippendorff's alpha, and the reliability of scores by split halves."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.evaluation.best_worst import Answer, score_items
from turnwise.models.evaluation.correlation import spearman

Level = Literal["nominal", "ordinal"]

SPLITS = 100


def krippendorff_alpha(ratings: Float64, level: Level) -> float | None:
    """Return Krippendorff's alpha: 1 for full agreement, 0 for what chance would give.

    alpha = 1 - observed / expected disagreement, from the coincidences o_ck of values within units,
    each unit of m ratings weighing its pairs 1 / (m - 1). Two values are apart by 1 if they differ
    (nominal), or by the square of the ratings that lie between them, those of the two values
    counted half (ordinal).

    Args:
        ratings: (annotators, units), NaN where one did not rate.
        level: What the values mean.

    Returns:
        None where no unit has two ratings, or all ratings are the same.
    """
    values = np.unique(ratings[~np.isnan(ratings)])
    counts = (ratings[:, :, None] == values).sum(axis=0).astype(np.float64)  # (units, values)
    counts = counts[counts.sum(axis=1) > 1]
    others = counts.sum(axis=1, keepdims=True) - 1
    coincidences = counts.T @ (counts / others) - np.diag((counts / others).sum(axis=0))
    totals = coincidences.sum(axis=0)
    apart = _apart(totals, level)
    expected = (np.outer(totals, totals) * apart).sum()
    if not expected:
        return None
    return float(1 - (totals.sum() - 1) * (coincidences * apart).sum() / expected)


def ratings_of(answers: Sequence[Answer]) -> Float64:
    """Return answers as ratings (annotators, units): a unit is an item in a tuple, 1, 0 or -1."""
    annotators = sorted({answer.annotator for answer in answers})
    units = sorted({(answer.key, item) for answer in answers for item in answer.items})
    row = {annotator: place for place, annotator in enumerate(annotators)}
    column = {unit: place for place, unit in enumerate(units)}
    ratings = np.full((len(annotators), len(units)), np.nan)
    for answer in answers:
        for item in answer.items:
            rating = (item == answer.best) - (item == answer.worst)
            ratings[row[answer.annotator], column[answer.key, item]] = rating
    return ratings


def split_half_reliability(
    answers: Sequence[Answer], splits: int = SPLITS, seed: int = 0
) -> float | None:
    """Return Spearman's correlation of the items' scores from two halves of the answers.

    Each split deals the answers to every tuple at random to the halves; the odd one of a tuple
    falls to either. The result is the mean over the splits in which it is defined, and tells of
    scores out of half the answers: `spearman_brown` says what to expect of all.

    Returns:
        None where it is not defined in any split.
    """
    by_tuple: defaultdict[tuple[str, ...], list[Answer]] = defaultdict(list)
    for answer in answers:
        by_tuple[answer.key].append(answer)
    generator = np.random.default_rng(seed)
    correlations = [_split(list(by_tuple.values()), generator) for _ in range(splits)]
    defined = [correlation for correlation in correlations if correlation is not None]
    return float(np.mean(defined)) if defined else None


def spearman_brown(half: float) -> float | None:
    """Return the reliability of the whole from that of a half, 2r / (1 + r).

    Returns:
        None where the halves are each other's reverse, r = -1: then their sum does not vary.
    """
    return None if np.isclose(half, -1) else 2 * half / (1 + half)


def _apart(totals: Float64, level: Level) -> Float64:
    """Return the squared distances (V, V) between values, of which `totals` (V,) count each."""
    if level == "nominal":
        return 1 - np.eye(len(totals))
    middle = np.cumsum(totals) - totals / 2
    squared: Float64 = (middle[:, None] - middle) ** 2
    return squared


def _split(tuples: Sequence[Sequence[Answer]], generator: np.random.Generator) -> float | None:
    halves: tuple[list[Answer], list[Answer]] = ([], [])
    for answers in tuples:
        offset = int(generator.integers(2))
        for place, number in enumerate(generator.permutation(len(answers))):
            halves[(place + offset) % 2].append(answers[number])
    one, other = map(score_items, halves)
    both = sorted(one.keys() & other.keys())
    return spearman(
        np.array([one[item] for item in both]), np.array([other[item] for item in both])
    )

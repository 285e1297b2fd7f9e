"""Annotation: best-worst scaling, and how far annotators agree.

People find it easier to name the best and the worst of a few items than to rate each: every item
is in several tuples, and its score is how often it was best, less how often it was worst.
Krippendorff's alpha and the reliability by split halves measure the agreement. Alpha is over the
answers to the two questions, as GiCCS counts it, or over the ratings of the items that follow.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.data import Record, read_records
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.metrics import spearman

Level = Literal["nominal", "ordinal"]

SPLITS = 100
STRONG = 0.8
"""Share of annotators who agree strongly."""
FEWEST_ITEMS = 5
"""Four items have only four tuples, not eight."""

_BLOCKS = ((0, 1, 4), (0, 2, 7))
_SMALL_BLOCKS = ((0, 1, 2), (0, 1, 3))

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Annotation:
    """What one person chose as the best and the worst of a tuple."""

    items: Triple
    best: str
    worst: str
    annotator: str

    @property
    def key(self) -> tuple[str, ...]:
        """A key that does not depend on the order of the tuple's items."""
        return tuple(sorted(self.items))


def make_tuples(items: Sequence[str], seed: int = 0) -> list[Triple]:
    """Return 2N distinct tuples of three of N items, each item in exactly six of them.

    The items are shuffled and laid out on a circle, and two triangles, (0, 1, 4) and (0, 2, 7),
    are turned to each of the N positions. Every difference between corners occurs once, so from 13
    items on, save for 14, no two items meet twice, and no comparison is made twice.

    Args:
        items: At least five distinct ids.
        seed: Seed of the shuffles, of items, tuples, and the order within a tuple.

    Raises:
        TurnwiseError: There are too few items, or two are the same.
    """
    n = len(items)
    if n < FEWEST_ITEMS or len(set(items)) < n:
        raise TurnwiseError(f"best-worst scaling needs at least {FEWEST_ITEMS} items, all distinct")
    generator = np.random.default_rng(seed)
    circle = generator.permutation(n)
    blocks = _BLOCKS if n >= 13 else _SMALL_BLOCKS
    indices = [[(start + corner) % n for corner in block] for block in blocks for start in range(n)]
    shuffled = generator.permuted(circle[indices], axis=1)[generator.permutation(2 * n)]
    return [(items[a], items[b], items[c]) for a, b, c in shuffled]


def score_items(annotations: Iterable[Annotation]) -> dict[str, float]:
    """Return (1 + (best - worst) / appearances) / 2 of each item: 0 always worst, 1 always best.

    The range is fixed, so that an item's score does not depend on which others were scored.
    """
    balance: Counter[str] = Counter()
    appearances: Counter[str] = Counter()
    for annotation in annotations:
        appearances.update(annotation.items)
        balance[annotation.best] += 1
        balance[annotation.worst] -= 1
    return {item: (1 + balance[item] / count) / 2 for item, count in sorted(appearances.items())}


def read_annotations(path: str | Path) -> list[Annotation]:
    """Read the annotations of a JSON Lines file.

    A line is `{"items": [three ids], "best", "worst", "annotator"}`.

    Raises:
        DataError: The file cannot be read, does not hold such annotations, holds none, or has two
            annotations of one annotator to one tuple.
    """
    annotations: dict[tuple[object, ...], Annotation] = {}
    for record in read_records(path):
        annotation = _read_annotation(record)
        if (annotation.annotator, annotation.key) in annotations:
            raise record.error("items", f"{annotation.annotator} has already annotated this tuple")
        annotations[annotation.annotator, annotation.key] = annotation
    if not annotations:
        raise DataError("no annotation in it", str(path))
    return list(annotations.values())


def read_items(path: str | Path) -> list[str]:
    """Read the ids of the items, `{"id", ...}` a line.

    Raises:
        DataError: The file cannot be read, or a line has no id, or one that came before.
    """
    items: dict[str, None] = {}
    for record in read_records(path):
        item = record.text("id")
        if item in items:
            raise record.error("id", f'a second item "{item}"')
        items[item] = None
    return list(items)


def krippendorff_alpha(ratings: Float64, level: Level) -> float | None:
    """Return Krippendorff's alpha: 1 for full agreement, 0 for what chance would give.

    alpha = 1 - observed / expected disagreement, from the coincidences o_ck of values within units.
    A unit of m ratings weighs its pairs 1 / (m - 1). The distance of two values is 1 if they differ
    (nominal), or the square of the number of ratings between them, with half of their own
    (ordinal).

    Args:
        ratings: (annotators, units), NaN for a rating that is missing.
        level: Whether the values have an order.

    Returns:
        None if no unit has two ratings, or all ratings are the same.
    """
    # Computed here, since the package krippendorff is under the GPL; the tests compare with it.
    values = np.unique(ratings[~np.isnan(ratings)])
    counts = (ratings[:, :, None] == values).sum(axis=0).astype(np.float64)  # (units, values)
    counts = counts[counts.sum(axis=1) > 1]
    others = counts.sum(axis=1, keepdims=True) - 1
    coincidences = counts.T @ (counts / others) - np.diag((counts / others).sum(axis=0))
    totals = coincidences.sum(axis=0)
    apart = _squared_distances(totals, level)
    expected = (np.outer(totals, totals) * apart).sum()
    if not expected:
        return None
    return float(1 - (totals.sum() - 1) * (coincidences * apart).sum() / expected)


def ratings_of(annotations: Sequence[Annotation]) -> Float64:
    """Return annotations as ratings (annotators, units), 1, 0 or -1 for each item of each tuple."""
    annotators = sorted({annotation.annotator for annotation in annotations})
    units = sorted(
        {(annotation.key, item) for annotation in annotations for item in annotation.items}
    )
    row = {annotator: number for number, annotator in enumerate(annotators)}
    column = {unit: number for number, unit in enumerate(units)}
    ratings = np.full((len(annotators), len(units)), np.nan)
    for annotation in annotations:
        for item in annotation.items:
            rating = (item == annotation.best) - (item == annotation.worst)
            ratings[row[annotation.annotator], column[annotation.key, item]] = rating
    return ratings


def choices_of(annotations: Sequence[Annotation]) -> Float64:
    """Return annotations (annotators, questions) as the index, 0 to 2, of the item that was chosen.

    A tuple asks two questions, which item is best and which is worst. The index is that in the
    sorted tuple; NaN for a question that an annotator was not asked.
    """
    annotators = sorted({annotation.annotator for annotation in annotations})
    tuples = sorted({annotation.key for annotation in annotations})
    row = {annotator: number for number, annotator in enumerate(annotators)}
    column = {key: 2 * number for number, key in enumerate(tuples)}
    choices = np.full((len(annotators), 2 * len(tuples)), np.nan)
    for annotation in annotations:
        for question, item in enumerate((annotation.best, annotation.worst)):
            chosen = annotation.key.index(item)
            choices[row[annotation.annotator], column[annotation.key] + question] = chosen
    return choices


def strong_agreement(choices: Float64) -> float | None:
    """Return the share of questions to which four fifths of the annotators chose one item.

    With five annotators, as GiCCS has, these are four of them.

    Args:
        choices: (annotators, questions), as `choices_of` returns them.

    Returns:
        None if no question has two annotations.
    """
    counts = (choices[:, :, None] == np.arange(3)).sum(axis=0)
    counts = counts[counts.sum(axis=1) > 1]
    if not len(counts):
        return None
    return float((counts.max(axis=1) >= STRONG * counts.sum(axis=1)).mean())


def split_half_reliability(annotations: Sequence[Annotation], seed: int) -> float | None:
    """Return Spearman's correlation of the items' scores from two halves of the annotations.

    Each split deals the annotations to every tuple at random to the halves; the odd one of a tuple
    goes to either. The result is the mean over the splits in which it is defined. It measures
    scores from half the annotations; `spearman_brown` estimates the reliability of all.

    Returns:
        None if it is not defined in any split.
    """
    by_tuple: defaultdict[tuple[str, ...], list[Annotation]] = defaultdict(list)
    for annotation in annotations:
        by_tuple[annotation.key].append(annotation)
    generator = np.random.default_rng(seed)
    correlations = [_correlate_halves(list(by_tuple.values()), generator) for _ in range(SPLITS)]
    defined = [correlation for correlation in correlations if correlation is not None]
    return float(np.mean(defined)) if defined else None


def spearman_brown(half: float) -> float | None:
    """Return the reliability of all annotations from the reliability r of half, 2r / (1 + r).

    Returns:
        None if the halves are each other's reverse, r = -1: then their sum does not vary.
    """
    return None if np.isclose(half, -1) else 2 * half / (1 + half)


def _read_annotation(record: Record) -> Annotation:
    items = record.texts("items")
    if len(items) != 3 or len(set(items)) != 3:
        raise record.error("items", "expected three distinct ids")
    best = record.text("best")
    worst = record.text("worst")
    if best not in items:
        raise record.error("best", "not one of the items")
    if worst not in items:
        raise record.error("worst", "not one of the items")
    if best == worst:
        raise record.error("worst", "the same as the best")
    first, second, third = items
    return Annotation((first, second, third), best, worst, record.text("annotator"))


def _squared_distances(totals: Float64, level: Level) -> Float64:
    """Return the squared distances (V, V) between values that occur `totals` (V,) times."""
    if level == "nominal":
        return 1 - np.eye(len(totals))
    middle = np.cumsum(totals) - totals / 2
    squared: Float64 = (middle[:, None] - middle) ** 2
    return squared


def _correlate_halves(
    tuples: Sequence[Sequence[Annotation]], generator: np.random.Generator
) -> float | None:
    halves: tuple[list[Annotation], list[Annotation]] = ([], [])
    for annotations in tuples:
        offset = int(generator.integers(2))
        for index, number in enumerate(generator.permutation(len(annotations))):
            halves[(index + offset) % 2].append(annotations[number])
    first, second = map(score_items, halves)
    both = sorted(first.keys() & second.keys())
    return spearman(
        np.array([first[item] for item in both]), np.array([second[item] for item in both])
    )

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
class Answer:
    """One person's answer to one tuple."""

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


def score_items(answers: Iterable[Answer]) -> dict[str, float]:
    """Return (1 + (best - worst) / appearances) / 2 of each item: 0 always worst, 1 always best.

    The range is fixed, so that an item's score does not depend on which others were scored.
    """
    balance: Counter[str] = Counter()
    appearances: Counter[str] = Counter()
    for answer in answers:
        appearances.update(answer.items)
        balance[answer.best] += 1
        balance[answer.worst] -= 1
    return {item: (1 + balance[item] / count) / 2 for item, count in sorted(appearances.items())}


def read_answers(path: str | Path) -> list[Answer]:
    """Read the answers of a JSON Lines file.

    A line is `{"items": [three ids], "best", "worst", "annotator"}`.

    Raises:
        DataError: The file cannot be read, does not hold such answers, holds none, or has two
            answers of one annotator to one tuple.
    """
    answers: dict[tuple[object, ...], Answer] = {}
    for record in read_records(path):
        answer = _read_answer(record)
        if (answer.annotator, answer.key) in answers:
            raise record.error("items", f"{answer.annotator} has already answered this tuple")
        answers[answer.annotator, answer.key] = answer
    if not answers:
        raise DataError("no answer in it", str(path))
    return list(answers.values())


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


def ratings_of(answers: Sequence[Answer]) -> Float64:
    """Return answers as ratings (annotators, units), 1, 0 or -1 for each item of each tuple."""
    annotators = sorted({answer.annotator for answer in answers})
    units = sorted({(answer.key, item) for answer in answers for item in answer.items})
    row = {annotator: number for number, annotator in enumerate(annotators)}
    column = {unit: number for number, unit in enumerate(units)}
    ratings = np.full((len(annotators), len(units)), np.nan)
    for answer in answers:
        for item in answer.items:
            rating = (item == answer.best) - (item == answer.worst)
            ratings[row[answer.annotator], column[answer.key, item]] = rating
    return ratings


def choices_of(answers: Sequence[Answer]) -> Float64:
    """Return answers (annotators, questions) as the index, 0 to 2, of the item that was chosen.

    A tuple asks two questions, which item is best and which is worst. The index is that in the
    sorted tuple; NaN for a question that an annotator was not asked.
    """
    annotators = sorted({answer.annotator for answer in answers})
    tuples = sorted({answer.key for answer in answers})
    row = {annotator: number for number, annotator in enumerate(annotators)}
    column = {key: 2 * number for number, key in enumerate(tuples)}
    choices = np.full((len(annotators), 2 * len(tuples)), np.nan)
    for answer in answers:
        for question, item in enumerate((answer.best, answer.worst)):
            chosen = answer.key.index(item)
            choices[row[answer.annotator], column[answer.key] + question] = chosen
    return choices


def strong_agreement(choices: Float64) -> float | None:
    """Return the share of questions to which four fifths of the annotators chose one item.

    With five annotators, as GiCCS has, these are four of them.

    Args:
        choices: (annotators, questions), as `choices_of` returns them.

    Returns:
        None if no question has two answers.
    """
    counts = (choices[:, :, None] == np.arange(3)).sum(axis=0)
    counts = counts[counts.sum(axis=1) > 1]
    if not len(counts):
        return None
    return float((counts.max(axis=1) >= STRONG * counts.sum(axis=1)).mean())


def split_half_reliability(answers: Sequence[Answer], seed: int) -> float | None:
    """Return Spearman's correlation of the items' scores from two halves of the answers.

    Each split deals the answers to every tuple at random to the halves; the odd one of a tuple
    goes to either. The result is the mean over the splits in which it is defined. It measures
    scores from half the answers; `spearman_brown` estimates the reliability of all.

    Returns:
        None if it is not defined in any split.
    """
    by_tuple: defaultdict[tuple[str, ...], list[Answer]] = defaultdict(list)
    for answer in answers:
        by_tuple[answer.key].append(answer)
    generator = np.random.default_rng(seed)
    correlations = [_correlate_halves(list(by_tuple.values()), generator) for _ in range(SPLITS)]
    defined = [correlation for correlation in correlations if correlation is not None]
    return float(np.mean(defined)) if defined else None


def spearman_brown(half: float) -> float | None:
    """Return the reliability of all answers from the reliability r of half, 2r / (1 + r).

    Returns:
        None if the halves are each other's reverse, r = -1: then their sum does not vary.
    """
    return None if np.isclose(half, -1) else 2 * half / (1 + half)


def _read_answer(record: Record) -> Answer:
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
    return Answer((first, second, third), best, worst, record.text("annotator"))


def _squared_distances(totals: Float64, level: Level) -> Float64:
    """Return the squared distances (V, V) between values that occur `totals` (V,) times."""
    if level == "nominal":
        return 1 - np.eye(len(totals))
    middle = np.cumsum(totals) - totals / 2
    squared: Float64 = (middle[:, None] - middle) ** 2
    return squared


def _correlate_halves(
    tuples: Sequence[Sequence[Answer]], generator: np.random.Generator
) -> float | None:
    halves: tuple[list[Answer], list[Answer]] = ([], [])
    for answers in tuples:
        offset = int(generator.integers(2))
        for index, number in enumerate(generator.permutation(len(answers))):
            halves[(index + offset) % 2].append(answers[number])
    first, second = map(score_items, halves)
    both = sorted(first.keys() & second.keys())
    return spearman(
        np.array([first[item] for item in both]), np.array([second[item] for item in both])
    )

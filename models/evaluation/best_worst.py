"""Best-worst scaling: which tuples to ask about, and scores out of the answers.

People find it easier to name the best and the worst of a few items than to rate each: every item
stands in several tuples, and its score is how often it was best less how often it was worst.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turnwise.models.data import Record, read_records
from turnwise.models.errors import DataError, TurnwiseError

FEWEST = 5
"""Items: of four there are only four tuples, not eight."""

_BLOCKS = ((0, 1, 4), (0, 2, 7))
_SMALL_BLOCKS = ((0, 1, 2), (0, 1, 3))

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one person said of one tuple."""

    items: Triple
    best: str
    worst: str
    annotator: str

    @property
    def key(self) -> tuple[str, ...]:
        """The tuple, however its items were ordered."""
        return tuple(sorted(self.items))


def make_tuples(items: Sequence[str], seed: int = 0) -> list[Triple]:
    """Return 2N distinct tuples of three of N items, each item in exactly six of them.

    The items are shuffled and laid out on a circle, and two triangles, (0, 1, 4) and (0, 2, 7),
    are turned to each of the N places. Every difference between corners occurs once, so from 13
    items on, save for 14, no two items meet twice: no comparison is spent on what is known.

    Args:
        items: At least five distinct ids.
        seed: Seed of the shuffles, of items, tuples, and the order within a tuple.

    Raises:
        TurnwiseError: There are too few items, or one stands there twice.
    """
    n = len(items)
    if n < FEWEST or len(set(items)) < n:
        raise TurnwiseError(f"best-worst scaling needs at least {FEWEST} items, all distinct")
    generator = np.random.default_rng(seed)
    circle = generator.permutation(n)
    blocks = _BLOCKS if n >= 13 else _SMALL_BLOCKS
    places = [[(start + corner) % n for corner in block] for block in blocks for start in range(n)]
    shuffled = generator.permuted(circle[places], axis=1)[generator.permutation(2 * n)]
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
        DataError: The file cannot be read or does not hold such answers, or holds none, or one
            annotator answers a tuple twice.
    """
    answers: dict[tuple[object, ...], Answer] = {}
    for record in read_records(path):
        answer = _answer(record)
        if (answer.annotator, answer.key) in answers:
            raise record.error("items", f"a second answer of {answer.annotator} to this tuple")
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


def _answer(record: Record) -> Answer:
    items = record.texts("items")
    if len(items) != 3 or len(set(items)) != 3:
        raise record.error("items", "expected three distinct ids")
    best, worst = record.text("best"), record.text("worst")
    for field, chosen in (("best", best), ("worst", worst)):
        if chosen not in items:
            raise record.error(field, "not one of the items")
    if best == worst:
        raise record.error("worst", "the same as the best")
    first, second, third = items
    return Answer((first, second, third), best, worst, record.text("annotator"))

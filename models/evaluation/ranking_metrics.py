"""What a ranking of candidates is worth, several of which may be right; ties count by chance.

Where candidates have equal scores, a metric is its expected value over a random order of these: a
tie of one right and one wrong candidate counts half, and a constant score is worth what chance is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32
from turnwise.models.evaluation.metrics import Metrics

CUTS = (1, 2, 5)

Relevant = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tie:
    """Candidates of equal score, which take the places `before` + 1 to `before` + `size`.

    Attributes:
        before: Candidates with a better score.
        found: How many of those are right.
        size: Candidates with this score.
        right: How many of these are right.
    """

    before: int
    found: int
    size: int
    right: int


def ranking_metrics(scores: Float32, relevant: Relevant, name: str | None = None) -> Metrics:
    """Return R_n@1, R_n@2, R_n@5, R_2@1, MAP, MRR and P@1 of one context.

    With several right candidates, as in the Douban corpus, R_n@k is the share of them that stands
    among the first k, and MRR looks at the first of them. R_2@1 is the share of pairs of a right
    and a wrong candidate in which the right one has the better score: its expected value over the
    choice of the one wrong candidate.

    Args:
        scores: (n,), higher is better; what is no number ranks last.
        relevant: (n,), at least one right and one wrong candidate.
        name: What stands for n in the metrics' names, if not the number of candidates.

    Returns:
        From `r_2@1`, `r_10@1`, ..., `map`, `mrr`, `p@1` to a number; no R_n@k with k ≥ n.
    """
    ties = list(_ties(np.nan_to_num(scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf), relevant))
    n, right = len(scores), int(relevant.sum())
    return {
        "r_2@1": _won_pairs(ties, right, n - right),
        **{f"r_{name or n}@{k}": _found(ties, k) / right for k in CUTS if k < n},
        "map": sum(map(_precisions, ties)) / right,
        "mrr": _reciprocal_rank(next(tie for tie in ties if tie.right)),
        "p@1": _found(ties, 1),
    }


def _ties(scores: Float32, relevant: Relevant) -> Iterator[Tie]:
    """Yield the groups of equal score, the best first."""
    before = found = 0
    for score in np.unique(scores)[::-1]:
        equal = scores == score
        size, right = int(equal.sum()), int(relevant[equal].sum())
        yield Tie(before, found, size, right)
        before, found = before + size, found + right


def _found(ties: list[Tie], k: int) -> float:
    """Return how many right candidates stand among the first k."""
    return sum(tie.right * min(max(k - tie.before, 0), tie.size) / tie.size for tie in ties)


def _won_pairs(ties: list[Tie], right: int, wrong: int) -> float:
    won = 0.0
    for tie in ties:
        beaten = wrong - (tie.before - tie.found) - (tie.size - tie.right)
        won += tie.right * (beaten + (tie.size - tie.right) / 2)
    return won / (right * wrong)


def _precisions(tie: Tie) -> float:
    """Return the sum of the precisions at the places of a tie's right candidates.

    Any place of the tie holds a right candidate with probability right / size; if it does, the
    other right ones are spread evenly over the other places.
    """
    others = (tie.right - 1) / max(tie.size - 1, 1)
    return sum(
        tie.right / tie.size * (tie.found + 1 + j * others) / (tie.before + 1 + j)
        for j in range(tie.size)
    )


def _reciprocal_rank(tie: Tie) -> float:
    """Return the expected 1 / place of the first right candidate of a tie."""
    return sum(
        comb(tie.size - 1 - j, tie.right - 1) / comb(tie.size, tie.right) / (tie.before + 1 + j)
        for j in range(tie.size - tie.right + 1)
    )

"""Standard errors, and a test whether two systems differ by more than chance.

Contexts of one dialogue are alike, so both count a dialogue as one observation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float64
from turnwise.models.evaluation.metrics import Indices

LEVEL = 0.05
"""Two systems differ if their p is less."""
RESAMPLES = 10_000
BLOCK = 100
"""Resamples that are in memory at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The values of the plotted metric that a system reached, one for each of n examples.

    Attributes:
        values: (n,), such as ranks.
        settings: (n,) name of the setting of each example; settings weigh the same in the mean.
        dialogues: (n,) number of the dialogue of each example.
        candidates: The number of candidates of each example, in a table whose rows differ in it.
            Only rows with the same number are compared.
    """

    values: Float64
    settings: NDArray[np.str_]
    dialogues: Indices
    candidates: int | None = None

    @property
    def mean(self) -> float:
        """The metric itself: the mean over settings of the mean over examples."""
        return float(np.mean(self._sums(self.values).sum(axis=0) / self.counts.sum(axis=0)))

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean; None of a single dialogue.

        That is √(D/(D - 1) Σ_d t_d²), where t_d is the part of the mean that comes from the
        deviations of dialogue d of D. With one setting and one example a dialogue it is s/√n.
        """
        counts = self.counts
        dialogues = len(counts)
        if dialogues == 1:
            return None
        added = (self.centred / counts.sum(axis=0)).mean(axis=1)
        return float(np.sqrt(dialogues / (dialogues - 1) * np.square(added).sum()))

    @property
    def counts(self) -> Float64:
        """The number of examples of each dialogue in each setting, (dialogues, settings)."""
        return self._sums(np.ones_like(self.values))

    @property
    def centred(self) -> Float64:
        """The sums of the values less the mean of their setting, (dialogues, settings)."""
        counts = self.counts
        sums = self._sums(self.values)
        centred: Float64 = sums - counts * (sums.sum(axis=0) / counts.sum(axis=0))
        return centred

    def _sums(self, values: Float64) -> Float64:
        """Return the sums of (n,) values, (dialogues, settings)."""
        _, row = np.unique(self.dialogues, return_inverse=True)
        _, column = np.unique(self.settings, return_inverse=True)
        sums = np.zeros((row.max() + 1, column.max() + 1))
        np.add.at(sums, (row, column), values)
        return sums


def p_values(best: Outcomes, others: Sequence[Outcomes]) -> list[float]:
    """Return the two-sided p of the difference between each of the others and the best.

    It is a paired bootstrap over dialogues (Efron and Tibshirani, An Introduction to the Bootstrap,
    1993, section 16.4): the differences are shifted to the mean 0, dialogues are drawn with
    replacement, and p is the share of the resamples whose mean is as far from 0 as the one
    observed. Few dialogues cannot show a difference: of D, p is at least 2^(1 - D), the smallest p
    of a sign test. There is no correction for the number of rows.

    Args:
        best: The outcomes to compare with.
        others: Outcomes of the same examples, in the same order.
    """
    if not others:
        return []
    differences = [replace(best, values=other.values - best.values) for other in others]
    observed = np.abs([difference.mean for difference in differences])
    centred = np.stack([difference.centred for difference in differences], axis=1)
    counts = best.counts
    as_far = np.zeros(len(others))
    for drawn in draw_resamples(len(counts)):
        sums = np.tensordot(drawn, centred, 1)  # (resamples, others, settings)
        means = (sums / np.maximum(drawn @ counts, 1)[:, None]).mean(axis=2)
        as_far += np.count_nonzero(np.abs(means) >= observed - 1e-9, axis=0)
    p = (as_far + 1) / (RESAMPLES + 1)
    return [float(each) for each in np.maximum(p, 2.0 ** (1 - len(counts)))]


def draw_resamples(dialogues: int) -> Iterator[Float64]:
    """Yield how often each dialogue is drawn, (BLOCK, dialogues)."""
    generator = np.random.default_rng(0)
    first = dialogues * np.arange(BLOCK)[:, None]
    for _ in range(RESAMPLES // BLOCK):
        drawn = first + generator.integers(dialogues, size=(BLOCK, dialogues))
        times = np.bincount(drawn.ravel(), minlength=BLOCK * dialogues)
        yield times.reshape(BLOCK, dialogues).astype(np.float64)

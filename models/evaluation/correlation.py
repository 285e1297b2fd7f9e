"""Correlations, where they are defined."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata  # type: ignore[import-untyped]

FEWEST = 3
"""Pairs that a correlation needs; two always lie on a line."""


def pearson(first: NDArray[np.floating], second: NDArray[np.floating]) -> float | None:
    """Return the correlation of (n,) and (n,); None where it is not defined."""
    if len(first) < FEWEST or not np.ptp(first) or not np.ptp(second):
        return None
    return float(np.corrcoef(first, second)[0, 1])


def spearman(first: NDArray[np.floating], second: NDArray[np.floating]) -> float | None:
    """Return the correlation of the ranks of (n,) and (n,), ties sharing theirs."""
    return pearson(rankdata(first), rankdata(second))

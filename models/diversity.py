"""Maximal marginal relevance: candidates that score well and differ from each other."""

import numpy as np

from turnwise.models.arrays import Float32, Float64


def most_diverse(scores: Float64, vectors: Float32, diversity: float, k: int) -> list[int]:
    """Return the indices of the k best of C candidates, in the order in which they are chosen.

    Each choice maximises (1 - diversity) · r - diversity · s (Carbonell and Goldstein, 1998,
    eq. 1). r is the score, scaled to [0, 1] over the C candidates; s is the largest cosine to a
    candidate that was chosen before, or 0 for the first. Of equal candidates the earlier wins.

    Args:
        scores: (C,), C ≥ 1; higher is better.
        vectors: (C, d) unit rows.
        diversity: From 0, the order of the scores, to 1.
        k: Candidates to choose; all of them if there are fewer.
    """
    relevance = scores - scores.min()
    relevance /= relevance.max() or 1.0  # the maximum is 0 if all scores are equal
    nearest = np.zeros(len(scores))
    chosen: list[int] = []
    for _ in range(min(k, len(scores))):
        value = (1 - diversity) * relevance - diversity * nearest
        value[chosen] = -np.inf
        best = int(value.argmax())
        cosines = vectors @ vectors[best]
        nearest = np.maximum(nearest, cosines) if chosen else cosines.astype(np.float64)
        chosen.append(best)
    return chosen

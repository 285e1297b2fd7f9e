import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.models.arrays import Float64
from turnwise.models.diversity import most_diverse


def naive(scores: list[float], vectors: Float64, diversity: float, k: int) -> list[float]:
    """The value of each choice, from the equation itself."""
    low, high = min(scores), max(scores)
    relevance = [(score - low) / (high - low) if high > low else 0.0 for score in scores]
    chosen: list[int] = []
    best: list[float] = []
    while len(chosen) < min(k, len(scores)):
        values = {
            place: (1 - diversity) * relevance[place]
            - diversity * max((float(vectors[place] @ vectors[c]) for c in chosen), default=0.0)
            for place in range(len(scores))
            if place not in chosen
        }
        chosen.append(max(values, key=lambda place: values[place]))
        best.append(values[chosen[-1]])
    return best


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), st.integers(1, 15), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_each_choice_is_the_best_of_the_equation(
    count: int, k: int, diversity: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = rng.normal(size=count)
    chosen = most_diverse(scores, vectors.astype(np.float32), diversity, k)
    assert len(set(chosen)) == len(chosen) == min(k, count)
    relevance = (scores - scores.min()) / (np.ptp(scores) or 1.0)
    values = [
        (1 - diversity) * relevance[place]
        - diversity * max((float(vectors[place] @ vectors[c]) for c in chosen[:n]), default=0.0)
        for n, place in enumerate(chosen)
    ]
    np.testing.assert_allclose(values, naive([*scores], vectors, diversity, k), atol=1e-5)


def test_without_diversity_the_scores_decide() -> None:
    vectors = np.ones((4, 1), np.float32)
    assert most_diverse(np.array([1.0, 3.0, 3.0, 2.0]), vectors, 0.0, 3) == [1, 2, 3]


def test_with_diversity_a_copy_comes_last() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    assert most_diverse(np.array([3.0, 2.9, 1.0]), vectors, 0.6, 3) == [0, 2, 1]

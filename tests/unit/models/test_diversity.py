import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.models.diversity import most_diverse


@settings(max_examples=100)
@given(st.integers(1, 12), st.integers(1, 15), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_each_choice_is_the_best_of_the_equation(
    count: int, k: int, diversity: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = rng.normal(size=count)
    relevance = (scores - scores.min()) / (np.ptp(scores) or 1.0)
    chosen = most_diverse(scores, vectors.astype(np.float32), diversity, k)
    assert len(set(chosen)) == len(chosen) == min(k, count)
    for n, best in enumerate(chosen):
        values = {
            place: (1 - diversity) * relevance[place]
            - diversity * max((float(vectors[place] @ vectors[c]) for c in chosen[:n]), default=0.0)
            for place in set(range(count)) - set(chosen[:n])
        }
        assert values[best] == pytest.approx(max(values.values()), abs=1e-5)


def test_without_diversity_the_scores_decide() -> None:
    vectors = np.ones((4, 1), np.float32)
    assert most_diverse(np.array([1.0, 3.0, 3.0, 2.0]), vectors, 0.0, 3) == [1, 2, 3]

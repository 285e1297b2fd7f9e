import numpy as np
import pytest

from turnwise.models.data import Dialogue
from turnwise.models.evaluation.next_utterance import (
    measure_by_length,
    measure_in_full_pool,
    ranks_among_length,
)
from turnwise.models.evaluation.split import make_split
from turnwise.models.evaluation.systems import System


def constant(contexts: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    return np.zeros((len(contexts), len(candidates)), np.float32)


def test_candidates_are_those_of_the_same_length(dialogues: list[Dialogue]) -> None:
    split = make_split(dialogues, [3, 10])

    def only_true_first(contexts: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        assert set(candidates) <= set(split.true)
        return (candidates == split.true[contexts][:, None]).astype(np.float32)

    metrics = measure_by_length(ranks_among_length(System("oracle", only_true_first), split), split)
    assert metrics["average_rank"] == 1
    by_chance = measure_by_length(ranks_among_length(System("constant", constant), split), split)
    assert by_chance["average_rank/h=3"] == 4  # of 7
    assert by_chance["average_rank/h=10"] == 2  # of 3
    assert by_chance["average_rank"] == 3


def test_equal_texts_are_ties(dialogues: list[Dialogue]) -> None:
    split = make_split([dialogues[0], dialogues[0], dialogues[2]], [3])

    def by_place(contexts: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        return np.tile(-candidates.astype(np.float32), (len(contexts), 1))

    metrics = measure_by_length(ranks_among_length(System("by place", by_place), split), split)
    assert metrics["average_rank"] == pytest.approx((1.5 + 1.5 + 3) / 3)


def test_the_full_pool_takes_all_lengths_together(dialogues: list[Dialogue]) -> None:
    split = make_split(dialogues, [3, 10])
    metrics = measure_in_full_pool(System("constant", constant), split)
    assert metrics["full_pool_average_rank"] == (len(split.pool) + 1) / 2

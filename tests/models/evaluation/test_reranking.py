from collections.abc import Sequence

import numpy as np
import pytest

from turnwise.models.data import Dialogue
from turnwise.models.evaluation.metrics import Places, Scores
from turnwise.models.evaluation.reranking import (
    pairwise_system,
    reranked,
    retriever,
    scorer_system,
)
from turnwise.models.evaluation.split import Split, make_split
from turnwise.models.evaluation.systems import System
from turnwise.models.rerankers import IoI, PairwiseModel
from turnwise.models.scores import Aggregation

ONE = np.array([0])


@pytest.fixture
def split(dialogues: list[Dialogue]) -> Split:
    return make_split(dialogues, [2, 5], full_pool=False)


def fixed(scores: Sequence[float]) -> System:
    """A system whose scores of the candidates 0, 1, ... are the same for every context."""
    row = np.array(scores, np.float32)

    def of(contexts: Places, candidates: Places) -> Scores:
        return np.tile(row[candidates], (len(contexts), 1))

    return System("fixed", of, lambda _: row)


def test_pairwise_scores_are_cosines_of_context_and_response(
    pairwise: PairwiseModel, split: Split
) -> None:
    contexts = [context.texts for context in split.contexts]
    expected = pairwise.encode_contexts(contexts) @ pairwise.encode_responses(split.pool).T
    everything = np.arange(len(contexts)), np.arange(len(split.pool))
    scores = pairwise_system(pairwise, split).scores(*everything)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_the_timed_pairwise_turn_works_out_the_context(
    pairwise: PairwiseModel, split: Split
) -> None:
    query = pairwise_system(pairwise, split).turn(3)
    expected = pairwise.encode_contexts([split.contexts[3].texts])[0]
    np.testing.assert_allclose(query, expected, atol=1e-5)


def test_a_scorer_reads_the_history_with_each_candidate(ioi: IoI, split: Split) -> None:
    scores = scorer_system(ioi, split).scores(np.array([1, 4]), np.array([2, 0]))
    texts = [split.pool[2], split.pool[0]]
    expected = [ioi.scores(split.contexts[place].texts, texts) for place in (1, 4)]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_the_short_list_is_in_the_order_of_the_second_system() -> None:
    first, second = [3.0, 1.0, 2.0, 0.0], [0.0, 400.0, 100.0, 300.0]
    scores = reranked(fixed(first), fixed(second)).scores(ONE, np.arange(4))
    assert scores[0].tolist() == second


def test_what_is_not_on_the_short_list_stays_behind_in_its_order() -> None:
    first, second = [5.0, 4.0, 3.0, 2.0, 1.0], [-9.0, 9.0, 8.0, 99.0, 99.0]
    scores = reranked(fixed(first), fixed(second), short_list=3).scores(ONE, np.arange(5))
    assert list(np.argsort(-scores[0])) == [1, 2, 0, 3, 4]


def test_the_second_system_reads_the_short_list_alone() -> None:
    seen: list[int] = []

    def scores(contexts: Places, candidates: Places) -> Scores:
        seen.extend(candidates)
        return np.zeros((len(contexts), len(candidates)), np.float32)

    second = System("second", scores, lambda _: None)
    reranked(fixed([1, 3, 2]), second, short_list=2).scores(ONE, np.array([2, 1, 0]))
    assert sorted(seen) == [1, 2]


@pytest.mark.parametrize(
    ("aggregation", "name"),
    [
        (Aggregation("mean"), "mean"),
        (Aggregation("max_sim"), "mean"),
        (Aggregation("last_rows", 1), "last 1 row"),
        (Aggregation("last_rows", 2), "last 2 rows"),
        (Aggregation("last_rows", 9), "mean"),
    ],
)
def test_the_running_query_of_the_model_card_finds_the_short_list(
    aggregation: Aggregation, name: str
) -> None:
    names = ("bi-encoder", "mean", "last 1 row", "last 2 rows", "MaxSim")
    systems = [System(name, fixed([0]).scores, lambda _: None) for name in names]
    assert retriever(systems, aggregation).name == name

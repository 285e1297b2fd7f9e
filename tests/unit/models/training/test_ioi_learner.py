from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.models.training.conftest import take_steps
from turnwise.models.card import reranker_kind
from turnwise.models.data import Utterance
from turnwise.models.evaluation.ranking import RankingExample
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.training.config import IoIConfig
from turnwise.models.training.learners.ioi import IoILearner, add_negatives
from turnwise.models.training.validation import response_metrics


def test_the_network_is_kept_as_it_was_trained(ioi_config: IoIConfig, tmp_path: Path) -> None:
    learner = IoILearner(ioi_config, Path)
    take_steps(learner, 1)
    learner.save(tmp_path / "model")
    assert reranker_kind(tmp_path / "model") == "ioi"
    assert IoI.load(tmp_path / "model", "cpu").fingerprint == learner.model.fingerprint


def test_the_objective_may_be_global(ioi_config: IoIConfig) -> None:
    network = ioi_config.network.model_copy(update={"objective": "global"})
    learner = IoILearner(ioi_config.model_copy(update={"network": network}), Path)
    parts, _ = learner.loss(learner.batches(0)[0], np.random.default_rng(0))
    assert parts.keys() == {"global"}


def test_word2vec_gives_the_first_vectors(ioi_config: IoIConfig) -> None:
    one, two = (IoILearner(ioi_config, Path).model for _ in range(2))
    other = IoILearner(ioi_config.model_copy(update={"seed": 1}), Path).model
    table = one.network.embedding.weight
    assert torch.equal(table, two.network.embedding.weight)
    assert not torch.equal(table, other.network.embedding.weight)
    assert len(table) == len(one.vocabulary)
    assert set("abcxyz") <= set(one.vocabulary.words)
    assert not table[:2].any()
    assert table[2:].any(dim=1).all()


def test_each_true_response_stands_beside_a_wrong_one() -> None:
    true = [(((n,),), (n,)) for n in range(2, 30)]
    responses = [response for _, response in true]
    examples = add_negatives(true, responses, np.random.default_rng(0))
    assert examples[::2] == true
    for (context, response), wrong in zip(true, examples[1::2], strict=True):
        assert wrong[0] == context
        assert wrong[1] != response
    assert len({wrong[1] for wrong in examples[1::2]}) > 10


def test_a_wrong_response_is_found_where_most_are_right() -> None:
    responses = [(2,)] * 50 + [(3,)]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert add_negatives([(((2,),), (2,))], responses, rng)[1][1] == (3,)


def test_the_learning_rate_decays_to_the_least(ioi_config: IoIConfig) -> None:
    rates = {"learning_rate": 5e-4, "least_learning_rate": 5e-5}
    config = IoIConfig.model_validate(ioi_config.model_dump() | {"optimiser": rates})
    factor = IoILearner(config, Path).rate(10)
    assert factor(0) == 1
    assert factor(1000) == pytest.approx(0.9)
    assert factor(500) == pytest.approx(0.9**0.5)
    assert factor(10**6) == pytest.approx(0.1)


def test_the_network_is_measured_by_the_rank_of_the_true_response() -> None:
    def lengths(example: RankingExample) -> np.ndarray:
        return np.array([len(text) for text in example.candidates], np.float32)

    said = (Utterance("A", "hi"),)
    examples = [
        RankingExample(said, "B", ("a", "aaa", "aa"), (0, 1, 0)),
        RankingExample(said, "B", ("aa", "aaa", "a", "aaaa"), (1, 0, 0, 0)),
    ]
    measured = response_metrics(lengths, examples)
    assert measured == pytest.approx({"average_rank": 2, "r10@1": 0.5, "mrr": 2 / 3})

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from turnwise.models.data import Utterance
from turnwise.models.errors import DataError
from turnwise.models.evaluation.ranking_examples import RankingExample
from turnwise.models.rerankers import reranker_kind
from turnwise.models.rerankers.ioi import IoI
from turnwise.models.roles import EncoderKind
from turnwise.models.training.ioi import (
    Item,
    decay,
    items_of,
    make_model,
    measure,
    train_ioi,
    with_negatives,
)
from turnwise.models.training.loop import Progress
from turnwise.models.training.pairs import read_pairs
from turnwise.models.training.reranker_config import IoIConfig, IoIOptimiser


@pytest.fixture
def config(matters: Path) -> IoIConfig:
    return IoIConfig.model_validate(
        {
            "kind": "ioi",
            "data": [{"path": str(matters)}],
            "validation": {"paths": [str(matters)], "every": 2},
            "network": {"blocks": 2, "dimension": 12, "words": 5, "turns": 3},
            "word_vectors": {"min_count": 1, "epochs": 1},
            "batch": 20,
            "epochs": 2,
            "optimiser": {"learning_rate": 5e-3},
        }
    )


def never(_: str) -> bool:
    return False


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "learner.safetensors")


@pytest.mark.parametrize("objective", ["local", "global"])
def test_training_tells_true_from_wrong(config: IoIConfig, tmp_path: Path, objective: str) -> None:
    seen: list[Progress] = []
    network = config.network.model_copy(update={"objective": objective})
    rarely = config.validation.model_copy(update={"every": 20})
    longer = config.model_copy(update={"epochs": 25, "network": network, "validation": rarely})
    folder = train_ioi(longer, tmp_path / "out", report=seen.append, device="cpu")
    losses = [progress.losses[objective] for progress in seen]
    assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:8])
    assert reranker_kind(folder) == "ioi"
    best = min(p.validation["average_rank"] for p in seen if p.validation)
    assert best < 4
    scores = IoI.load(folder, "cpu").scores(["a z"], ["a y", "m x", "p z"])
    assert scores.argmax() == 0


def test_word2vec_gives_the_first_vectors(config: IoIConfig) -> None:
    pairs = read_pairs(config.data[0], Path, 3, never)
    one, two = (make_model(config, pairs, "cpu") for _ in range(2))
    table = one.network.embedding.weight
    assert torch.equal(table, two.network.embedding.weight)
    assert len(table) == len(one.vocabulary)
    assert set("abcxyz") <= set(one.vocabulary.words)
    assert not table[:2].any()
    assert table[2:].any(dim=1).all()


def test_a_resumed_run_ends_where_an_unbroken_one_does(
    config: IoIConfig, check_resuming: Callable[[Callable[..., object]], None]
) -> None:
    check_resuming(partial(train_ioi, config, device="cpu"))


def test_another_seed_is_another_run(config: IoIConfig, tmp_path: Path) -> None:
    for seed in (0, 1):
        run = config.model_copy(update={"seed": seed, "epochs": 1})
        train_ioi(run, tmp_path / str(seed), device="cpu")
    one, two = (weights(tmp_path / str(seed)) for seed in (0, 1))
    assert not torch.equal(one["embedding.weight"], two["embedding.weight"])


def test_each_true_response_stands_beside_a_wrong_one() -> None:
    items = [Item(((n,),), (n,), ()) for n in range(2, 30)]
    responses = [item.response for item in items]
    rng = np.random.default_rng(0)
    examples = with_negatives(items, responses, 0.0, rng)
    for item, true, wrong in zip(items, examples[::2], examples[1::2], strict=True):
        assert true == (item.context, item.response)
        assert wrong[0] == item.context
        assert wrong[1] != item.response
    assert len({wrong[1] for wrong in examples[1::2]}) > 10


def test_hard_negatives_take_their_share() -> None:
    items = [Item(((2,),), (2,), ((7,), (8,)))] * 400
    responses = [(2,), (3,)]
    examples = with_negatives(items, responses, 0.25, np.random.default_rng(0))
    hard = [wrong in ((7,), (8,)) for _, wrong in examples[1::2]]
    assert np.mean(hard) == pytest.approx(0.25, abs=0.06)


def test_a_wrong_response_is_found_where_most_are_right() -> None:
    items = [Item(((2,),), (2,), ((2,),))]
    responses = [(2,)] * 50 + [(3,)]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert with_negatives(items, responses, 1.0, rng)[1][1] == (3,)


def test_hard_negatives_come_from_the_encoder(
    config: IoIConfig, tiny_encoder_folder: Callable[[EncoderKind], Path]
) -> None:
    negatives = {"hard": 0.5, "encoder": str(tiny_encoder_folder(EncoderKind.TRIPLE)), "among": 4}
    hard = IoIConfig.model_validate(config.model_dump() | {"negatives": negatives})
    pairs = read_pairs(hard.data[0], Path, 3, never)
    items = items_of(pairs, make_model(hard, pairs, "cpu"), hard)
    assert {len(item.hard) for item in items} == {4}
    assert all(item.response not in item.hard for item in items)


def test_the_learning_rate_decays_to_the_least() -> None:
    rates = IoIOptimiser(learning_rate=5e-4, least_learning_rate=5e-5)
    factor = decay(rates)
    assert factor(0) == 1
    assert factor(1000) == pytest.approx(0.9)
    assert factor(500) == pytest.approx(0.9**0.5)
    assert factor(10**6) == pytest.approx(0.1)


def test_the_network_is_measured_by_the_rank_of_the_true_response() -> None:
    class Lengths:
        def scores(self, context: Sequence[str], candidates: Sequence[str]) -> np.ndarray:
            return np.array([len(text) + len(context) for text in candidates], np.float32)

    said = (Utterance("A", "hi"),)
    problems = [
        RankingExample(said, "B", ("a", "aaa", "aa"), (0, 1, 0)),
        RankingExample(said, "B", ("aa", "aaa", "a", "aaaa"), (1, 0, 0, 0)),
    ]
    measured = measure(Lengths(), problems)  # type: ignore[arg-type]
    assert measured == pytest.approx({"average_rank": 2, "r10@1": 0.5, "mrr": 2 / 3})


def test_a_validation_file_of_too_few_utterances_is_named(
    config: IoIConfig, tmp_path: Path
) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text(
        '{"utterances": [{"speaker": "A", "text": "hi"}, {"speaker": "B", "text": "yes"}]}'
    )
    validation = config.validation.model_copy(update={"paths": (str(path),)})
    with pytest.raises(DataError, match=rf"{path}: too few distinct utterances"):
        train_ioi(config.model_copy(update={"validation": validation}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_responses_of_the_same_words_are_refused(config: IoIConfig, tmp_path: Path) -> None:
    path = tmp_path / "same.jsonl"
    line = '{"utterances": [{"speaker": "A", "text": "hi"}, {"speaker": "B", "text": "%s"}]}'
    path.write_text("\n".join(line % text for text in ("Yes", "yes")))
    corpus = config.data[0].model_copy(update={"path": str(path)})
    with pytest.raises(DataError, match=r"same\.jsonl"):
        train_ioi(config.model_copy(update={"data": (corpus,)}), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()

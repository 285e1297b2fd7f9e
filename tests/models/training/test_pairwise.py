import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from turnwise.models.errors import DataError
from turnwise.models.rerankers import reranker_kind
from turnwise.models.rerankers.pairwise import PairwiseModel
from turnwise.models.roles import EncoderKind
from turnwise.models.training.loop import Progress
from turnwise.models.training.losses import contrastive_loss
from turnwise.models.training.pairs import read_pairs
from turnwise.models.training.pairwise import PairwiseLearner, train_pairwise
from turnwise.models.training.reranker_config import PairwiseConfig

Folder = Callable[[EncoderKind], Path]


@pytest.fixture
def config(tiny_encoder_folder: Folder, matters: Path) -> PairwiseConfig:
    return PairwiseConfig.model_validate(
        {
            "kind": "pairwise",
            "base": str(tiny_encoder_folder(EncoderKind.SINGLE)),
            "data": [{"path": str(matters)}],
            "validation": {"paths": [str(matters)], "every": 2},
            "batch_pairs": 8,
            "projection": 16,
            "layers": 1,
            "epochs": 2,
            "optimiser": {"learning_rate": 1e-3, "projector_learning_rate": 1e-2},
        }
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "learner.safetensors")


def test_the_loss_is_cross_entropy_both_ways_without_copies_of_the_answer() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 3))
    same = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool)

    def surprise(row: np.ndarray, place: int, copies: np.ndarray) -> float:
        rivals = [math.exp(v) for n, v in enumerate(row) if n == place or not copies[n]]
        return -math.log(math.exp(row[place]) / sum(rivals))

    wanted = np.mean(
        [[surprise(logits[i], i, same[i]), surprise(logits[:, i], i, same[:, i])] for i in range(3)]
    )
    ours = contrastive_loss(torch.tensor(logits), torch.tensor(same))
    assert ours.item() == pytest.approx(wanted)


@pytest.mark.parametrize("kind", [EncoderKind.SINGLE, EncoderKind.TRIPLE])
def test_training_compares_what_the_model_will(
    config: PairwiseConfig, tiny_encoder_folder: Folder, kind: EncoderKind
) -> None:
    learner = PairwiseLearner(
        config.model_copy(update={"base": str(tiny_encoder_folder(kind))}), "cpu"
    )
    pairs = read_pairs(config.data[0], Path, 3, learner.is_truncated)[:7]
    model = learner.model()
    contexts = model.encode_contexts([[said.text for said in p.utterances] for p in pairs])
    responses = model.encode_responses([pair.target.text for pair in pairs])
    texts = [pair.target.text for pair in pairs]
    same = torch.tensor([[one == other for other in texts] for one in texts])
    wanted = contrastive_loss(torch.from_numpy(contexts @ responses.T) / 0.05, same)
    count, loss = learner(pairs)
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-4)
    assert count == len({said.text for pair in pairs for said in (*pair.utterances, pair.target)})


def test_only_the_last_layers_and_the_projectors_learn(
    config: PairwiseConfig, tmp_path: Path
) -> None:
    before = {
        name: value.clone()
        for name, value in PairwiseLearner(config, "cpu").encoder.state_dict().items()
    }
    train_pairwise(config, tmp_path / "out", device="cpu")
    moved = {
        name.removeprefix("encoder.")
        for name, value in weights(tmp_path / "out").items()
        if name.startswith("encoder.")
        and not torch.equal(value, before[name.removeprefix("encoder.")])
    }
    assert moved
    assert {name for name in moved if ".layer.1." not in name} == set()


def test_padding_and_both_projectors_learn(config: PairwiseConfig) -> None:
    learner = PairwiseLearner(config, "cpu")
    _, loss = learner(read_pairs(config.data[0], Path, 3, learner.is_truncated)[:8])
    loss.backward()
    without = [n for n, p in learner.projectors.named_parameters() if p.grad is None]
    assert without == []
    assert learner.projectors.padding.grad is not None
    assert learner.projectors.padding.grad[:2].any()
    assert not learner.projectors.padding.grad[2].any()  # no context is without its newest


def test_training_finds_the_responses(config: PairwiseConfig, tmp_path: Path) -> None:
    seen: list[Progress] = []
    rarely = config.validation.model_copy(update={"every": 20})
    longer = config.model_copy(update={"epochs": 20, "validation": rarely})
    folder = train_pairwise(longer, tmp_path / "out", report=seen.append, device="cpu")
    validated = [progress.validation for progress in seen if progress.validation]
    assert validated[-1]["average_rank"] < 0.7 * validated[0]["average_rank"]
    assert seen[-1].step == seen[-1].steps
    assert reranker_kind(folder) == "pairwise"
    model = PairwiseModel.load(folder, "cpu")
    assert model.dimension == 16


def test_a_resumed_run_ends_where_an_unbroken_one_does(
    config: PairwiseConfig, check_resuming: Callable[[Callable[..., object]], None]
) -> None:
    check_resuming(partial(train_pairwise, config, device="cpu"))


def test_bad_data_is_named_before_anything_is_written(
    config: PairwiseConfig, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(
        '{"utterances": [{"speaker": "A", "text": "x"}]}\n{"utterances": [{"speaker": "A"}]}'
    )
    for change in (
        {"data": (config.data[0].model_copy(update={"path": str(bad)}),)},
        {"validation": config.validation.model_copy(update={"paths": (str(bad),)})},
    ):
        with pytest.raises(DataError) as caught:
            train_pairwise(config.model_copy(update=change), tmp_path / "out", device="cpu")
        assert (caught.value.line, caught.value.field) == (2, "utterances[0].text")
        assert caught.value.file == str(bad)
    assert not (tmp_path / "out").exists()


def test_texts_longer_than_the_encoder_reads_are_told(config: PairwiseConfig) -> None:
    learner = PairwiseLearner(config, "cpu")
    assert not learner.is_truncated("a " * 126)
    assert learner.is_truncated("a " * 127)
    assert not learner.is_truncated(" " * 500 + "a")
    assert learner.is_truncated("\N{CJK UNIFIED IDEOGRAPH-4E00}" * 127)

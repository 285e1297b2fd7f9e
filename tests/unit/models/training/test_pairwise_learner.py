from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.models.conftest import Folder
from tests.unit.models.training.conftest import take_steps
from turnwise.models.roles import EncoderKind
from turnwise.models.training.config import PairwiseConfig
from turnwise.models.training.learners.pairwise import PairwiseLearner
from turnwise.models.training.losses import contrastive_loss

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", [EncoderKind.SINGLE, EncoderKind.TRIPLE])
def test_training_compares_what_the_model_will(
    pairwise_config: PairwiseConfig, tiny_encoder_folder: Folder, kind: EncoderKind
) -> None:
    config = pairwise_config.model_copy(update={"base": str(tiny_encoder_folder(kind))})
    learner = PairwiseLearner(config, Path)
    pairs = list(learner.corpora[0][0][:7])
    model = learner.model()
    contexts = model.encode_contexts([[said.text for said in p.utterances] for p in pairs])
    responses = model.encode_responses([pair.target.text for pair in pairs])
    texts = [pair.target.text for pair in pairs]
    same = torch.tensor([[one == other for other in texts] for one in texts])
    wanted = contrastive_loss(torch.from_numpy(contexts @ responses.T) / 0.05, same)
    parts, count = learner.loss(pairs, RNG)
    assert parts["contrastive"].item() == pytest.approx(wanted.item(), abs=1e-4)
    assert count == len({said.text for pair in pairs for said in (*pair.utterances, pair.target)})


def test_only_the_last_layers_and_the_projectors_learn(pairwise_config: PairwiseConfig) -> None:
    learner = PairwiseLearner(pairwise_config, Path)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    take_steps(learner, 2)
    moved = {n for n, value in learner.state_dict().items() if not torch.equal(value, before[n])}
    assert {name.partition(".")[0] for name in moved} == {"encoder", "projectors"}
    assert all(".layer.1." in name for name in moved if name.startswith("encoder"))


def test_padding_and_both_projectors_learn(pairwise_config: PairwiseConfig) -> None:
    learner = PairwiseLearner(pairwise_config, Path)
    parts, _ = learner.loss(list(learner.corpora[0][0][:8]), RNG)
    parts["contrastive"].backward()
    without = [n for n, p in learner.projectors.named_parameters() if p.grad is None]
    assert without == []
    assert learner.projectors.padding.grad is not None
    assert learner.projectors.padding.grad[:2].any()
    assert not learner.projectors.padding.grad[2].any()  # every context has a newest utterance


def test_texts_longer_than_the_encoder_reads_are_recognised(
    pairwise_config: PairwiseConfig,
) -> None:
    learner = PairwiseLearner(pairwise_config, Path)
    assert not learner.is_truncated("a " * 126)
    assert learner.is_truncated("a " * 127)
    assert not learner.is_truncated(" " * 500 + "a")
    assert learner.is_truncated("\N{CJK UNIFIED IDEOGRAPH-4E00}" * 127)

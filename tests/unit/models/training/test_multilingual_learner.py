from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import softmax

from tests.unit.models.conftest import Folder
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Role, RoleText
from turnwise.models.training.config import MultilingualConfig
from turnwise.models.training.learners.multilingual import MultilingualLearner, context_roles
from turnwise.models.training.losses import SCORE_SCALE, SCORE_SHARE
from turnwise.models.training.translations import Translation

PAIRS = [Translation("lake", "see"), Translation("a tree", "baum"), Translation("hi", "hi")]
ROLES = [Role.AFTER, Role.SAID, Role.SAID]


def encode(encoder: UtteranceEncoder, texts: list[str]) -> np.ndarray:
    read = [RoleText(text, role) for text, role in zip(texts, ROLES, strict=True)]
    return encoder.encode_in_roles(read).astype(np.float64)


def test_the_objective_compares_translations_with_the_teacher(
    multilingual_config: MultilingualConfig,
) -> None:
    learner = MultilingualLearner(multilingual_config, Path)
    teacher = UtteranceEncoder(multilingual_config.base, device="cpu")
    student = UtteranceEncoder(learner.encoder, heads=teacher.heads)
    taught = encode(teacher, [pair.source for pair in PAIRS])
    ours = encode(student, [pair.target for pair in PAIRS])
    wanted = np.mean([1 - one @ other for one, other in zip(ours, taught, strict=True)])
    # One candidate and two contexts: each context has one candidate, whose share is always 1.
    p, q = (softmax(torch.tensor(SCORE_SCALE * v[1:] @ v[0]), 0) for v in (taught, ours))
    wanted += SCORE_SHARE * float((p * (p / q).log()).sum()) / 2
    parts, count = learner.loss(PAIRS, np.random.default_rng(0))
    assert parts["distil"].item() == pytest.approx(wanted, abs=1e-4)
    assert count == 3


def test_the_model_has_what_was_fitted_for_the_teacher(
    multilingual_config: MultilingualConfig, tmp_path: Path
) -> None:
    learner = MultilingualLearner(multilingual_config, Path)
    learner.save(tmp_path / "model")
    saved = UtteranceEncoder(tmp_path / "model", device="cpu")
    teacher = UtteranceEncoder(multilingual_config.base, device="cpu")
    assert saved.kind is EncoderKind.HEADS
    assert (saved.aggregation, saved.fusion) == (teacher.aggregation, teacher.fusion)
    ours = UtteranceEncoder(learner.encoder, heads=teacher.heads)
    texts = ["der see", "lake", "tram"]
    assert np.allclose(encode(saved, texts), encode(ours, texts), atol=1e-2)


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (EncoderKind.HEADS, 1),
        (EncoderKind.TRIPLE, 4),
        (EncoderKind.TRIPLE_WITHOUT_SPEAKERS, 2),
        (EncoderKind.CURVED, 2),
        (EncoderKind.SINGLE, 1),
    ],
)
def test_each_prefix_of_a_context_is_taught(kind: EncoderKind, number: int) -> None:
    assert len(context_roles(kind)) == number


def test_a_model_of_an_earlier_run_learns_further(
    multilingual_config: MultilingualConfig, tmp_path: Path
) -> None:
    learner = MultilingualLearner(multilingual_config, Path)
    learner.save(tmp_path / "model")
    update = {"base": str(tmp_path / "model"), "teacher": multilingual_config.base, "pieces": 0}
    further = MultilingualLearner(multilingual_config.model_copy(update=update), Path)
    assert further.encoder.tokenizer.get_vocab() == learner.encoder.tokenizer.get_vocab()


def test_a_teacher_of_another_kind_is_refused(
    multilingual_config: MultilingualConfig, tiny_encoder_folder: Folder
) -> None:
    update = {"teacher": str(tiny_encoder_folder(EncoderKind.CURVED))}
    with pytest.raises(ModelError, match="is a curved encoder and cannot teach a heads one"):
        MultilingualLearner(multilingual_config.model_copy(update=update), Path)

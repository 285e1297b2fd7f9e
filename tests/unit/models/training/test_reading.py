"""Training reads texts as the service does: emoji as words, and both ends of what is too long."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.models.conftest import Folder
from tests.unit.models.training.conftest import both_sides
from turnwise.models.encoder.emoji_words import EmojiWords
from turnwise.models.encoder.spelling import WORDS_FILE, Spelling
from turnwise.models.evaluation.split import Context
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.roles import EncoderKind, Role, RoleText
from turnwise.models.training.config import EncoderConfig, PairwiseConfig
from turnwise.models.training.learners.encoder import EncoderLearner
from turnwise.models.training.learners.pairwise import PairwiseLearner

SAID = RoleText("👍", Role.AFTER)
LONG = "turn of " * 80


@pytest.fixture
def base(tiny_encoder_folder: Folder, tmp_path: Path) -> Path:
    """A model that reads emoji as words, and has a list of words."""
    folder = tmp_path / "base"
    shutil.copytree(tiny_encoder_folder(EncoderKind.SINGLE), folder)
    EmojiWords.of_unicode().save(folder)
    Spelling(["lake"]).save(folder)
    return folder


@pytest.fixture
def encoder_learner(encoder_config: EncoderConfig, base: Path) -> EncoderLearner:
    objectives = encoder_config.objectives.model_copy(update={"nli": 0.0})
    update = {"base": str(base), "nli": None, "objectives": objectives, "spaced": 0.0}
    return EncoderLearner(encoder_config.model_copy(update=update), Path)


@pytest.fixture
def pairwise_learner(pairwise_config: PairwiseConfig, base: Path) -> PairwiseLearner:
    return PairwiseLearner(pairwise_config.model_copy(update={"base": str(base)}), Path)


def loss_after(learner: EncoderLearner, text: str) -> float:
    """The loss of a step in which a text is the first of each window."""
    windows = [
        replace(
            window, utterances=(replace(window.utterances[0], text=text), *window.utterances[1:])
        )
        for window in both_sides()
    ]
    parts, _ = learner.loss(windows, np.random.default_rng(0))
    return sum(part.item() for part in parts.values())


def test_an_encoder_learns_from_emoji_as_words(encoder_learner: EncoderLearner) -> None:
    wanted = loss_after(encoder_learner, "thumbs up sign")
    assert loss_after(encoder_learner, "👍") == pytest.approx(wanted, abs=1e-5)


def test_an_encoder_learns_from_the_end_of_a_long_text(encoder_learner: EncoderLearner) -> None:
    one = loss_after(encoder_learner, f"{LONG} lake")
    assert loss_after(encoder_learner, f"{LONG} oven") != pytest.approx(one, abs=1e-4)


def test_a_trained_encoder_knows_the_words_of_its_dialogues(
    encoder_learner: EncoderLearner, tmp_path: Path
) -> None:
    encoder_learner.save(tmp_path / "trained")
    words = (tmp_path / "trained" / WORDS_FILE).read_text(encoding="utf-8")
    assert words.split() == ["words", "turn", "lake"]


def test_a_trained_pairwise_model_reads_emoji_as_words(
    pairwise_learner: PairwiseLearner, tmp_path: Path
) -> None:
    one, *others = pairwise_learner.corpora[0][0][:8]
    losses = [
        pairwise_learner.loss([change_target(one, text), *others], np.random.default_rng(0))[0]
        for text in ("👍", "thumbs up sign")
    ]
    assert losses[0]["contrastive"].item() == pytest.approx(losses[1]["contrastive"].item())
    pairwise_learner.save(tmp_path / "trained")
    model = PairwiseModel.load(tmp_path / "trained", "cpu")
    assert model.encoder.prefixed(SAID) == "thumbs up sign"


def change_target(pair: Context, text: str) -> Context:
    return replace(pair, target=replace(pair.target, text=text))

"""Dialogues of made-up sentences, and tiny re-rankers."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from tests.support.rerankers import tiny_ioi
from tests.unit.models.conftest import WORDS, Encoders, small_gpt2
from turnwise.models.arrays import Float64
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation import metrics
from turnwise.models.pairwise import PairwiseModel, Projectors
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.roles import EncoderKind, Role, relation_to


@pytest.fixture(autouse=True)
def _no_time_for_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ENOUGH", 0.0)


@pytest.fixture(scope="session")
def dialogues() -> list[Dialogue]:
    """Eight dialogues of 3 to 12 utterances, one of them between three people."""
    generator = np.random.default_rng(7)
    made = []
    for number, length in enumerate((12, 3, 11, 4, 6, 9, 12, 10)):
        speakers = cycle("ABC" if number == 2 else "AB")
        texts = (" ".join(generator.choice(WORDS, 3)) for _ in range(length))
        made.append(Dialogue(str(number), tuple(map(Utterance, speakers, texts))))
    return made


def save_language_model(folder: Path, tokenizer: PreTrainedTokenizerFast, positions: int) -> Path:
    """Write a random GPT-2 over ten words."""
    GPT2LMHeadModel(small_gpt2(tokenizer, positions)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_language_model(
    tmp_path_factory: pytest.TempPathFactory, word_tokenizer: PreTrainedTokenizerFast
) -> Path:
    return save_language_model(tmp_path_factory.mktemp("language-model"), word_tokenizer, 16)


@pytest.fixture(scope="session")
def pairwise(tiny_encoder: Encoders) -> PairwiseModel:
    torch.manual_seed(0)
    projectors = Projectors(embedding=32, projection=16, context_length=3)
    return PairwiseModel(tiny_encoder(EncoderKind.SINGLE), projectors)


@pytest.fixture(scope="session")
def ioi() -> IoI:
    return tiny_ioi(tuple(WORDS))


def cosines(
    encoder: UtteranceEncoder, before: Sequence[Utterance], after: Sequence[Utterance]
) -> Float64:
    """cos(b, a) of each before and after, b with the relation of its speaker to that of a."""
    columns = []
    for goal in after:
        relations = [relation_to(said.speaker, goal.speaker) for said in before]
        b = encoder.encode([said.text for said in before], Role.SECOND, relations)
        columns.append(b.astype(np.float64) @ encoder.encode([goal.text], Role.AFTER)[0])
    return np.stack(columns, axis=1)

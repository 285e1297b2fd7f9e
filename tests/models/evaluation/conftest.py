"""Dialogues of made-up sentences, tokenizers of their words, and tiny re-rankers."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tests.rerankers import tiny_ioi
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation import metrics
from turnwise.models.rerankers import IoI, PairwiseModel
from turnwise.models.rerankers.pairwise import Projectors
from turnwise.models.roles import EncoderKind

WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


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


@pytest.fixture(scope="session")
def word_tokenizer() -> PreTrainedTokenizerFast:
    """As language models have: an end-of-sequence token, and neither padding nor separator."""
    special = {"eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=_words(special), **special)


@pytest.fixture(scope="session")
def pair_tokenizer() -> PreTrainedTokenizerFast:
    """As BERT has: texts and pairs with separators."""
    names = ("[PAD]", "<unk>", "[CLS]", "[SEP]")
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), names, strict=True))
    words = _words(special)
    words.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=inputs, **special)


def small_gpt2(tokenizer: PreTrainedTokenizerFast, positions: int, **more: int) -> GPT2Config:
    """Return the shape of a GPT-2 with room for some tokens."""
    torch.manual_seed(0)
    return GPT2Config(
        vocab_size=len(tokenizer), n_positions=positions, n_embd=16, n_layer=1, n_head=2,
        eos_token_id=0, bos_token_id=0, initializer_range=0.5, **more,
    )  # fmt: skip


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


def _words(special: dict[str, str]) -> Tokenizer:
    vocabulary = {word: place for place, word in enumerate([*special.values(), *WORDS])}
    words = Tokenizer(WordLevel(vocabulary, unk_token=special["unk_token"]))
    words.pre_tokenizer = Whitespace()
    return words


@pytest.fixture(scope="session")
def pairwise(tiny_encoder: Callable[[EncoderKind], UtteranceEncoder]) -> PairwiseModel:
    torch.manual_seed(0)
    projectors = Projectors(embedding=32, projection=16, context_length=3)
    return PairwiseModel(tiny_encoder(EncoderKind.SINGLE), projectors)


@pytest.fixture(scope="session")
def ioi() -> IoI:
    return tiny_ioi(tuple(WORDS))

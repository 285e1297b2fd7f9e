"""The types of the fixtures with encoders, and tokenizers of ten words."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing
from transformers import GPT2Config, PreTrainedTokenizerFast

from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.model_files import hub_answers
from turnwise.models.roles import EncoderKind

Encoders = Callable[[EncoderKind], UtteranceEncoder]
Folder = Callable[[EncoderKind], Path]
WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


@pytest.fixture
def unasked_hub() -> Iterator[None]:
    """Whether the hub answers is not known, before and after the test."""
    hub_answers.cache_clear()
    yield
    hub_answers.cache_clear()


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
        vocab_size=len(tokenizer),
        n_positions=positions,
        n_embd=16,
        n_layer=1,
        n_head=2,
        eos_token_id=0,
        bos_token_id=0,
        initializer_range=0.5,
        **more,
    )


def _words(special: dict[str, str]) -> Tokenizer:
    vocabulary = {word: place for place, word in enumerate([*special.values(), *WORDS])}
    words = Tokenizer(WordLevel(vocabulary, unk_token=special["unk_token"]))
    words.pre_tokenizer = Whitespace()
    return words

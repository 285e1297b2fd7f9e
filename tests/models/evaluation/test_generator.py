from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from models.dialogue import Dialogue
from models.errors import ModelError
from models.evaluation.generator import NEW_TOKENS, sampled_replies

ROOM = 24
WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


@pytest.fixture(scope="module")
def language_model(
    tmp_path_factory: pytest.TempPathFactory, word_tokenizer: PreTrainedTokenizerFast
) -> str:
    """A random GPT-2 over ten words, with room for few tokens of context."""
    folder = tmp_path_factory.mktemp("gpt2")
    word_tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(word_tokenizer),
        n_positions=NEW_TOKENS + ROOM,
        n_embd=16,
        n_layer=1,
        n_head=2,
        eos_token_id=0,
        bos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return str(folder)


def test_replies_are_sampled_texts(language_model: str, dialogues: list[Dialogue]) -> None:
    replies = sampled_replies(language_model, 8, device="cpu")(dialogues[0], 2)
    assert 1 <= len(replies) <= 8
    assert len(set(replies)) > 1
    assert {word for reply in replies for word in reply.split()} <= {*WORDS, "<unk>"}


def test_the_same_context_gets_the_same_replies(
    language_model: str, dialogues: list[Dialogue]
) -> None:
    propose = sampled_replies(language_model, 3, device="cpu")
    first = propose(dialogues[0], 2)
    propose(dialogues[2], 3)
    assert propose(dialogues[0], 2) == first


def test_a_context_longer_than_the_model_keeps_its_end(
    language_model: str, dialogues: list[Dialogue]
) -> None:
    long = dialogues[0]  # 11 utterances of 3 words and an end each
    shortened = Dialogue("end", long.utterances[11 - ROOM // 4 :])
    propose = sampled_replies(language_model, 3, device="cpu")
    assert propose(long, 11) == propose(shortened, ROOM // 4)


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"language model '.*nowhere' cannot be loaded"):
        sampled_replies(str(tmp_path / "nowhere"))

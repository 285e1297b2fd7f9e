from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import ModelError
from turnwise.models.evaluation import generator
from turnwise.models.evaluation.generator import NEW_TOKENS, sampled_replies

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


# Of the user's posts "garden", of the assistant's "letter"; as strict as templates are.
TEMPLATE = """
{%- for post in messages -%}
{%- if (post.role == "user") != (loop.index0 % 2 == 0) -%}
{{ raise_exception("roles must alternate") }}
{%- endif -%}
{{ "garden " if post.role == "user" else "letter " }}{{ post.content }}{{ " " }}
{%- endfor -%}
{{ "letter" if add_generation_prompt }}"""


@pytest.mark.parametrize(
    ("speakers", "chat"),
    [
        ("bab", "garden lamp bread letter rain garden train letter"),
        ("ab", "garden lamp letter bread garden rain letter"),
        ("acb", "garden lamp letter bread garden rain train letter"),
    ],
)
def test_a_model_with_a_chat_template_is_who_replies(
    speakers: str, chat: str, language_model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    GPT2LMHeadModel.from_pretrained(language_model).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    read = []

    def noted(_: object, prompt: torch.Tensor, **__: Any) -> torch.Tensor:  # noqa: ANN401
        read.append(tokenizer.decode(prompt[0]))
        return prompt

    monkeypatch.setattr(GPT2LMHeadModel, "generate", noted)
    monkeypatch.setattr(generator, "INSTRUCTION", "lamp")
    said = (Utterance(speaker, word) for speaker, word in zip(f"{speakers}a", WORDS, strict=False))
    sampled_replies(str(tmp_path), 1, device="cpu")(Dialogue("d", tuple(said)), len(speakers))
    assert read == [chat]


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"language model '.*nowhere' cannot be loaded"):
        sampled_replies(str(tmp_path / "nowhere"))

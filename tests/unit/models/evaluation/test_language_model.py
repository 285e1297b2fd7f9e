import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GPT2LMHeadModel, PreTrainedTokenizerFast

from tests.unit.models.conftest import WORDS
from tests.unit.models.evaluation.conftest import save_language_model
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import ModelError
from turnwise.models.evaluation import language_model as module
from turnwise.models.evaluation.language_model import (
    LanguageModel,
    load_causal,
    sampled_replies,
    write_prompt,
)
from turnwise.models.evaluation.split import Context

NEW = 6
ROOM = 24


@pytest.fixture(autouse=True)
def short_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEW_TOKENS", NEW)


@pytest.fixture(scope="module")
def language_model(
    tmp_path_factory: pytest.TempPathFactory, word_tokenizer: PreTrainedTokenizerFast
) -> str:
    """A model with room for few tokens of context."""
    folder = tmp_path_factory.mktemp("gpt2")
    return str(save_language_model(folder, word_tokenizer, NEW + ROOM))


def test_replies_are_sampled_texts(language_model: str, dialogues: list[Dialogue]) -> None:
    replies = sampled_replies(language_model)(dialogues[0], 2)
    assert 1 <= len(replies) <= 100
    assert len(set(replies)) > 1
    assert {word for reply in replies for word in reply.split()} <= {*WORDS, "<unk>"}


def test_a_context_longer_than_the_model_keeps_its_end(
    language_model: str, dialogues: list[Dialogue]
) -> None:
    long = dialogues[0]  # 11 utterances of 3 words and an end each
    shortened = Dialogue("end", long.utterances[11 - ROOM // 4 :])
    propose = sampled_replies(language_model)
    assert propose(long, 11) == propose(shortened, ROOM // 4)
    assert propose(long, 11) != propose(long, ROOM // 4)


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

    def noted(_: object, prompt: torch.Tensor, **__: Any) -> torch.Tensor:
        read.append(tokenizer.decode(prompt[0]))
        return prompt

    monkeypatch.setattr(GPT2LMHeadModel, "generate", noted)
    monkeypatch.setattr(module, "INSTRUCTION", "lamp")
    said = (Utterance(speaker, word) for speaker, word in zip(f"{speakers}a", WORDS, strict=False))
    sampled_replies(str(tmp_path))(Dialogue("d", tuple(said)), len(speakers))
    assert read == [chat]


def test_a_model_whose_head_would_be_random_is_refused(language_model: str, tmp_path: Path) -> None:
    whole = GPT2LMHeadModel.from_pretrained(language_model)
    whole.config.tie_word_embeddings = False
    whole.transformer.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(language_model).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=f"'{tmp_path}' has no trained lm_head"):
        load_causal(str(tmp_path))


LIKELIHOOD_ROOM = 16
PROMPTS = ["bread rain train", "music", "bread rain train"]
ANSWERS = ["garden", "letter winter river", "window lamp"]
SAID = Context(
    (Utterance("guest", "is it far"), Utterance("host", "no")), Utterance("guest", "thank you")
)


def naive(folder: Path, given: str, answer: str) -> float:
    """The log-probability of the answer's words, one text at a time."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = tokenizer(f"{given} {answer}", return_tensors="pt")["input_ids"][:, -LIKELIHOOD_ROOM:]
    with torch.inference_mode():
        logs = model(ids).logits[0].double().log_softmax(dim=-1)
    count = min(len(answer.split()), ids.shape[1] - 1)
    places = range(ids.shape[1] - count, ids.shape[1])
    return sum(float(logs[place - 1, ids[0, place]]) for place in places)


@pytest.mark.parametrize("budget", [1, 4096])
def test_likelihoods_are_those_of_the_answers_words(
    small_language_model: Path, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIKELIHOOD_TOKENS", budget)
    likelihoods, tokens = LanguageModel(small_language_model).log_likelihoods(PROMPTS, ANSWERS)
    expected = [
        naive(small_language_model, given, answer)
        for given, answer in zip(PROMPTS, ANSWERS, strict=True)
    ]
    assert likelihoods == pytest.approx(expected, abs=1e-4)
    assert list(tokens) == [1, 3, 2]


def test_a_long_prompt_loses_its_start(
    small_language_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = LanguageModel(small_language_model)
    end = "rain " * LIKELIHOOD_ROOM + "train"
    one, other = model.log_likelihoods([f"bread {end}", f"lamp {end}"], ["garden"] * 2)[0]
    assert one == pytest.approx(other, abs=1e-5)
    assert one == pytest.approx(naive(small_language_model, end, "garden"), abs=1e-4)
    with caplog.at_level(logging.WARNING, "turnwise.evaluation"):
        model.warn_of_long(["bread", end], ["file, line 1", "file, line 2"])
    (record,) = caplog.records
    assert record.getMessage().startswith("file, line 2: longer than")


def test_an_answer_longer_than_the_model_counts_what_fits(small_language_model: Path) -> None:
    answer = "bread rain " * LIKELIHOOD_ROOM
    (found,), _ = LanguageModel(small_language_model).log_likelihoods(["train"], [answer.strip()])
    assert found == pytest.approx(naive(small_language_model, "train", answer.strip()), abs=1e-3)


def test_a_prompt_tells_the_dialogue_in_the_language() -> None:
    opening = "Zwei Personen unterhalten sich."
    closing = "Mit anderen Worten sagt A:"
    dialogue = ["A: is it far", "B: no", "A: thank you"]
    assert write_prompt(SAID, "de").split("\n") == [opening, *dialogue, closing]
    alone = write_prompt(SAID, "de", with_context=False)
    assert alone.split("\n") == [opening, "A: thank you", closing]

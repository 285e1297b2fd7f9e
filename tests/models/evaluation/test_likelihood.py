import logging
from pathlib import Path

import pytest
import torch
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from turnwise.models.data import Utterance
from turnwise.models.errors import ModelError
from turnwise.models.evaluation import likelihood
from turnwise.models.evaluation.likelihood import LanguageModel, prompt
from turnwise.models.evaluation.similarity_files import Said

ROOM = 16
PROMPTS = ["bread rain train", "music", "bread rain train"]
ANSWERS = ["garden", "letter winter river", "window lamp"]
SAID = Said((Utterance("guest", "is it far"), Utterance("host", "no")), "guest", "thank you")


def naive(folder: Path, given: str, answer: str) -> float:
    """The log-probability of the answer's words, one text at a time."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = tokenizer(f"{given} {answer}", return_tensors="pt")["input_ids"][:, -ROOM:]
    with torch.inference_mode():
        logs = model(ids).logits[0].double().log_softmax(dim=-1)
    count = min(len(answer.split()), ids.shape[1] - 1)
    places = range(ids.shape[1] - count, ids.shape[1])
    return sum(float(logs[place - 1, ids[0, place]]) for place in places)


@pytest.mark.parametrize("budget", [1, 4096])
def test_likelihoods_are_those_of_the_answers_words(
    small_language_model: Path, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "TOKENS", budget)
    likelihoods, tokens = LanguageModel(small_language_model, "cpu").log_likelihoods(
        PROMPTS, ANSWERS
    )
    expected = [
        naive(small_language_model, given, answer)
        for given, answer in zip(PROMPTS, ANSWERS, strict=True)
    ]
    assert likelihoods == pytest.approx(expected, abs=1e-4)
    assert list(tokens) == [1, 3, 2]


def test_a_long_prompt_loses_its_start(
    small_language_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, end = LanguageModel(small_language_model, "cpu"), "rain " * ROOM + "train"
    one, other = model.log_likelihoods([f"bread {end}", f"lamp {end}"], ["garden"] * 2)[0]
    assert one == pytest.approx(other, abs=1e-5)
    assert one == pytest.approx(naive(small_language_model, end, "garden"), abs=1e-4)
    with caplog.at_level(logging.WARNING, "turnwise.evaluation"):
        model.warn_of_long(["bread", end], ["file, line 1", "file, line 2"])
    (record,) = caplog.records
    assert record.getMessage().startswith("file, line 2: longer than")


def test_an_answer_longer_than_the_model_counts_what_fits(small_language_model: Path) -> None:
    answer = "bread rain " * ROOM
    (found,), _ = LanguageModel(small_language_model, "cpu").log_likelihoods(
        ["train"], [answer.strip()]
    )
    assert found == pytest.approx(naive(small_language_model, "train", answer.strip()), abs=1e-3)


@pytest.mark.parametrize(
    ("language", "opening", "closing"),
    [
        ("en", "Two people are talking.", "In other words, A says:"),
        ("de", "Zwei Personen unterhalten sich.", "Mit anderen Worten sagt A:"),
    ],
)
def test_a_prompt_tells_the_dialogue_in_the_language(
    language: likelihood.Language, opening: str, closing: str
) -> None:
    dialogue = ["A: is it far", "B: no", "A: thank you"]
    assert prompt(SAID, language).split("\n") == [opening, *dialogue, closing]
    alone = prompt(SAID, language, with_context=False)
    assert alone.split("\n") == [opening, "A: thank you", closing]


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"language model '.*nowhere' cannot be loaded"):
        LanguageModel(tmp_path / "nowhere")

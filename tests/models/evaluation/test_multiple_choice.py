from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from turnwise.models.data import Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.in_context import measures
from turnwise.models.evaluation.likelihood import LanguageModel, prompt
from turnwise.models.evaluation.multiple_choice import evaluate_choices, evaluate_language_models
from turnwise.models.evaluation.similarity_files import Question, Said
from turnwise.models.roles import EncoderKind

Encoders = Callable[[EncoderKind], UtteranceEncoder]
WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


def questions(count: int = 12) -> list[Question]:
    generator = np.random.default_rng(5)
    made = []
    for number in range(count):
        said = tuple(Utterance("AB"[n % 2], WORDS[(number + n) % 10]) for n in range(number % 3))
        choices = tuple(map(str, generator.permutation(WORDS)[:5]))
        last = Said(said, "C", WORDS[number % 10])
        domain = ("home", "shop")[number % 2]
        made.append(Question(last, choices, number % 5, domain, f"file, line {number}"))
    return made


def test_the_most_similar_choice_is_taken(tiny_encoder: Encoders) -> None:
    encoder, asked = tiny_encoder(EncoderKind.TRIPLE), questions()
    rows = {row.system: row.metrics for row in evaluate_choices({"t": encoder}, asked)}
    assert rows["chance"] == {"accuracy": pytest.approx(0.2)}
    for measure in measures(encoder):
        right = []
        for question in asked:
            said = [Said(question.last.context, "C", choice) for choice in question.choices]
            similar = measure.similar([question.last] * 5, said)
            right.append(int(np.argmax(similar)) == question.answer)
        found = rows[f"t · {measure.name}"]
        assert found["accuracy"] == pytest.approx(np.mean(right))
        assert found["standard_error"] == pytest.approx(np.std(right, ddof=1) / np.sqrt(12))
        assert found["accuracy/domain=shop"] == pytest.approx(np.mean(right[1::2]))
        assert found["accuracy/turns=2"] == pytest.approx(np.mean(right[2::3]))


def test_a_tie_is_right_as_often_as_a_blind_draw() -> None:
    last = Said((), "A", "bread rain")
    choices = ("rain bread", "bread rain", "lamp")
    asked = [Question(last, choices, answer, "", "") for answer in range(3)]
    _, overlap = evaluate_choices({}, asked)
    assert overlap.metrics["accuracy"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)


class Overflowing(LanguageModel):
    """Finds no number for the first choice of a question."""

    def __init__(self) -> None:
        self.name = "overflowing"

    def log_likelihoods(
        self, prompts: Sequence[str], answers: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        likely = np.arange(len(prompts), dtype=np.float64)
        likely[::3] = np.nan
        return likely, np.ones(len(answers))

    def warn_of_long(self, prompts: Sequence[str], where: Sequence[str]) -> None:
        """Nothing is."""


def test_a_likelihood_that_is_no_number_comes_last() -> None:
    asked = [Question(Said((), "A", "x"), ("a", "b", "c"), answer, "", "") for answer in (0, 2)]
    for row in evaluate_language_models({"m": Overflowing()}, asked, "en"):
        assert row.metrics["accuracy"] == 0.5


def test_one_question_has_no_standard_error() -> None:
    _, overlap = evaluate_choices({}, questions(1))
    assert "standard_error" not in overlap.metrics


def test_questions_may_have_different_numbers_of_choices() -> None:
    last = Said((), "A", "bread")
    asked = [
        Question(last, ("rain", "bread"), 1, "", ""),
        Question(last, ("bread",) * 3, 1, "", ""),
    ]
    chance, overlap = evaluate_choices({}, asked)
    assert chance.metrics["accuracy"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert overlap.metrics["accuracy"] == pytest.approx((1 + 1 / 3) / 2)


def test_a_language_model_takes_the_likeliest_choice(small_language_model: Path) -> None:
    model, asked = LanguageModel(small_language_model, "cpu"), questions()
    asked[0] = Question(asked[0].last, ("rain", "lamp river bread winter"), 0, "", "")
    rows = {r.system: r.metrics for r in evaluate_language_models({"m": model}, asked, "de")}
    assert list(rows) == [
        *("m · alone, whole", "m · alone, a token"),
        *("m · with context, whole", "m · with context, a token"),
    ]
    for with_context, of in ((False, "alone"), (True, "with context")):
        whole, token = [], []
        for question in asked:
            given = prompt(question.last, "de", with_context=with_context)
            prompts = [given] * len(question.choices)
            likelihoods, tokens = model.log_likelihoods(prompts, question.choices)
            whole.append(int(np.argmax(likelihoods)) == question.answer)
            token.append(int(np.argmax(likelihoods / tokens)) == question.answer)
        assert rows[f"m · {of}, whole"]["accuracy"] == pytest.approx(np.mean(whole))
        assert rows[f"m · {of}, a token"]["accuracy"] == pytest.approx(np.mean(token))

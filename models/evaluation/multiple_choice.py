"""Multiple choice (GiCCS): which of several texts is most similar to the last turn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from turnwise.models.evaluation.in_context import Measure
from turnwise.models.evaluation.likelihood import Language, LanguageModel, prompt
from turnwise.models.evaluation.metrics import Metrics, median_ms, sample
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.similarity import Models, by_domain_and_length, named_measures
from turnwise.models.evaluation.similarity_files import Question, Said

Scores = NDArray[np.floating]


def evaluate_choices(models: Models, questions: Sequence[Question]) -> Iterator[Row]:
    """Evaluate the measures of `evaluate_similarity` as choosers of their most similar choice.

    Args:
        models: By their names in the table.
        questions: At least one.

    Yields:
        A row a chooser, chance first: the accuracy, its standard error over the questions, s / √n,
        the accuracy by domain and by length of the context, and the median milliseconds of a
        question. A tie for the best is right with the probability of a blind draw among these.
    """
    chance = np.array([1 / len(question.choices) for question in questions])
    yield Row("chance", {"accuracy": float(chance.mean())}, 0.0)
    for name, measure in named_measures(models, [question.last for question in questions]):
        score = partial(_similar, measure)
        yield _row(name, questions, score(questions), score)


def evaluate_language_models(
    models: Mapping[str, LanguageModel], questions: Sequence[Question], language: Language
) -> Iterator[Row]:
    """Evaluate language models: the choice that goes best after the dialogue "in other words".

    Args:
        models: By their names in the table.
        questions: At least one.
        language: Language of the prompt.

    Yields:
        Rows as above, with and without the context, by the log-likelihood of the whole choice,
        which prefers short ones, and by that of a token in the mean.
    """
    for label, model in models.items():
        prompts = [prompt(question.last, language) for question in questions]
        model.warn_of_long(prompts, [question.where for question in questions])
        for with_context in (False, True):
            score = partial(_likely, model, language, with_context)
            both = score(questions)
            of = "with context" if with_context else "alone"
            for number, kind in enumerate(("whole", "a token")):
                scores = [pair[number] for pair in both]
                yield _row(f"{label} · {of}, {kind}", questions, scores, score)


def _similar(measure: Measure, questions: Sequence[Question]) -> list[Scores]:
    """Return for each question the similarity (C,) of its choices to the last turn."""
    last = [question.last for question in questions for _ in question.choices]
    choices = [
        Said(question.last.context, question.last.speaker, choice)
        for question in questions
        for choice in question.choices
    ]
    return _split(measure.similar(last, choices), questions)


def _likely(
    model: LanguageModel, language: Language, with_context: bool, questions: Sequence[Question]
) -> list[tuple[Scores, Scores]]:
    """Return for each question the log-likelihoods (C,) of its choices: whole, and of a token."""
    prompts = [
        prompt(question.last, language, with_context=with_context)
        for question in questions
        for _ in question.choices
    ]
    answers = [choice for question in questions for choice in question.choices]
    whole, tokens = model.log_likelihoods(prompts, answers)
    of_token = whole / np.maximum(tokens, 1)
    return list(zip(_split(whole, questions), _split(of_token, questions), strict=True))


def _split(scores: Scores, questions: Sequence[Question]) -> list[Scores]:
    ends = np.cumsum([len(question.choices) for question in questions])
    return np.split(scores, ends[:-1])


def _row(
    name: str,
    questions: Sequence[Question],
    scores: Sequence[Scores],
    score: Callable[[Sequence[Question]], object],
) -> Row:
    def one(place: int) -> object:
        return score(questions[place : place + 1])

    return Row(name, _metrics(questions, scores), median_ms(one, sample(len(questions))))


def _metrics(questions: Sequence[Question], scores: Sequence[Scores]) -> Metrics:
    right = np.array(list(map(_right, questions, scores)))
    by_group = {
        f"accuracy/{group}": float(right[those].mean())
        for group, those in by_domain_and_length(questions).items()
    }
    metrics = {"accuracy": float(right.mean())}
    if len(right) > 1:
        metrics["standard_error"] = float(right.std(ddof=1) / np.sqrt(len(right)))
    return metrics | by_group


def _right(question: Question, scores: Scores) -> float:
    scores = np.where(np.isnan(scores), -np.inf, scores)  # what is no number comes last
    best = np.flatnonzero(scores == scores.max())
    return float(question.answer in best) / len(best)

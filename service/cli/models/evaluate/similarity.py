"""`turnwise evaluate similarity` and `multiple-choice`."""

from itertools import chain
from pathlib import Path
from typing import Literal

from turnwise.models.errors import name_files
from turnwise.models.evaluation.language_model import LanguageModel
from turnwise.models.evaluation.similarity import (
    check_scores,
    evaluate_choices,
    evaluate_language_models,
    evaluate_similarity,
    read_pairs,
    read_questions,
    texts_of_examples,
)
from turnwise.models.evaluation.truncation import warn_of_truncation
from turnwise.service.cli.models.evaluate.loading import (
    load_by_name,
    load_encoders_and_pairwise,
)
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report


def measure(data: list[Path], compared: Compared, *, out: Path | None, limit: int | None) -> None:
    """Compare sentences, alone and in context, and correlate with people's scores."""
    pairs = read_pairs(data, limit)
    with name_files(data):
        check_scores(pairs)
    models = load_encoders_and_pairwise(compared)
    warn_of_truncation(models, texts_of_examples(pairs))
    report("similarity", data, list(evaluate_similarity(models, pairs)), out)


def measure_choices(
    data: list[Path],
    language_models: list[str],
    compared: Compared,
    *,
    language: Literal["en", "de"],
    style: Literal["rephrase", "list"],
    out: Path | None,
    limit: int | None,
) -> None:
    """Choose which text is most similar to the last turn."""
    questions = read_questions(data, limit)
    models = load_encoders_and_pairwise(compared)
    asked = load_by_name(language_models, LanguageModel, models)
    warn_of_truncation(models, texts_of_examples(questions))
    rows = chain(
        evaluate_choices(models, questions),
        evaluate_language_models(asked, questions, language, style),
    )
    report("multiple-choice", data, list(rows), out)

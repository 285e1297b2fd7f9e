"""`turnwise evaluate similarity` and `multiple-choice`."""

from itertools import chain
from typing import Annotated, Literal

import typer

from turnwise.models.errors import naming
from turnwise.service.commands.evaluate.options import (
    BASE,
    Arithmetic,
    Base,
    JsonLines,
    Limit,
    Models,
    Out,
    by_name,
    encoders_and_pairwise,
    report,
)


def similarity(
    *,
    data: JsonLines,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Compare sentences, alone and in context, and correlate with people's scores."""
    from turnwise.models.evaluation import similarity as task  # noqa: PLC0415 - loads torch
    from turnwise.models.evaluation.truncation import warn_of_truncation  # noqa: PLC0415

    pairs = task.read_pairs(data, limit)
    with naming(data):
        task.check_scores(pairs)
    loaded = encoders_and_pairwise(model, base, precision)
    warn_of_truncation(loaded, task.texts_of_examples(pairs))
    report("similarity", data, list(task.evaluate_similarity(loaded, pairs)), out)


def multiple_choice(
    *,
    data: JsonLines,
    model: Models = None,
    language_model: Annotated[
        list[str] | None,
        typer.Option(
            help="Causal language models to evaluate as well.", metavar="FOLDER_OR_NAME ..."
        ),
    ] = None,
    language: Annotated[Literal["en", "de"], typer.Option(help="Language of the prompts.")] = "en",
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Choose which text is most similar to the last turn."""
    from turnwise.models.evaluation import similarity as task  # noqa: PLC0415
    from turnwise.models.evaluation.language_model import LanguageModel  # noqa: PLC0415
    from turnwise.models.evaluation.truncation import warn_of_truncation  # noqa: PLC0415

    questions = task.read_questions(data, limit)
    loaded = encoders_and_pairwise(model, base, precision)
    asked = by_name(language_model or [], LanguageModel, loaded)
    warn_of_truncation(loaded, task.texts_of_examples(questions))
    rows = chain(
        task.evaluate_choices(loaded, questions),
        task.evaluate_language_models(asked, questions, language),
    )
    report("multiple-choice", data, list(rows), out)

"""`turnwise evaluate long-term`."""

from typing import Annotated

import typer

from turnwise.models.errors import naming
from turnwise.service.commands.evaluate.options import (
    BASE,
    Arithmetic,
    Base,
    Data,
    Limit,
    Models,
    Out,
    encoders,
    read,
    report,
    warn_of_long_texts,
)

_SETTINGS = ["2,2,0", "2,2,1", "2,2,2"]


def long_term(
    *,
    data: Data,
    setting: Annotated[
        list[str],
        typer.Option(
            help="Length of the context, goal distance, utterances before the first goal."
        ),
    ] = _SETTINGS,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Put three goals into the order in which the dialogue reached them."""
    from turnwise.models.evaluation import long_term as task  # noqa: PLC0415 - loads torch

    settings = [task.Setting(*_whole_numbers(text)) for text in setting]
    dialogues = read(data, limit)
    with naming(data):
        goal_sets = task.make_goal_sets(dialogues, settings)
    loaded = encoders(model, base, precision)
    warn_of_long_texts(loaded, data, dialogues, {each.context for each in settings})
    rows = task.evaluate_long_term(loaded, goal_sets)
    report("long-term", data, rows, out)


def _whole_numbers(text: str) -> tuple[int, int, int]:
    try:
        context, distance, first_in = map(int, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not three whole numbers, such as 2,2,0") from None
    if context < 1 or distance < 1 or first_in < 0:
        raise typer.BadParameter(f"'{text}': context and distance start at 1, the last at 0")
    return context, distance, first_in

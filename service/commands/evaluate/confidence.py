"""`turnwise evaluate confidence`."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.errors import naming
from turnwise.service.commands.evaluate.options import (
    Arithmetic,
    Data,
    Limit,
    Models,
    Out,
    encoders,
    read,
    report,
)

_SIZES = [20, 1_000, 100_000]


def confidence(
    *,
    data: Data,
    pool: Annotated[
        list[Path] | None,
        typer.Option(help="Files of dialogues whose texts fill large pools.", metavar="FILE ..."),
    ] = None,
    size: Annotated[list[int], typer.Option(min=2, help="Sizes of pools.")] = _SIZES,
    contexts: Annotated[int, typer.Option(min=1, help="Approximate number of contexts.")] = 2_000,
    model: Models = None,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Compare the confidence of first candidates with how often they are the true reply."""
    from turnwise.models.evaluation import confidence as task  # noqa: PLC0415 - loads torch

    dialogues = read(data, limit)
    models = encoders(model, "", precision)
    more = task.texts_of(read(pool or []))
    with naming(data):
        rows = list(task.evaluate_confidence(models, dialogues, more, size, contexts))
    note = "Half of the pools have the true reply, the others the same candidates without it."
    report("confidence", [*data, *(pool or [])], rows, out, note)

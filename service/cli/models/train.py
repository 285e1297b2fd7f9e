"""`turnwise train`: trains a model from a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.service.cli.options import check_drawable, read_format, with_options
from turnwise.service.cli.progress import TrainingProgress


@with_options(form=read_format)
def train(
    config: Annotated[Path, typer.Argument(help="The recipe (TOML).")],
    *,
    form: DialogueFormat,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="Folders of the recipe's corpora, or files to train on instead.",
            metavar="PATH ...",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the run.", show_default="runs/CONFIG", callback=check_drawable
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Use the values of the table `small`: a run of minutes.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint.")] = False,
) -> None:
    """Train an encoder, or a re-ranker: pairwise, IoI or a cross-encoder.

    The folder of an encoder includes its graph (`model.onnx`): a service on a CPU needs no torch.
    """
    from turnwise.models.card import CARD
    from turnwise.models.training.run import SERVED, run

    if out is None:
        out = Path("runs", f"{config.stem}-small" if small else config.stem)
    with TrainingProgress() as progress:
        folder = run(
            config, data or [], out, form=form, small=small, resume=resume, report=progress
        )
    if (folder / CARD).exists():  # an encoder
        _write_graph(folder)
    typer.echo(f"best model in {folder}")
    if (out / SERVED).exists():
        typer.echo(f"the base with this re-ranker, for TURNWISE_MODEL, in {out / SERVED}")


def _write_graph(folder: Path) -> None:
    """Write the graph of an encoder into its folder; if that fails, print why."""
    from torch.onnx import OnnxExporterError

    from turnwise.models.encoder.torch import UtteranceEncoder

    try:
        UtteranceEncoder(folder, device="cpu").write_graph(folder)
    except OnnxExporterError as error:
        what = str(error).partition("\n")[0]
        typer.echo(f"it has no graph, so that a service needs torch for it: {what}", err=True)

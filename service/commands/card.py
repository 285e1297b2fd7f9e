"""`turnwise card`: states in a model's card what its encoder computes."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.errors import TurnwiseError


def card(
    model: Annotated[str, typer.Argument(help="A sentence-transformers folder or hub name.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the card and the heads.", show_default="MODEL")
    ] = None,
) -> None:
    """State in a model's card what its encoder computes, for replicas with a remote encoder.

    Such a replica (TURNWISE_ENCODER_URL) needs no other file of the model. `turnwise train` states
    it in the cards that it writes.
    """
    from turnwise.models.card import CARD, file_of, update_card  # noqa: PLC0415
    from turnwise.models.encoder import UtteranceEncoder  # noqa: PLC0415 - loads torch
    from turnwise.models.head_arrays import HEADS_FILE  # noqa: PLC0415

    facts = UtteranceEncoder(model).facts
    folder = out or Path(model)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        for name in (CARD, HEADS_FILE):
            if file := file_of(model, name):
                shutil.copyfile(file, out / name)
    elif not folder.is_dir():
        raise TurnwiseError(f"'{model}' is no folder: name one for its card with --out")
    update_card(folder, "encoder", facts)
    typer.echo(f"{folder / CARD}: {facts.kind}, dimension {facts.dimension}, {facts.fingerprint}")

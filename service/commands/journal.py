"""`turnwise journal`: joins the files of the journal into dialogues, and compacts them."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.data import write_jsonl
from turnwise.service.commands.options import Written

journal = typer.Typer(
    help="Use what the service wrote into TURNWISE_JOURNAL.", no_args_is_help=True
)

Folders = Annotated[
    list[Path], typer.Argument(help="Folders of the journals of all replicas.", metavar="FOLDER...")
]


@journal.command()
def export(folders: Folders, *, out: Written) -> None:
    """Write dialogues, as train and evaluate read them.

    Sessions that were deleted and turns that were undone are left out.
    """
    from turnwise.service.journal.export import dialogues  # noqa: PLC0415

    typer.echo(f"{write_jsonl(out, dialogues(folders))} dialogues written to {out}")


@journal.command()
def compact(folders: Folders) -> None:
    """Remove sessions that were deleted from the files, beside a running service too."""
    from turnwise.service.journal.compact import remove_deleted  # noqa: PLC0415

    done = remove_deleted(folders)
    typer.echo(f"{done.lines} lines removed from {done.files} files")
    if done.busy:
        typer.echo(f"{done.busy} files are still written: compact again in an hour")

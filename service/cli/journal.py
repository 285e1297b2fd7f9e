"""`turnwise journal`: joins the files of the journal into dialogues, and compacts them."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.text_files import write_jsonl
from turnwise.models.texts import write_count
from turnwise.service.cli.options import Written

journal = typer.Typer(
    help="Export and compact the journal (TURNWISE_JOURNAL).", no_args_is_help=True
)

Folders = Annotated[
    list[Path], typer.Argument(help="Folders of the journals of all replicas.", metavar="FOLDER...")
]


@journal.command()
def export(
    folders: Folders,
    *,
    out: Written,
    pool: Annotated[
        str | None,
        typer.Option(help="Only dialogues with turns that this pool answered, and its choices."),
    ] = None,
) -> None:
    """Write the journal as dialogues for train and evaluate.

    The command leaves out deleted sessions and undone turns.
    """
    from turnwise.service.journal.export import export_dialogues

    count = write_jsonl(out, export_dialogues(folders, pool))
    typer.echo(f"{write_count(count, 'dialogue')} written to {out}")


@journal.command()
def compact(folders: Folders) -> None:
    """Remove the lines of deleted sessions from the files. The service may be running."""
    from turnwise.service.journal.compact import remove_deleted

    done = remove_deleted(folders)
    typer.echo(f"{write_count(done.lines, 'line')} removed from {write_count(done.files, 'file')}")
    if done.busy:
        typer.echo(
            f"{write_count(done.busy, 'file')} still being written: compact again in an hour"
        )

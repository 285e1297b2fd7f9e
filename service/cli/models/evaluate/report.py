"""Writes and prints the results of a task."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnwise.models.evaluation.report import Report, Row
from turnwise.service.cli.options import RUNS

_WIDE = 160


def report(
    task: str, data: Iterable[Path], rows: Sequence[Row], out: Path | None, note: str = ""
) -> None:
    """Write a task's results and print its tables; a note says how the examples were made."""
    folder = out or RUNS / f"evaluate-{task}"
    results = Report(task, tuple(map(str, data)), tuple(rows), note)
    results.write(folder)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)  # a file or a pipe does not wrap lines
    for table in results.overall():
        shown = Table(title=table.title, title_justify="left", box=SIMPLE_HEAD)
        shown.caption = table.note or None
        shown.caption_justify = "left"
        for index, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if index else "left")
        for cells in table.rows:
            shown.add_row(*map(escape, cells))
        console.print(shown)
    typer.echo(f"written to {folder}")

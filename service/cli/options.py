"""Options that several commands share: how they are parsed, checked and read."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from inspect import Signature, signature
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import DialogueFormat, read_dialogues
from turnwise.models.extras import require

RUNS = Path("runs")
"""Folder of results, unless `--out` names another."""


class ManyValues(TyperCommand):
    """A command whose repeatable options take many values: `--data A B` is `--data A --data B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's Context
        """Repeat the option before each of its values, and let click parse the result."""
        repeatable: set[str] = set()
        for parameter in self.params:
            if getattr(parameter, "multiple", False):
                repeatable.update(parameter.opts)
        spread: list[str] = []
        option = ""
        values = 0
        for arg in args:
            if arg.startswith("-"):
                option = arg
                values = 0
            else:
                values += 1
                if option in repeatable and values > 1:
                    spread.append(option)
            spread.append(arg)
        return super().parse_args(ctx, spread)


def find_nearest(path: Path) -> Path:
    """Return the path if it exists, else its nearest parent that exists and that the user sees."""
    whole = path.absolute()
    # `Path.exists` would raise for a path behind a folder that is closed to the user.
    return next(part for part in (whole, *whole.parents) if os.access(part, os.F_OK))


def is_writable(path: Path) -> bool:
    """Return whether a path is a writable folder."""
    return path.is_dir() and os.access(path, os.W_OK)


def check_drawable(folder: Path | None) -> Path | None:
    """Check early that pictures can be drawn and written to the folder; return the folder."""
    require("matplotlib")
    _check_folder(folder or RUNS)
    return folder


def check_writable(file: Path | None) -> Path | None:
    """Check early that the file can be written; return the file."""
    if file:
        _check_folder(file.parent)
        if file.is_dir():
            raise typer.BadParameter(f"'{file}' is a folder")
    return file


def check_lines_file(file: Path) -> Path:
    """Check early that JSON Lines can be written to the file, and read by its ending."""
    if file.suffix in {".csv", ".tsv", ".txt", ".gz", ".xz"}:
        raise typer.BadParameter(f"'{file.name}' would hold JSON Lines: end its name with .jsonl")
    check_writable(file)
    return file


def _check_folder(folder: Path) -> None:
    there = find_nearest(folder)
    if not is_writable(there):
        raise typer.BadParameter(f"'{there}' is not a writable folder")


DATA_HELP = "Files of dialogues (.jsonl, .json, .csv, .txt; .gz, .xz), read as one split."
Data = Annotated[list[Path], typer.Option("--data", help=DATA_HELP, metavar="FILE ...")]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Read only the first N dialogues or examples.")
]
Written = Annotated[Path, typer.Option(help="File to write (.jsonl).", callback=check_lines_file)]


def read_format(
    *,
    dialogue: Annotated[
        str | None,
        typer.Option(
            help="Column of the dialogue in tables.", show_default="dialogue_id, session, ..."
        ),
    ] = None,
    speaker: Annotated[
        str | None,
        typer.Option(help="Column of the speaker.", show_default="speaker, role, ..."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Column of what was said.", show_default="text, message, ..."),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of the files, such as cp1252.",
            show_default="UTF-8, or what their byte order mark says",
        ),
    ] = None,
) -> DialogueFormat:
    """Return the format of files of dialogues that these options name."""
    return DialogueFormat(dialogue, speaker, text, encoding)


def with_options(
    **groups: Callable[..., object],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command groups of options that it shares with other commands.

    typer reads the options of a command from its signature, and has no groups of them.

    Args:
        groups: Functions by the names of the command's parameters. The parameters of a function
            become options of the command, which gets what the function returns.
    """
    options = {name: signature(make).parameters for name, make in groups.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = signature(command).parameters.values()
        own = [each for each in parameters if each.name not in groups]

        @wraps(command)
        def run(**given: Any) -> None:  # noqa: ANN401 - the values of any options
            for name, make in groups.items():
                given[name] = make(**{option: given.pop(option) for option in options[name]})
            command(**given)

        # A command that is only listed does not import the types of the groups' values.
        kinds = command.__annotations__.items()
        run.__annotations__ = {name: kind for name, kind in kinds if name not in groups}
        shared = chain.from_iterable(group.values() for group in options.values())
        run.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
        return run

    return decorate


def read_files(
    files: Iterable[Path], limit: int | None = None, form: DialogueFormat | None = None
) -> list[Dialogue]:
    """Return the dialogues of some files, or the first `limit` of them.

    If an earlier file has a dialogue of the same id, the name of the file comes before the id.
    """
    found: list[Dialogue] = []
    first_file: dict[str, Path] = {}
    pairs = ((file, each) for file in files for each in read_dialogues(file, form))
    for file, each in islice(pairs, limit):
        is_first = first_file.setdefault(each.id, file) == file
        found.append(each if is_first else replace(each, id=f"{file}: {each.id}"))
    return found

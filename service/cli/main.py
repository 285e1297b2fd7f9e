"""The command line; `turnwise --help` lists its commands."""

import re
import sys
from typing import Annotated, NoReturn

import typer

from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.extras import EXTRAS, install_line
from turnwise.service.cli.backup import backup, restore
from turnwise.service.cli.chat import chat
from turnwise.service.cli.doctor import doctor
from turnwise.service.cli.journal import journal
from turnwise.service.cli.key import key
from turnwise.service.cli.mcp import mcp
from turnwise.service.cli.models.calibrate import calibrate
from turnwise.service.cli.models.card import card
from turnwise.service.cli.models.dialogues import dialogues
from turnwise.service.cli.models.evaluate import evaluate
from turnwise.service.cli.models.train import train
from turnwise.service.cli.options import ManyValues
from turnwise.service.cli.pool import pool
from turnwise.service.cli.serve import serve
from turnwise.service.cli.session import session
from turnwise.service.urls import hide_secrets

_SERVICE = "The service"
_MODELS = "Models"
_EXTRAS = {
    "serve": "server",
    "doctor": "server",
    "pool": "server",
    "backup": "server",
    "restore": "server",
    "calibrate": "encoder",
    "journal": "server",
    "card": "encoder",
    "train": "train",
    "evaluate": "train",
    "mcp": "mcp",
}
"""The extra that each command needs; the other commands need none."""
_HTTP_ADVICE = re.compile(r"create it with PUT /pools/(\S+)$")
_ADVICE = r"create it with `turnwise pool load FILE --pool \1`"

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)
app.command(rich_help_panel=_SERVICE)(serve)
app.command(rich_help_panel=_SERVICE)(chat)
app.command(rich_help_panel=_SERVICE)(mcp)
app.command(rich_help_panel=_SERVICE)(doctor)
app.add_typer(pool, name="pool", rich_help_panel=_SERVICE)
app.command(rich_help_panel=_SERVICE)(backup)
app.command(rich_help_panel=_SERVICE)(restore)
app.add_typer(session, name="session", rich_help_panel=_SERVICE)
app.command(cls=ManyValues, rich_help_panel=_SERVICE)(calibrate)
app.add_typer(journal, name="journal", rich_help_panel=_SERVICE)
app.command(cls=ManyValues, rich_help_panel=_SERVICE)(key)
app.command(rich_help_panel=_MODELS)(dialogues)
app.command(cls=ManyValues, rich_help_panel=_MODELS)(train)
app.command(rich_help_panel=_MODELS)(card)
app.add_typer(evaluate, name="evaluate", rich_help_panel=_MODELS)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"turnwise {version('turnwise')}")
        raise typer.Exit


@app.callback()
def turnwise(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Online response selection for conversations.

    Begin with `turnwise serve`, then `turnwise chat` in another terminal.
    """


def main() -> None:
    """Run the command line; an error that the user can fix ends in one line and exit status 2."""
    try:
        app()
    except ModuleNotFoundError as error:
        _report_missing_extra(error)
    except (TurnwiseError, OSError) as error:
        said = error.advise(f"--{error.option}") if isinstance(error, DataError) else str(error)
        said = _HTTP_ADVICE.sub(_ADVICE, said)
        _fail("; ".join([said, *getattr(error, "__notes__", ())]))


def _report_missing_extra(error: ModuleNotFoundError) -> NoReturn:
    command = next((word for word in sys.argv[1:] if word in _EXTRAS), None)
    if command is None or str(error.name).startswith("turnwise"):
        raise error
    extra = _EXTRAS[command]
    if extra == "server" and error.name in EXTRAS["encoder"]:  # a model of the settings needs it
        extra = "encoder"
    _fail(f"turnwise {command} needs the extra '{extra}': {install_line(extra)}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {hide_secrets(' '.join(message.split()))}", err=True)
    raise SystemExit(2) from None

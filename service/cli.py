"""The command line: `turnwise serve`, `pool`, `key`, `train` and `evaluate`."""

import typer

from models.errors import TurnwiseError
from service.commands.evaluate import evaluate
from service.commands.key import key
from service.commands.many_values import ManyValues
from service.commands.pool import pool
from service.commands.serve import serve
from service.commands.train import train
from service.errors import ServiceError

app = typer.Typer(
    help="Online response selection for conversations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.add_typer(pool, name="pool")
app.command(cls=ManyValues)(key)
app.command(cls=ManyValues)(train)
app.add_typer(evaluate, name="evaluate")


def main() -> None:
    """Run the command line; what a user can mend ends in one line and exit status 2."""
    try:
        app()
    except (TurnwiseError, ServiceError, OSError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise SystemExit(2) from None

"""Options that commands share."""

import typer
from typer.testing import CliRunner

from turnwise.service.cli.options import with_options


def read_point(*, x: int = 1, y: int = 2) -> tuple[int, int]:
    return x, y


def test_a_command_gets_the_value_of_a_group_of_options() -> None:
    app = typer.Typer()

    @app.command()
    @with_options(point=read_point)
    def show(name: str, *, point: tuple[int, int]) -> None:
        typer.echo(f"{name} {point}")

    assert CliRunner().invoke(app, ["corner", "--y", "5"]).output == "corner (1, 5)\n"

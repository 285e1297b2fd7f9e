"""`turnwise chat`."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from turnwise.service.commands.connected import LOCAL, Key, Url, connected

if TYPE_CHECKING:
    from turnwise.service.commands.terminal import Chat


def chat(
    *,
    url: Url = LOCAL,
    key: Key = None,
    session: Annotated[
        str | None, typer.Option(help="To come back to; without it, forgotten at the end.")
    ] = None,
    pool: Annotated[str, typer.Option(help="Where the candidates come from.")] = "default",
    top_k: Annotated[int, typer.Option(min=1, help="Candidates to show.")] = 5,
    goal: Annotated[str, typer.Option(help="What the user should end up saying.")] = "",
) -> None:
    """Talk to a running service: say what the user says, choose the bot's replies.

    Lines may come from a file: `turnwise chat < lines.txt`.
    """
    from turnwise.service.commands.terminal import HELP, Chat  # noqa: PLC0415

    console = Console()
    with connected(url, key) as client, client.session(session, forget=session is None) as talk:
        talking = Chat(talk, console, pool=pool, top_k=top_k)
        if sys.stdin.isatty():
            console.print(HELP, markup=False, highlight=False)
        if goal:
            talking.hear(f"/goal {goal}")
        for line in _lines(talking):
            if not talking.hear(line):
                break


def _lines(talking: "Chat") -> Iterator[str]:
    """Yield lines until they end, or Ctrl-C; what does not come from a keyboard is shown."""
    keyboard = sys.stdin.isatty()
    while True:
        prompt = f"{talking.speaker}> "
        try:
            line = input(prompt if keyboard else "")
        except (EOFError, KeyboardInterrupt):
            typer.echo()
            return
        if not keyboard:
            typer.echo(prompt + line)
        yield line

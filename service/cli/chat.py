"""`turnwise chat`: the command; `terminal` holds the dialogue."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from turnwise.service.cli.connected import LOCAL, Key, Url, connected

if TYPE_CHECKING:
    from turnwise.service.cli.terminal import Chat


def chat(
    *,
    url: Url = LOCAL,
    key: Key = None,
    session: Annotated[
        str | None,
        typer.Option(help="Session to continue; by default a new one, deleted at the end."),
    ] = None,
    pool: Annotated[str, typer.Option(help="Pool of the candidates.")] = "default",
    top_k: Annotated[int, typer.Option(min=1, help="Candidates to show.")] = 5,
    goal: Annotated[str, typer.Option(help="Utterance to lead the user to.")] = "",
) -> None:
    """Talk to a running service: you write the user's turns and choose the bot's replies.

    It also reads lines from a file: `turnwise chat < lines.txt`.
    """
    from turnwise.service.cli.terminal import HELP, Chat

    console = Console()
    with connected(url, key) as client, client.session(session, forget=session is None) as opened:
        dialogue = Chat(opened, console, pool=pool, top_k=top_k)
        if sys.stdin.isatty():
            console.print(HELP, markup=False, highlight=False)
        if goal:
            dialogue.hear(f"/goal {goal}")
        for line in _read_lines(dialogue):
            if not dialogue.hear(line):
                break


def _read_lines(dialogue: "Chat") -> Iterator[str]:
    """Yield lines until the input ends or Ctrl-C; print lines that do not come from a keyboard."""
    keyboard = sys.stdin.isatty()
    while True:
        prompt = f"{dialogue.speaker}> "
        try:
            line = input(prompt if keyboard else "")
        except (EOFError, KeyboardInterrupt):
            typer.echo()
            return
        if not keyboard:
            typer.echo(prompt + line)
        yield line

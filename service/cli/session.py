"""`turnwise session`: lists and deletes sessions of a running service."""

from functools import partial
from typing import Annotated

import typer

from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.cli.pages import read_pages

session = typer.Typer(
    help="List and delete sessions. Both need an API key with the scope admin.",
    no_args_is_help=True,
)

Namespace = Annotated[
    str | None,
    typer.Option(help="Namespace of the sessions.", show_default="the name of the API key"),
]


@session.command("list")
def list_sessions(
    prefix: Annotated[
        str | None, typer.Argument(help="Prefix of their ids.", show_default="all sessions")
    ] = None,
    *,
    url: Url = LOCAL,
    key: Key = None,
    namespace: Namespace = None,
) -> None:
    """Print the ids of sessions, unordered."""
    with connected(url, key, namespace) as client:
        for page in read_pages(partial(client.sessions, prefix)):
            for each in page.ids:
                typer.echo(each)


@session.command("delete")
def delete_sessions(
    prefix: Annotated[str, typer.Argument(help="Prefix of their ids.")],
    *,
    learned: Annotated[
        bool, typer.Option("--learned", help="Also remove what candidates learned from them.")
    ] = False,
    url: Url = LOCAL,
    key: Key = None,
    namespace: Namespace = None,
) -> None:
    """Delete all sessions whose ids begin with a prefix, such as those of a user.

    After an interruption, run the command again.
    """
    with connected(url, key, namespace) as client:
        pages = list(read_pages(partial(client.delete_sessions, prefix, learned=learned)))
    typer.echo(f"sessions deleted: {sum(page.deleted for page in pages)}")
    if learned:
        typer.echo(f"learned examples removed: {pages[-1].learned}")

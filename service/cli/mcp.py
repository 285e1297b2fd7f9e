"""`turnwise mcp`: the tools of a running service for agents."""

from typing import Annotated

import typer

from turnwise.service.cli.connected import LOCAL, Key, Url


def mcp(
    *,
    url: Url = LOCAL,
    key: Key = None,
    http: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Serve streamable HTTP at /mcp of this port; by default stdin and stdout.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to bind to, with --http.")] = "127.0.0.1",
) -> None:
    """Offer a running service to agents, over the Model Context Protocol.

    The tools are select_reply, rank_replies, plan_goals and search_pool. Over HTTP each caller
    sends its own API key, and --key is not used.
    """
    from turnwise.service.mcp import make_server

    server = make_server(url, key)
    if http is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host=host, port=http)

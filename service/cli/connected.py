"""The client of commands that talk to a running service, and their options."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnwise.service.client import Client

LOCAL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(envvar="TURNWISE_URL", help="URL of the service.")]
Key = Annotated[str | None, typer.Option(envvar="TURNWISE_KEY", help="API key.")]

FIRST_ANSWER = 2.0
"""Deadline of the first call, in seconds: short, because a person waits at a terminal."""


@contextmanager
def connected(url: str, key: str | None, namespace: str | None = None) -> Iterator["Client"]:
    """Yield a client of a service that answers. Errors name the options that may help.

    Raises:
        ClientError: The service cannot be reached, its URL has a path, or it rejects the API key.
    """
    from turnwise.service.client import AccessError, Client, UnreachableError

    try:
        with Client(url, key=key, deadline=FIRST_ANSWER) as client:
            _check_url(client)
        with Client(url, key=key, namespace=namespace) as client:
            yield client
    except UnreachableError as error:
        error.add_note("start a service with `turnwise serve`, or set --url or TURNWISE_URL")
        raise
    except AccessError as error:
        error.add_note("set --key or TURNWISE_KEY")
        raise


def _check_url(client: "Client") -> None:
    from turnwise.service.client import NotFoundError

    try:
        client.version()
    except NotFoundError as error:
        error.add_note("leave out the path of --url or TURNWISE_URL")
        raise

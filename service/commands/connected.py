"""Commands that talk to a running service."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.models.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.service.client import Client

LOCAL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(envvar="TURNWISE_URL", help="Of the service.")]
Key = Annotated[str | None, typer.Option(envvar="TURNWISE_KEY", help="API key.")]

_FIRST_ANSWER = 2.0
"""Seconds after which nobody is there: who waits at a terminal is told soon."""


@contextmanager
def connected(url: str, key: str | None) -> Iterator["Client"]:
    """Give a client of a service that answers; add the way out to what it fails with.

    Raises:
        TurnwiseError: There is no service, or it does not let this key in.
    """
    from turnwise.service.client import AccessError, Client, UnreachableError  # noqa: PLC0415

    try:
        with Client(url, key=key, deadline=_FIRST_ANSWER) as client:
            client.version()
        with Client(url, key=key) as client:
            yield client
    except UnreachableError as error:
        raise TurnwiseError(
            f"{error}; `turnwise serve` starts a service, --url or TURNWISE_URL names another"
        ) from None
    except AccessError as error:
        raise TurnwiseError(f"{error}; --key or TURNWISE_KEY holds another") from None

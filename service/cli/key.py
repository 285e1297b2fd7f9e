"""`turnwise key`: makes an API key."""

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from turnwise.models.errors import first_error


def key(
    name: Annotated[str, typer.Argument(help="Name of the key; also its namespace.")],
    *,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Scopes: select, pools, admin.", show_default="select"),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="Days until it expires.", min=1, max=36_500, show_default="never"),
    ] = None,
) -> None:
    """Make an API key.

    Prints the key, once, and the JSON for TURNWISE_API_KEYS or TURNWISE_API_KEYS_FILE.
    """
    from pydantic import ValidationError

    from turnwise.service.wire.keys import ApiKey

    secret = secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days) if days else None
    fields = {"name": name, "sha256": digest, "scopes": scope or ["select"], "expires": expires}
    try:
        made = ApiKey.model_validate(fields)
    except ValidationError as error:
        raise typer.BadParameter(first_error(error)) from None
    typer.echo(f"key, shown only now:     {secret}")
    typer.echo(f"for TURNWISE_API_KEYS: [{made.model_dump_json(exclude_none=True)}]")

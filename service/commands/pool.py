"""`turnwise pool`: catalogues of candidates."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from turnwise.service.commands.connected import LOCAL, Key, Url, connected

if TYPE_CHECKING:
    from turnwise.service.settings import Settings

pool = typer.Typer(help="Load, save and restore pools of candidates.", no_args_is_help=True)


def _name(value: str | None) -> str | None:
    """Check a name, as the API does of those that come to it."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415

    from turnwise.service.wire.fields import Name  # noqa: PLC0415

    try:
        return value if value is None else TypeAdapter[str](Name).validate_python(value)
    except ValidationError:
        raise typer.BadParameter(
            f"'{value}' is no name: a letter or digit, then up to 127 of these and . _ ~ -"
        ) from None


Namespace = Annotated[
    str, typer.Option(help="Whose pool: the name of the API key.", callback=_name)
]
RedisUrl = Annotated[
    str | None,
    typer.Option(help="Of the Redis of the pools.", show_default="TURNWISE_REDIS_URL, or private"),
]


@pool.command("load")
def load(
    file: Annotated[
        Path, typer.Argument(help='Lines of {"id", "text", "metadata"} (.jsonl; .gz, .xz).')
    ],
    *,
    pool: Annotated[str, typer.Option(help="Name of the pool; made where there is none.")],
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Upload candidates to a running service.

    They become one version of the pool: all of them, or none.
    """
    from turnwise.service.client import NotFoundError  # noqa: PLC0415
    from turnwise.service.commands.progress import UploadProgress  # noqa: PLC0415

    with connected(url, key) as client:
        target = client.pool(pool)
        try:
            target.info()
        except NotFoundError:
            target.create()
        with UploadProgress() as progress:
            edited = target.upsert(file, progress)
    _say(
        f"pool {pool}: version {edited.version}, {edited.size} candidates "
        f"({edited.upserted} new or changed, {edited.unchanged} as before)"
    )


@pool.command("snapshot")
def snapshot(
    name: Annotated[str, typer.Argument(help="Of the pool.", callback=_name)],
    folder: Annotated[Path, typer.Argument(help="To write to; must not exist or be empty.")],
    *,
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Write a pool to a folder.

    Candidates, vectors, and a manifest with their checksums.
    """
    from turnwise.service.app.snapshots import save  # noqa: PLC0415 - loads torch

    with Console().status(f"reading pool {name}"):
        made = asyncio.run(save(_settings(redis_url), namespace, name, folder))
    _say(f"pool {name}: version {made.version}, {made.size} candidates, written to {folder}")


@pool.command("restore")
def restore(
    folder: Annotated[Path, typer.Argument(help="A snapshot.")],
    *,
    pool: Annotated[
        str | None,
        typer.Option(help="Name of the pool.", show_default="that of the snapshot", callback=_name),
    ] = None,
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Make a pool what a folder holds.

    In one version; a folder that is not whole is refused.
    """
    from turnwise.service.app.snapshots import restore  # noqa: PLC0415 - loads torch
    from turnwise.service.commands.progress import UploadProgress  # noqa: PLC0415

    with UploadProgress() as progress:
        work = restore(_settings(redis_url), namespace, pool, folder, progress)
        name, edited = asyncio.run(work)
    _say(f"pool {name}: version {edited.version}, {edited.size} candidates, from {folder}")


def _settings(redis_url: str | None) -> "Settings":
    from turnwise.service.settings import read_settings  # noqa: PLC0415

    return read_settings(redis_url=redis_url) if redis_url else read_settings()


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)

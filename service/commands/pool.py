"""`turnwise pool`: catalogues of candidates."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from service.settings import Settings

pool = typer.Typer(help="Load, save and restore pools of candidates.", no_args_is_help=True)


Namespace = Annotated[str, typer.Option(help="Whose pool: the name of the API key.")]
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
    url: Annotated[
        str, typer.Option(envvar="TURNWISE_URL", help="Of the service.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None, typer.Option(envvar="TURNWISE_KEY", help="API key with the scope pools.")
    ] = None,
) -> None:
    """Upload candidates to a running service, as one version: all of them or none."""
    from service.client import upload  # noqa: PLC0415
    from service.progress import UploadProgress  # noqa: PLC0415

    with UploadProgress() as progress:
        edited = upload(file, pool, url=url, key=key, progress=progress)
    _say(
        f"pool {pool}: version {edited['version']}, {edited['size']} candidates "
        f"({edited['upserted']} new or changed, {edited['unchanged']} as before)"
    )


@pool.command("snapshot")
def snapshot(
    name: Annotated[str, typer.Argument(help="Of the pool.")],
    folder: Annotated[Path, typer.Argument(help="To write to; must not exist or be empty.")],
    *,
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Write a pool to a folder: candidates, vectors, and a manifest with their checksums."""
    from service.snapshots import save  # noqa: PLC0415 - loads torch

    made = asyncio.run(save(_settings(redis_url), namespace, name, folder))
    _say(f"pool {name}: version {made.version}, {made.size} candidates, written to {folder}")


@pool.command("restore")
def restore(
    folder: Annotated[Path, typer.Argument(help="A snapshot.")],
    *,
    pool: Annotated[
        str | None, typer.Option(help="Name of the pool.", show_default="that of the snapshot")
    ] = None,
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Make a pool what a folder holds, as one version; refuse a folder that is not whole."""
    from service.progress import UploadProgress  # noqa: PLC0415
    from service.snapshots import restore  # noqa: PLC0415 - loads torch

    with UploadProgress() as progress:
        work = restore(_settings(redis_url), namespace, pool, folder, progress)
        name, edited = asyncio.run(work)
    _say(f"pool {name}: version {edited.version}, {edited.size} candidates, from {folder}")


def _settings(redis_url: str | None) -> "Settings":
    from service.settings import read_settings  # noqa: PLC0415 - loads torch

    return read_settings(redis_url=redis_url) if redis_url else read_settings()


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)

"""`turnwise pool snapshot`, `restore` and `move`: a whole pool, read from Redis or a store."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from turnwise.models.texts import write_count
from turnwise.service.cli.pool.options import (
    Namespace,
    PoolName,
    RedisUrl,
    check_name,
    parse_store,
    read_settings_of,
)
from turnwise.service.cli.progress import UploadProgress
from turnwise.service.wire import DEFAULT_NAMESPACE


def snapshot(
    name: PoolName,
    folder: Annotated[Path, typer.Argument(help="Folder to write to; must be empty or not exist.")],
    *,
    namespace: Namespace = DEFAULT_NAMESPACE,
    redis_url: RedisUrl = None,
) -> None:
    """Write a snapshot of a pool to a folder.

    The folder holds candidates, vectors, and a manifest with their checksums.
    """
    from turnwise.service.cli.pool.transfer import save_pool

    settings = read_settings_of(redis_url, namespace)
    with Console().status(f"reading pool {name}"):
        manifest = asyncio.run(save_pool(settings, namespace, name, folder))
    typer.echo(
        f"pool {name}: version {manifest.version}, {write_count(manifest.size, 'candidate')}, "
        f"written to {folder}"
    )


def restore(
    folder: Annotated[Path, typer.Argument(help="Folder of the snapshot.")],
    *,
    pool: Annotated[
        str | None,
        typer.Option(
            help="Name of the pool.", show_default="as in the snapshot", callback=check_name
        ),
    ] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    redis_url: RedisUrl = None,
) -> None:
    """Restore a pool from a snapshot.

    This makes one version. The command rejects an incomplete snapshot, and then changes nothing.
    """
    from turnwise.service.cli.pool.transfer import restore_pool

    settings = read_settings_of(redis_url, namespace)
    with UploadProgress("loading") as progress:
        name, edited = asyncio.run(restore_pool(settings, namespace, pool, folder, progress))
    typer.echo(
        f"pool {name}: version {edited.version}, {write_count(edited.size, 'candidate')}, from "
        f"{folder}"
    )


def move(
    name: PoolName,
    *,
    to: Annotated[str, typer.Option(help="Candidate store: milvus, or experimentally qdrant.")],
    namespace: Namespace = DEFAULT_NAMESPACE,
    redis_url: RedisUrl = None,
) -> None:
    """Move a pool to the candidate store that TURNWISE_STORE_URL names.

    The command copies candidates and vectors. Running services keep using the pool, and switch to
    the copy when it is complete.
    """
    from turnwise.service.cli.pool.transfer import move_pool

    store = parse_store(to, "--to", "local")
    settings = read_settings_of(redis_url, namespace)
    with Console().status(f"copying pool {name}"):
        pool = asyncio.run(move_pool(settings, namespace, name, store))
    typer.echo(
        f"pool {name}: version {pool.version}, {write_count(pool.size, 'candidate')}, in the "
        f"store {pool.store}"
    )

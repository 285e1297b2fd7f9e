"""Pools between Redis and folders, for the command line: a replica that follows no pool."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from turnwise.service.app.replica import Replica, running_replica
from turnwise.service.errors import PoolNotFound
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Manifest, read_snapshot, write_snapshot
from turnwise.service.settings import Settings
from turnwise.service.state.private_redis import running_or_started
from turnwise.service.wire.pools import Edited

Progress = Callable[[int, int], None]


async def save(settings: Settings, namespace: str, name: str, folder: Path) -> Manifest:
    """Write a pool's version of now to a folder, which must not exist or be empty.

    Raises:
        SnapshotError: The folder cannot be written.
        ServiceError: There is no such pool, or Redis cannot be reached.
    """
    async with _replica(settings) as replica:
        await replica.pools.load(namespace, name)
        view, info = replica.pools.view(namespace, name), replica.pools.info(namespace, name)
        return await asyncio.to_thread(
            write_snapshot,
            view,
            folder,
            model=info.model,
            fingerprint=info.fingerprint,
            description=info.description,
        )


async def restore(
    settings: Settings, namespace: str, name: str | None, folder: Path, progress: Progress
) -> tuple[str, Edited]:
    """Make a pool what a folder holds, in one new version; return its name and that.

    Args:
        settings: Which Redis, and which model; texts are encoded again for another than the
            snapshot's.
        namespace: Whose pool.
        name: Of the pool, which may be there, and keeps its description then, or not; that of the
            snapshot where there is none.
        folder: A snapshot.
        progress: Gets how many texts are encoded, and of how many.

    Raises:
        SnapshotError: The folder holds no whole snapshot.
        ServiceError: Redis cannot be reached, or the encoder fails.
    """
    snapshot = await asyncio.to_thread(read_snapshot, folder)
    name = name or snapshot.manifest.pool
    async with _replica(settings) as replica:
        pools = replica.pools
        try:
            await pools.load(namespace, name)
        except PoolNotFound:
            manifest = snapshot.manifest
            await pools.create(namespace, name, manifest.description, manifest.encoder)
        return name, await pools.restore(namespace, name, snapshot, progress)


@asynccontextmanager
async def _replica(settings: Settings) -> AsyncIterator[Replica]:
    async with AsyncExitStack() as stack:
        url = settings.redis_url
        if url is None:
            url = await stack.enter_async_context(running_or_started(settings.redis_folder))
        yield await stack.enter_async_context(running_replica(settings, url, Metrics()))

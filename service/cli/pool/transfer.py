"""Saves, restores and moves whole pools, with the model and the Redis of the settings."""

import asyncio
from collections.abc import AsyncIterable, Callable
from functools import partial
from pathlib import Path

from turnwise.service.app.components import Components, components_of
from turnwise.service.errors import PoolNotFound
from turnwise.service.pools import (
    PoolEncoder,
    PoolKey,
    SnapshotManifest,
    read_snapshot,
    write_snapshot,
)
from turnwise.service.pools.encoding import EncodingProgress
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.settings import Settings
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import Edited, PoolInfo, PoolRequest


async def save_pool(
    settings: Settings, namespace: str, name: str, folder: Path
) -> SnapshotManifest:
    """Write the current version of a pool to a folder, and return the snapshot's manifest.

    The folder must not exist, or be empty.

    Raises:
        SnapshotError: The folder cannot be written.
        ServiceError: There is no such pool, or Redis cannot be reached.
    """
    async with components_of(settings) as components:
        await components.pools.load(namespace, name)
        view = await components.pools.view(namespace, name)
        info = await components.pools.info(namespace, name)
        return await write_snapshot(view, folder, model=info.model, fingerprint=info.fingerprint)


async def restore_pool(
    settings: Settings, namespace: str, name: str | None, folder: Path, progress: EncodingProgress
) -> tuple[str, Edited]:
    """Replace the contents of a pool by a snapshot, in one version; return its name and the edit.

    Args:
        settings: Name the Redis and the model. Texts are encoded again if the snapshot is of
            another model.
        namespace: The namespace of the pool.
        name: The pool, which keeps its settings if it exists; None for the snapshot's name.
        folder: The snapshot.
        progress: Called with (candidates done, candidates in total).

    Raises:
        SnapshotError: The folder holds no complete snapshot, or one that exceeds a limit.
        ServiceError: Redis cannot be reached, or the encoder fails.
    """
    snapshot = await asyncio.to_thread(read_snapshot, folder, settings.max_pool_size)
    name = name or snapshot.manifest.pool
    batches = partial(snapshot.batches, progress=progress)
    request = snapshot.manifest.request()
    async with components_of(settings) as components:
        edited = await replace_pool(components, PoolKey(namespace, name), batches, new=request)
    return name, edited


async def replace_pool(
    components: Components,
    key: PoolKey,
    batches: Callable[[PoolEncoder], AsyncIterable[CandidateBatch]],
    *,
    new: PoolRequest,
    existing: PoolRequest | None = None,
) -> Edited:
    """Replace all candidates of a pool; create it if there is none, and drop it if that fails.

    Args:
        components: The running components.
        key: The pool.
        batches: Returns candidates with distinct ids, and their vectors by an encoder.
        new: The settings of a new pool.
        existing: The settings that change in an existing one; None for none.

    Raises:
        ServiceError: As `Pools.write_settings` and `Pools.replace`.
    """
    pools = components.pools
    is_new = False
    try:
        await components.followed_pools.look_up(key)
    except PoolNotFound:
        is_new = True
    if request := new if is_new else existing:
        await pools.write_settings(*key, request)
    try:
        return await pools.replace(*key, batches)
    except BaseException:
        if is_new:
            await pools.drop(*key)
        raise


async def move_pool(settings: Settings, namespace: str, name: str, to: StoreName) -> PoolInfo:
    """Move a pool to the candidate store of the settings, and return the moved pool.

    Running services keep using the pool, and switch to the copy when it is complete.

    Raises:
        ServiceError: There is no such pool or store, or Redis or the store cannot be reached.
    """
    async with components_of(settings) as components:
        return await components.pools.move(namespace, name, to)

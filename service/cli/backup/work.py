"""Saves and restores all pools, with the model and the Redis of the settings."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from turnwise.models.texts import write_count
from turnwise.service.app.components import Components, components_of
from turnwise.service.cli.pool.transfer import replace_pool
from turnwise.service.cli.progress import UploadProgress
from turnwise.service.errors import PoolNotFound, PoolNotReady
from turnwise.service.pools import PoolKey, Snapshot, read_snapshot, write_snapshot
from turnwise.service.pools.files.backup import (
    Backup,
    BackupError,
    BackupFolder,
    BackupManifest,
    SavedPool,
)
from turnwise.service.pools.redis.values import Revision
from turnwise.service.settings import Settings, describe_excess
from turnwise.service.wire.pools import Edited

Tell = Callable[[str], None]
"""Prints a line about a pool that is done."""


async def back_up(settings: Settings, folder: Path, tell: Tell) -> BackupManifest:
    """Write every pool and alias to a folder, and return the manifest.

    A pool is left out if it is damaged or missing, or if the settings have no encoder or store for
    it; the manifest says so. Pools and aliases that are created during the backup are part of it.

    Args:
        settings: Name the Redis, and the model of its pools.
        folder: An empty folder, one that does not exist, or an interrupted backup.
        tell: Called with a line about each pool.

    Raises:
        BackupError: The folder holds something else, or a complete backup; or there is no pool.
        SnapshotError: The folder cannot be written.
        ServiceError: Redis or the candidate store cannot be reached.
    """
    backup = await asyncio.to_thread(BackupFolder, folder)
    async with components_of(settings) as components:
        directory = components.followed_pools.directory
        unsaved: dict[PoolKey, str] = {}
        tried: set[PoolKey] = set()
        names, aliases = await directory.names_and_aliases()
        while new := sorted(names - tried):
            for key in new:
                try:
                    await _save_pool(components, backup, key, tell)
                except PoolNotFound:  # deleted just now
                    continue
                except PoolNotReady as error:
                    unsaved[key] = str(error)
            tried |= names
            names, aliases = await directory.names_and_aliases()  # there may be new ones
        for key in await directory.missing() - names - aliases.keys():
            unsaved[key] = "Redis lost it"
    for key in [*backup.saved.keys() - names, *unsaved]:
        backup.forget(key)
    for alias, pool in aliases.items():
        if pool not in backup.saved:
            unsaved[alias] = f"it is an alias of '{pool.name}', which is not saved"
    if not (backup.saved or unsaved):
        raise BackupError("there is no pool in this Redis: nothing is saved")
    return await asyncio.to_thread(backup.finish, aliases, unsaved)


async def _save_pool(
    components: Components, backup: BackupFolder, key: PoolKey, tell: Tell
) -> None:
    """Write the current version of a pool, unless the backup has it already."""
    followed = components.followed_pools
    (newest,) = await followed.records.revisions([key])
    is_saved = newest is not None and await asyncio.to_thread(backup.has, key, newest)
    if is_saved:
        tell(f"pool {key}: saved before")
        return
    await components.pools.load(*key)
    pool = followed.get(key)
    info = pool.info()
    view = pool.view()
    revision = pool.revision
    assert revision  # the pool was read
    try:
        path = await asyncio.to_thread(backup.clear_folder, key)
        manifest = await write_snapshot(view, path, model=info.model, fingerprint=info.fingerprint)
    finally:
        followed.forget(key)
    await asyncio.to_thread(backup.add, key, revision)
    tell(f"pool {key}: version {manifest.version}, {write_count(manifest.size, 'candidate')}")


async def restore_all(settings: Settings, folder: Path, tell: Tell) -> BackupManifest:
    """Restore the pools and aliases of a backup into a Redis; return the manifest of the backup.

    Args:
        settings: Name the Redis and the model. Texts are encoded again if a snapshot is of another
            model.
        folder: The backup.
        tell: Called with a line about each pool.

    Raises:
        BackupError: The folder holds no complete backup, or one that this Redis or these settings
            cannot take. Nothing was changed.
        ServiceError: Redis cannot be reached, the encoder fails, or a namespace is full.
    """
    backup = await asyncio.to_thread(Backup, folder)
    async with components_of(settings) as components:
        await _check_backup(backup, components, settings)
        for saved in backup.manifest.pools:
            most = backup.snapshots[saved.key].size  # `_check_backup` compared it with the limit
            with UploadProgress("loading") as progress:
                path = backup.path_of(saved.key)
                snapshot = await asyncio.to_thread(read_snapshot, path, most)
                edited = await _restore_pool(components, saved, snapshot, progress)
            tell(
                f"pool {saved.key}: version {edited.version}, "
                f"{write_count(edited.size, 'candidate')}"
            )
        directory = components.followed_pools.directory
        for alias in backup.manifest.aliases:
            target = PoolKey(alias.namespace, alias.pool)
            await directory.point(PoolKey(alias.namespace, alias.name), target, None)
        await directory.count_change()
    return backup.manifest


async def _check_backup(backup: Backup, components: Components, settings: Settings) -> None:
    """Check that the backup can be restored here, before anything is changed."""
    followed = components.followed_pools
    names, aliases = await followed.directory.names_and_aliases()
    for saved in backup.manifest.pools:
        snapshot = backup.snapshots[saved.key]
        revision = Revision("", snapshot.settings, snapshot.encoder, saved.store)
        if obstacle := followed.opener.find_obstacle(revision):
            raise BackupError(f"pool {saved.key} cannot be restored: {obstacle}")
        if saved.key in aliases:
            raise BackupError(f"{saved.key} is a pool in the backup, and an alias in this Redis")
        if saved.store == "local" and snapshot.size > (most := settings.max_pool_size):
            excess = describe_excess(snapshot.size, most, "candidates")
            raise BackupError(f"pool {saved.key} cannot be restored: {excess}")
    for alias in backup.manifest.aliases:
        if (key := PoolKey(alias.namespace, alias.name)) in names:
            raise BackupError(f"{key} is an alias in the backup, and a pool in this Redis")


async def _restore_pool(
    components: Components, saved: SavedPool, snapshot: Snapshot, progress: UploadProgress
) -> Edited:
    """Restore the settings and the candidates of a pool; one that exists stays in its store."""
    settings = snapshot.manifest.request()
    new = settings.model_copy(update={"store": saved.store})
    batches = partial(snapshot.batches, progress=progress)
    try:
        return await replace_pool(components, saved.key, batches, new=new, existing=settings)
    finally:
        components.followed_pools.forget(saved.key)

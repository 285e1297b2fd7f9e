"""`turnwise pool encode` and `import`: a catalogue to parts, and parts to a pool."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from turnwise.service.app.components import components_of
from turnwise.service.cli.pool.part_writer import PartWriter
from turnwise.service.errors import PoolNotFound
from turnwise.service.pools import PoolEncoder
from turnwise.service.pools.encoding import Progress
from turnwise.service.pools.files.catalogue import Catalogue
from turnwise.service.pools.files.parts import PartsError, PartsFolder, PartsManifest
from turnwise.service.pools.view import Batch
from turnwise.service.settings import Settings
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import Edited, PoolRequest

if TYPE_CHECKING:  # an extra
    from turnwise.service.cli.pool.on_ray import RemoteWriter


class Encoded(NamedTuple):
    """What an encoding did, and what it left."""

    manifest: PartsManifest
    encoded: int
    """Number of candidates that were encoded now."""
    missing: int
    """Number of parts that are not there yet: those of other shards."""


async def encode(
    settings: Settings,
    files: Sequence[str],
    out: str,
    progress: Progress,
    *,
    shard: int = 1,
    shards: int = 1,
    ray: str | None = None,
) -> Encoded:
    """Encode a catalogue, and write the parts that are not there yet.

    Args:
        settings: Name the model, and the remote encoder if there is one.
        files: Files or URLs of the catalogue.
        out: Folder or URL for the parts.
        progress: Called with (candidates encoded, candidates to encode).
        shard: Which parts this process writes: each `shards`-th one from the `shard`-th on, from 1.
        shards: Number of processes that share the work.
        ray: Address of the Ray cluster that encodes; by default this process does.

    Raises:
        DataError: A row is not a candidate, or a file cannot be read; nothing was written.
        PartsError: The folder has parts of another catalogue or model.
        ServiceError: The encoder failed; the parts before stay.
    """
    folder, catalogue = PartsFolder(out), Catalogue.read(files)
    async with AsyncExitStack() as stack:
        writers = _writers(stack, settings, folder, ray, len(catalogue.ranges))
        manifest = PartsManifest.of(catalogue, await writers[0].encoded_by())
        folder.begin(manifest)
        missing = {part.start for part in folder.missing(manifest)}
        todo = {p.start: p for p in manifest.parts[shard - 1 :: shards] if p.start in missing}
        total = sum(part.stop - part.start for part in todo.values())
        parts, done = catalogue.parts(todo), 0

        async def write(writer: "PartWriter | RemoteWriter") -> None:
            nonlocal done
            for start, some in parts:  # each part to the writer that is free first
                ahead = partial(_ahead, progress, done, total)
                await writer.write(manifest.encoded_by, todo[start], some, ahead)
                done += len(some)
                progress(done, total)

        await asyncio.gather(*map(write, writers))
        return Encoded(manifest, done, len(folder.missing(manifest)))


def _writers(
    stack: AsyncExitStack, settings: Settings, folder: PartsFolder, ray: str | None, most: int
) -> "Sequence[PartWriter | RemoteWriter]":
    if ray:
        from turnwise.service.cli.pool.on_ray import ray_writers  # noqa: PLC0415 - an extra

        return stack.enter_context(ray_writers(ray, settings, folder, most))
    writer = PartWriter(settings, folder)
    stack.push_async_callback(writer.close)
    return [writer]


def _ahead(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    progress(before + done, total)


async def load(
    settings: Settings,
    namespace: str,
    name: str,
    url: str,
    progress: Progress,
    *,
    store: StoreName | None = None,
) -> Edited:
    """Replace the contents of a pool by an encoded catalogue, in one version.

    Args:
        settings: Name the Redis, the model and the candidate store.
        namespace: The namespace of the pool.
        name: The pool, which is created if it does not exist; a failure leaves it as it was.
        url: Folder or URL of the parts.
        progress: Called with (candidates read, candidates in total).
        store: Where the pool must be; None for where it is, and `local` for a new one.

    Raises:
        PartsError: The folder lacks a part, or has vectors of another model; nothing was changed.
        ServiceError: The pool is in another store, would become too large, or Redis or the store
            cannot be reached.
    """
    folder = PartsFolder(url)
    manifest = folder.manifest()
    if missing := folder.missing(manifest):
        raise PartsError(
            f"'{url}' lacks {len(missing)} of {len(manifest.parts)} parts, the first is "
            f"{missing[0].name}: run `turnwise pool encode` again"
        )

    async def batches(_: PoolEncoder) -> AsyncIterator[Batch]:
        done = 0
        for batch in folder.batches(manifest):
            yield batch
            done += len(batch[0])
            progress(done, manifest.size)

    async with components_of(settings) as components:
        by = manifest.encoded_by
        if by.fingerprint != components.cached.fingerprint:
            raise PartsError(
                f"'{url}' was encoded by model '{by.model}' ({by.fingerprint}), and the service "
                f"has '{components.cached.name}' ({components.cached.fingerprint})"
            )
        pools = components.pools
        is_new = False
        try:
            await pools.load(namespace, name)
        except PoolNotFound:
            is_new = True
        await pools.create(namespace, name, PoolRequest(encoder="default", store=store))
        await pools.load(namespace, name)
        try:
            return await pools.replace(namespace, name, batches)
        except BaseException:
            if is_new:
                await pools.drop(namespace, name)
            raise

"""Encoding catalogues in bulk, and loading them, for the command line."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from turnwise.service.app.parts import main_encoder, start_queue
from turnwise.service.app.snapshots import parts_of
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import PoolEncoder, RunningQueries
from turnwise.service.pools.catalogue import Catalogue
from turnwise.service.pools.encoding import Progress, encode_candidates
from turnwise.service.pools.parts import EncodedBy, PartsError, PartsFolder, PartsManifest
from turnwise.service.pools.view import Batch
from turnwise.service.settings import Settings
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import Edited, PoolRequest


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
) -> Encoded:
    """Encode a catalogue, and write the parts that are not there yet.

    Args:
        settings: Name the model, and the remote encoder if there is one.
        files: Files or URLs of the catalogue.
        out: Folder or URL for the parts.
        progress: Called with (candidates encoded, candidates to encode).
        shard: Which parts this process writes: each `shards`-th one from the `shard`-th on, from 1.
        shards: Number of processes that share the work.

    Raises:
        DataError: A row is not a candidate, or a file cannot be read; nothing was written.
        PartsError: The folder has parts of another catalogue or model.
        ServiceError: The encoder failed; the parts before stay.
    """
    folder, catalogue = PartsFolder(out), Catalogue.read(files)
    async with AsyncExitStack() as stack:
        metrics = Metrics()
        encoder = await main_encoder(settings, metrics, stack)
        queue = await start_queue(settings, encoder, metrics, stack)
        candidates = RunningQueries(CachedEncoder(queue, encoder, metrics, size=0))
        manifest = PartsManifest.of(catalogue, EncodedBy.of(encoder))
        folder.begin(manifest)
        missing = {part.start for part in folder.missing(manifest)}
        todo = {p.start: p for p in manifest.parts[shard - 1 :: shards] if p.start in missing}
        done, total = 0, sum(part.stop - part.start for part in todo.values())
        for start, some in catalogue.parts(todo):
            texts = [candidate.text for candidate in some]
            vectors = await encode_candidates(
                candidates, texts, partial(_ahead, progress, done, total)
            )
            folder.write(manifest, todo[start], some, vectors)
            done += len(some)
        return Encoded(manifest, done, len(folder.missing(manifest)))


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
        name: The pool, which is made if it does not exist.
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

    async with parts_of(settings) as parts:
        by = manifest.encoded_by
        if by.fingerprint != parts.cached.fingerprint:
            raise PartsError(
                f"'{url}' was encoded by model '{by.model}' ({by.fingerprint}), and the service "
                f"has '{parts.cached.name}' ({parts.cached.fingerprint})"
            )
        pools = parts.pools
        await pools.create(namespace, name, PoolRequest(encoder="default", store=store))
        await pools.load(namespace, name)
        return await pools.replace(namespace, name, batches)

"""Encodes catalogues into parts, and imports the parts into pools."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

from turnwise.models.texts import write_count
from turnwise.service.app.components import components_of, load_main_encoder, start_queue
from turnwise.service.cli.pool.options import Shard
from turnwise.service.cli.pool.transfer import replace_pool
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import PoolEncoder, PoolKey, RunningQueries
from turnwise.service.pools.encoding import EncodingProgress, encode_batch
from turnwise.service.pools.files.catalogue import Catalogue
from turnwise.service.pools.files.parts import EncodedBy, PartsError, PartsFolder, PartsManifest
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.settings import Settings
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import Edited, PoolRequest


class Encoded(NamedTuple):
    """The result of an encoding."""

    manifest: PartsManifest
    encoded: int
    """Number of candidates that were encoded now."""
    missing: int
    """Number of parts that other shards have not written yet."""


async def encode_catalogue(
    settings: Settings,
    catalogue: Catalogue,
    out: str,
    progress: EncodingProgress,
    shard: Shard,
) -> Encoded:
    """Encode a catalogue, and write the parts that are not there yet.

    Args:
        settings: Name the model, and the remote encoder if there is one.
        catalogue: The catalogue.
        out: Folder or URL for the parts.
        progress: Called with (candidates encoded, candidates to encode).
        shard: The parts that this process writes: every `total`-th, beginning with its number.

    Raises:
        PartsError: The folder has parts of another catalogue or model.
        ServiceError: The encoder failed; the parts that were written before it stay.
    """
    folder = PartsFolder(out)
    async with AsyncExitStack() as stack:
        metrics = Metrics()
        model = await load_main_encoder(settings, metrics, stack)
        queue = await start_queue(settings, model, metrics, stack)
        encoder = RunningQueries(CachedEncoder(queue, model, metrics, size=0))
        manifest = PartsManifest.of(catalogue, EncodedBy.of(model))
        folder.begin(manifest)
        missing = {part.start for part in folder.missing(manifest)}
        own = manifest.parts[shard.number - 1 :: shard.total]
        parts = {part.start: part for part in own if part.start in missing}
        total = sum(part.stop - part.start for part in parts.values())
        encoded = 0

        def report(done: int, _: int) -> None:
            progress(encoded + done, total)

        for start, candidates in catalogue.parts(parts):
            batch = await encode_batch(encoder, candidates, report)
            folder.write(manifest.encoded_by, parts[start], batch)
            encoded += len(candidates)
        return Encoded(manifest, encoded, len(folder.missing(manifest)))


async def import_parts(
    settings: Settings,
    namespace: str,
    name: str,
    url: str,
    progress: EncodingProgress,
    *,
    store: StoreName | None,
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
            f"'{url}' lacks {len(missing)} of {write_count(len(manifest.parts), 'part')}, the "
            f"first is {missing[0].name}: run `turnwise pool encode` again"
        )

    async def batches(_: PoolEncoder) -> AsyncIterator[CandidateBatch]:
        done = 0
        for batch in folder.batches(manifest):
            yield batch
            done += len(batch.candidates)
            progress(done, manifest.size)

    async with components_of(settings) as components:
        _check_model(url, manifest.encoded_by, components.cached)
        request = PoolRequest(encoder="default", store=store)
        key = PoolKey(namespace, name)
        return await replace_pool(components, key, batches, new=request, existing=request)


def _check_model(url: str, by: EncodedBy, encoder: CachedEncoder) -> None:
    """Raise PartsError unless the parts were encoded by the model of the service."""
    if by.fingerprint != encoder.fingerprint:
        raise PartsError(
            f"'{url}' was encoded by model '{by.model}' ({by.fingerprint}), and the service "
            f"has '{encoder.name}' ({encoder.fingerprint})"
        )

"""Checks of the pools in Redis: that they are complete and encoded by the right model."""

from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from turnwise.models.texts import write_count
from turnwise.service.cli.doctor import Finding
from turnwise.service.errors import ServiceError, StoreUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import PoolKey, Revision
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.stores.rows import name_examples
from turnwise.service.wire.fields import StoreName


async def examine_pools(
    redis: Redis, fingerprint: str, *, pairwise: bool, engine: CandidateStore | None
) -> list[Finding]:
    """Return a finding for each pool; change nothing.

    Args:
        redis: The Redis that holds the pools.
        fingerprint: The fingerprint of the model.
        pairwise: Whether the settings name a pairwise model.
        engine: The candidate store of the settings.
    """
    metrics = Metrics()
    records = PoolRecords(redis, metrics, fingerprint=fingerprint)
    directory = Directory(redis, metrics)
    try:
        keys = sorted(await directory.names())
        lost = await directory.missing() - {*keys, *await directory.aliases()}
        revisions = await records.revisions(keys)
        found = [
            await _examine_in_store(records, key, revision.store_name, engine)
            if revision and revision.store_name != "local"
            else await _examine_local(records, key, revision, pairwise=pairwise)
            for key, revision in zip(keys, revisions, strict=True)
        ]
        of_store = await _examine_collections(records, keys, engine) if engine else []
    except ServiceError as error:
        if isinstance(why := error.__cause__, NoPermissionError):
            advice = "allow its user to access the keys tw:* and to run scripts"
            return [Finding("pools", "fail", str(why), advice)]
        return [Finding("pools", "fail", str(error), "see the checks of redis above")]
    if not found:
        found = [Finding("pools", "warn", "none", "`turnwise pool load FILE --pool NAME`")]
    advice = "`turnwise restore FOLDER`, or load it; DELETE /pools/NAME gives it up"
    of_lost = [
        Finding(f"pool {key}", "fail", "Redis lost it, or this alias", advice)
        for key in sorted(lost)
    ]
    return found + of_store + of_lost


async def _examine_local(
    records: PoolRecords,
    key: PoolKey,
    revision: Revision | None,
    *,
    pairwise: bool,
) -> Finding:
    subject = f"pool {key}"
    (summary,) = await records.summaries([key])
    log = await records.read(key)
    if revision is None or summary is None or log is None:
        return Finding(subject, "ok", "is being deleted")
    if revision.encoder_name == "pairwise" and not pairwise:
        return Finding(subject, "fail", "encoded by a pairwise model", "set TURNWISE_PAIRWISE")
    has_vectors = [await records.has_vectors(key, name) for name in log.chunks]
    are_missing = None in has_vectors or not log.whole
    are_of_another_model = False in has_vectors
    found = f"version {summary.version}, {write_count(summary.size, 'candidate')} stored"
    if are_missing:
        advice = "delete it, then restore a snapshot (`turnwise pool restore`) or load it"
        return Finding(subject, "fail", f"{found}; parts are missing", advice)
    if are_of_another_model and revision.encoder_name == "default":
        advice = "the service encodes them when a request first names the pool"
        return Finding(subject, "warn", f"{found}, of another model", advice)
    if not summary.size:
        return Finding(subject, "warn", "empty", f"`turnwise pool load FILE --pool {key.name}`")
    return Finding(subject, "ok", found)


async def _examine_in_store(
    records: PoolRecords, key: PoolKey, name: StoreName, engine: CandidateStore | None
) -> Finding:
    subject = f"pool {key}"
    stored = await records.stored(key)
    if engine is None or engine.name != name or stored is None:
        return Finding(subject, "fail", f"is in the store {name}", "set TURNWISE_STORE_URL")
    found = f"version {stored.position.version}, {write_count(stored.size, 'candidate')} in {name}"
    collection = stored.collection
    try:
        size = await engine.count(collection.name)
    except StoreUnavailable as error:
        return Finding(subject, "fail", str(error), f"see the collection {collection.name}")
    if size != stored.size:
        advice = "load it again: only what is missing is written"
        return Finding(subject, "fail", f"{found}, which has {size}: some are lost", advice)
    if collection.fingerprint != records.fingerprint:
        advice = "load it into another pool with this model, then move an alias"
        return Finding(subject, "fail", f"{found}, of another model", advice)
    recall = "not measured" if collection.recall is None else f"{collection.recall:.3f}"
    return Finding(subject, "ok", f"{found}, recall {recall}")


async def _examine_collections(
    records: PoolRecords, keys: Sequence[PoolKey], engine: CandidateStore
) -> list[Finding]:
    """Return a finding if the store does not answer, or has collections without a pool."""
    pools = [await records.stored(key) for key in keys]
    try:
        in_store = {*await engine.collections()}
    except StoreUnavailable as error:
        return [Finding("store", "fail", str(error), "check TURNWISE_STORE_URL")]
    used = {pool.collection.name for pool in pools if pool}
    used |= {name_examples(name) for name in used}
    unused = sorted(in_store - used)
    if not unused:
        return []
    found = f"collections without a pool in this Redis: {', '.join(unused)}"
    advice = "unless a pool is being loaded, or another Redis uses the store: drop them there"
    return [Finding("store", "warn", found, advice)]

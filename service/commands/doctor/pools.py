"""Checks of the pools in Redis: that they are complete and encoded by the right model."""

from redis.exceptions import NoPermissionError

from turnwise.service.commands.doctor.finding import Finding
from turnwise.service.errors import ServiceError
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.directory import Directory
from turnwise.service.pools.log import Head, PoolKey
from turnwise.service.pools.store import PoolStore
from turnwise.service.state.redis import Redis


async def examine_pools(redis: Redis, fingerprint: str, *, pairwise: bool) -> list[Finding]:
    """Return a finding for each pool; change nothing.

    Args:
        redis: The Redis that holds the pools.
        fingerprint: The fingerprint of the model.
        pairwise: Whether the settings name a pairwise model.
    """
    metrics = Metrics()
    store = PoolStore(redis, metrics, fingerprint=fingerprint)
    try:
        keys = sorted(await Directory(redis, metrics).names())
        heads = await store.heads(keys)
        found = [
            await _examine(store, key, head, pairwise=pairwise)
            for key, head in zip(keys, heads, strict=True)
        ]
    except ServiceError as error:
        if isinstance(why := error.__cause__, NoPermissionError):
            advice = "allow its user to access the keys tw:* and to run scripts"
            return [Finding("pools", "fail", str(why), advice)]
        return [Finding("pools", "fail", str(error), "see the checks of redis above")]
    if not found:
        return [Finding("pools", "warn", "none", "`turnwise pool load FILE --pool NAME`")]
    return found


async def _examine(store: PoolStore, key: PoolKey, head: Head | None, *, pairwise: bool) -> Finding:
    subject = f"pool {key}"
    if head is None or (log := await store.read(key)) is None:
        return Finding(subject, "ok", "is being deleted")
    if head.encoder_name == "pairwise" and not pairwise:
        return Finding(subject, "fail", "encoded by a pairwise model", "set TURNWISE_PAIRWISE")
    names = [name for entry in log.entries for name in entry.chunks]
    fits = [await store.has_vectors(key, name) for name in names]
    found = f"version {log.position.version}, {log.stored} candidates stored"
    if None in fits or not log.whole:
        advice = "delete it, then restore a snapshot (`turnwise pool restore`) or load it"
        return Finding(subject, "fail", f"{found}; parts are missing", advice)
    if False in fits and head.encoder_name == "default":
        advice = "the service encodes them when a request first names the pool"
        return Finding(subject, "warn", f"{found}, of another model", advice)
    if not log.stored:
        return Finding(subject, "warn", "empty", f"`turnwise pool load FILE --pool {key.name}`")
    return Finding(subject, "ok", found)

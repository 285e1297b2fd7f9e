"""Checks of Redis: version, role, eviction, persistence, memory and failover."""

from collections.abc import Iterator, Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import (
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from turnwise.service.cli.doctor import Finding
from turnwise.service.redis.connection import CHECK_KEY, CHECK_KEY_SECONDS, explain_error, read_info

Info = Mapping[str, Any]

_OLDEST = (6, 2)
_FULL = 0.9
_WRITE = f"return redis.call('SET', KEYS[1], '', 'EX', {CHECK_KEY_SECONDS})"
_IN_RUNBOOK = "look up its message in docs/runbook.md, under TurnwiseRedisUnavailable"


async def examine_redis(redis: Redis) -> list[Finding]:
    """Return the findings about a server, or about every primary of a cluster."""
    try:
        infos = await read_info(redis)
    except NoPermissionError:
        lacks = "its user may not run INFO, without which sessions cannot be listed or erased"
        advice = "ACL SETUSER NAME +info, then run doctor again"
        return [Finding("redis", "warn", lacks, advice)]
    except (RedisError, RedisClusterException, OSError) as error:
        advice = "start it, or correct TURNWISE_REDIS_URL"
        if isinstance(error, ResponseError) or isinstance(error.__cause__, ResponseError):
            advice = _IN_RUNBOOK  # it has been reached; the client wraps what it says to a PING
        return [Finding("redis", "fail", f"INFO failed: {explain_error(error)}", advice)]
    return [
        finding
        for address, info in infos.items()
        for finding in examine_server(f"redis {address}".rstrip(), info)
    ]


async def examine_writes(redis: Redis) -> Finding:
    """Return the finding about a write by a script, such as every turn makes."""
    try:
        await redis.eval(_WRITE, 1, CHECK_KEY)
    except (RedisError, RedisClusterException, OSError) as error:
        return Finding("redis writes", "fail", explain_error(error), _IN_RUNBOOK)
    return Finding("redis writes", "ok", "accepted")


def examine_server(name: str, info: Info) -> Iterator[Finding]:
    """Yield the findings about the INFO of a server.

    Args:
        name: The name of the server.
        info: The fields of INFO, as the client returns them.
    """
    yield _examine_version(name, info)
    yield _examine_role(f"{name} role", info)
    yield _examine_eviction(f"{name} eviction", info)
    yield _examine_persistence(f"{name} persistence", info)
    yield _examine_memory(f"{name} memory", info)
    if info.get("connected_slaves"):
        yield _examine_failover(f"{name} failover", info)


def _examine_version(name: str, info: Info) -> Finding:
    version = str(info["redis_version"])
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        return Finding(name, "fail", f"version {version}", "use Redis 6.2 or newer")
    own = info.get("valkey_version")  # the other field is the version of Redis that it imitates
    return Finding(name, "ok", f"Valkey {own}" if own else f"version {version}")


def _examine_role(subject: str, info: Info) -> Finding:
    if info.get("role", "master") == "master":
        return Finding(subject, "ok", "accepts writes")
    return Finding(subject, "fail", "a replica, which rejects writes", "set the URL of its primary")


def _examine_eviction(subject: str, info: Info) -> Finding:
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        return Finding(subject, "ok", "never")
    advice = "CONFIG SET maxmemory-policy noeviction: Redis has the only copy of sessions and pools"
    drops = policy.startswith("allkeys") and info.get("maxmemory", 0)
    return Finding(subject, "fail" if drops else "warn", policy, advice)


def _examine_failover(subject: str, info: Info) -> Finding:
    if "min_slaves_good_slaves" in info:
        return Finding(subject, "ok", "a primary cut off from its replicas rejects writes")
    advice = "with two or more replicas, CONFIG SET min-replicas-to-write 1"
    return Finding(subject, "warn", "a primary cut off from its replicas loses turns", advice)


def _examine_persistence(subject: str, info: Info) -> Finding:
    for field in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if info.get(field, "ok") != "ok":
            advice = "check its log and its disk; it may reject writes"
            return Finding(subject, "fail", f"{field} is {info[field]}", advice)
    if info.get("aof_enabled"):
        return Finding(subject, "ok", "append-only file")
    advice = "CONFIG SET appendonly yes; else a restart loses the data since the last snapshot"
    return Finding(subject, "warn", "no append-only file: a restart loses data", advice)


def _examine_memory(subject: str, info: Info) -> Finding:
    used = info["used_memory"]
    most = info.get("maxmemory", 0)
    found = f"{used / 2**20:.0f} MB used" + (f" of {most / 2**20:.0f}" if most else "")
    if most and used > _FULL * most:
        return Finding(subject, "warn", found, "raise maxmemory: writes fail when it is full")
    return Finding(subject, "ok", found)

"""The connection to Redis, and its failures as errors of the service."""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterError,
    ConnectionError,  # noqa: A004 - Redis's own
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)

from turnwise.service.errors import StateUnavailable
from turnwise.service.observe.metrics import Metrics, Operation, Result
from turnwise.service.settings import SettingsError

__all__ = ["Outcome", "Probe", "Redis", "connect", "redis_errors"]

_log = logging.getLogger("turnwise.redis")

_CONNECTIONS = 64
_MANY = 4096  # to a node: where the client fails at its limit and does not wait
_SENTINEL_PORT = 26379
_DATABASE = re.compile(r"(/\d*)?")
_PROBE, _PROBE_SECONDS = "tw:probe", 60
_IDLE_CHECK = 15
"""Seconds after which an idle connection is tried out before it is used."""

_AWAY = (ConnectionError, TimeoutError, ClusterError, RedisClusterException, OSError)
_REFUSED = (
    ReadOnlyError,
    OutOfMemoryError,
    NoPermissionError,  # mended over there, as a wrong password is
    TryAgainError,
    AskError,  # which MOVED is, too
)
# The same answers out of a script, and those that the client has no class for.
_CODES = re.compile(
    r"(^|-)(READONLY|OOM|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|MASTERDOWN)\b|non local key"
)


def connect(url: str, *, cluster: bool, timeout: float) -> Redis:
    """Return a client, which connects when it is first used; with `async with`, at once.

    Nothing is tried twice in here: a command whose answer was lost may have been done, and only
    its caller knows whether doing it again is harmless.

    Args:
        url: `redis://`, `rediss://`, `unix://`, or where Sentinels tell which Redis is the primary
            `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/NAME`. The user and the
            password are Redis's; those of the Sentinels are `?sentinel_username=` and
            `&sentinel_password=`, and `&db=` is the database. `rediss+sentinel://` is TLS to all.
        cluster: Whether the URL names a node of a Redis Cluster. Its client knows the same
            commands; the keys of a script or a transaction must share a hash tag.
        timeout: Seconds for connecting, for a command, and for a free connection.

    Raises:
        SettingsError: The URL cannot be read; it is not quoted, for it may hold a password.
    """
    try:
        client = _client(url, cluster=cluster, timeout=timeout)
        # Its options are looked at where a connection is made, of which this one sends nothing.
        made_by = cast(RedisCluster, client).startup_nodes[0] if cluster else client.connection_pool
        made_by.connection_class(**made_by.connection_kwargs)
    except TypeError:
        raise SettingsError(
            "TURNWISE_REDIS_URL: after its ? stands an option that the client does not know"
        ) from None
    except (ValueError, RedisError, RedisClusterException):
        raise SettingsError(
            "TURNWISE_REDIS_URL cannot be read: a / or another sign in a user or a password has "
            "to be percent-encoded, and ports, databases and options must be such"
        ) from None
    return client


def _client(url: str, *, cluster: bool, timeout: float) -> Redis:
    if url.startswith(("redis:", "rediss:")) and not _DATABASE.fullmatch(urlsplit(url).path):
        raise ValueError("the client would take database 0, and a part of a password as the port")
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "health_check_interval": _IDLE_CHECK,
        "retry": Retry(NoBackoff(), 0),
        # With RESP3 the client takes a connection that was closed while it was idle for a good one.
        "protocol": 2,
    }
    if cluster:
        return cast(Redis, RedisCluster.from_url(url, max_connections=_MANY, **options))
    if "+sentinel:" in url:
        return _primary(url, options)
    pool = BlockingConnectionPool.from_url(
        url, max_connections=_CONNECTIONS, timeout=timeout, **options
    )
    return Redis.from_pool(pool)


class _Primary(Redis):
    """A client of the Redis that Sentinels call the primary: it asks them whenever it connects."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections to the Sentinels, too."""
        await super().aclose(close_connection_pool)
        await cast(SentinelConnectionPool, self.connection_pool).sentinel_manager.aclose()


def _primary(url: str, options: dict[str, Any]) -> Redis:
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    given: dict[str, Any] = {**parse_url(f"redis://{user}{at}?{parts.query}")}
    given["ssl"] = parts.scheme.startswith("rediss")
    asking = {
        option.removeprefix("sentinel_"): given.pop(option)
        for option in list(given)
        if option.startswith("sentinel_")
    }
    asking |= {option: value for option, value in given.items() if option.startswith("ssl")}
    addresses = [urlsplit(f"//{host}") for host in hosts.split(",")]
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(address.hostname, address.port or _SENTINEL_PORT) for address in addresses],
        sentinel_kwargs=options | asking,
        **options,
    )
    client = sentinel.master_for(parts.path[1:], _Primary, max_connections=_MANY, **given)
    return cast(Redis, client)


async def _evicting(redis: Redis, *, cluster: bool) -> set[str]:
    """Return the policies by which a server, or any primary of a cluster, drops keys when full."""
    ask: dict[str, Any] = {"target_nodes": RedisCluster.PRIMARIES} if cluster else {}
    found = await redis.info("memory", **ask)
    servers = [found] if "maxmemory" in found else list(found.values())
    policies = {info["maxmemory_policy"] for info in servers if info["maxmemory"]}
    return policies - {"noeviction"}


@dataclass(frozen=True, slots=True)
class Probe:
    """Tells whether Redis takes what has to be kept; each call asks it anew."""

    redis: Redis
    metrics: Metrics
    cluster: bool

    async def __call__(self) -> None:
        """Write something; raises where Redis is away, full, demoted, or without its disk."""
        with suppress(ResponseError):  # it may be forbidden to ask
            policies = await _evicting(self.redis, cluster=self.cluster)
            self.metrics.redis_may_evict.set(bool(policies))
            if policies:
                _log.warning("Redis may evict sessions and pools: %s", ", ".join(sorted(policies)))
        try:
            await self.redis.set(_PROBE, b"", ex=_PROBE_SECONDS)
        except ReadOnlyError:
            # The address may be another's by now, while connections stay with the one that was
            # demoted: the next ones are made anew. (A cluster's client follows by itself.)
            if not self.cluster:
                await self.redis.connection_pool.disconnect()
            raise


@dataclass(slots=True)
class Outcome:
    """What an operation came to, for whoever counts it."""

    result: Result = "ok"


@contextmanager
def redis_errors(metrics: Metrics, operation: Operation) -> Iterator[Outcome]:
    """Count an operation on Redis; raise `StateUnavailable` where Redis cannot do it now.

    The block may set `result` of the outcome to tell a conflict or a replay from "ok".
    """
    outcome, cancelled = Outcome(), _cancelled()
    try:
        yield outcome
        # The client sends within `asyncio.wait_for`, which before Python 3.12 forgets that the
        # task was cancelled where what it waits for has just ended.
        if _cancelled() > cancelled:
            raise asyncio.CancelledError  # noqa: TRY301 - is counted as others are
    except _AWAY as error:
        outcome.result = "unavailable"
        raise StateUnavailable("Redis cannot be reached; try again soon") from error
    except ResponseError as error:
        if not (isinstance(error, _REFUSED) or _CODES.search(str(error))):
            outcome.result = "failed"
            raise
        outcome.result = "unavailable"
        raise StateUnavailable("Redis cannot do this now; try again soon") from error
    except BaseException:
        outcome.result = "failed"
        raise
    finally:
        metrics.redis_operations.labels(operation, outcome.result).inc()


def _cancelled() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0

"""The connection to Redis; without Redis, a request fails with `StateUnavailable` (503)."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from traceback import walk_tb
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster, connection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
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

from turnwise.service.errors import StateUnavailable, Unavailable
from turnwise.service.observe.descriptors import is_shortage
from turnwise.service.observe.metrics import Metrics, Operation, Result
from turnwise.service.observe.tracing import span
from turnwise.service.settings import SettingsError

_log = logging.getLogger("turnwise.redis")

_CONNECTIONS = 4096
"""Limit for a node. Nothing waits for a connection: it would cost each command a lock."""
_SENTINEL_PORT = 26379
_DATABASE = re.compile(r"(/\d*)?")
CHECK_KEY = "tw:probe"
CHECK_KEY_SECONDS = 60
CHECK_TIMEOUT = 0.8
"""Less than the one second after which a Kubernetes probe times out by default."""
_IDLE_CHECK = 15
"""Seconds after which an idle connection is checked before use."""

_WRITE = "_send_packed_command"
_CLIENT = connection.__file__

_UNREACHABLE = (ConnectionError, TimeoutError, ClusterError, RedisClusterException, OSError)
_REFUSED = (
    ReadOnlyError,
    OutOfMemoryError,
    NoPermissionError,  # fixed in Redis, like a wrong password
    TryAgainError,
    AskError,  # includes MOVED
)
# The same errors from a script, and those that the client has no class for. Inside a pipeline the
# client puts a prefix before the code.
_CODES = re.compile(
    r"(^|-|caused error: \(['\"])(READONLY|OOM|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|MASTERDOWN)\b"
    r"|non local key|ACL failure in script|The user executing the script can't"
    r"|DB index is out of range"
)


def connect(url: str, *, cluster: bool, timeout: float) -> Redis:
    """Return a client that connects at its first use, or at `async with`.

    The client never retries: a command whose answer was lost may have been executed, and only its
    caller knows whether repeating it is harmless.

    Args:
        url: `redis://`, `rediss://`, `unix://`, or, if Sentinels know the primary,
            `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/NAME` with user and password
            of Redis. Those of the Sentinels are `?sentinel_username=` and `&sentinel_password=`;
            `&db=` is the database. `rediss+sentinel://` uses TLS for all connections.
        cluster: Whether the URL names a node of a Redis Cluster. The keys of a script or a
            transaction must share a hash tag then.
        timeout: Seconds for connecting, and for a command.

    Raises:
        SettingsError: The URL is invalid. The error does not quote it, as it may have a password.
    """
    try:
        client = _make_client(url, cluster=cluster, timeout=timeout)
        # redis-py checks options when it creates a connection; this one is never opened.
        maker = cast(RedisCluster, client).startup_nodes[0] if cluster else client.connection_pool
        maker.connection_class(**maker.connection_kwargs)
    except TypeError:
        raise SettingsError("TURNWISE_REDIS_URL has an unknown option after the ?") from None
    except (ValueError, RedisError, RedisClusterException):
        raise SettingsError(
            "TURNWISE_REDIS_URL is invalid: percent-encode a / and other signs in the user and the "
            "password, and check the port, the database and the options"
        ) from None
    return client


def load_scripts(package: str, redis: Redis) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return the Lua scripts of a package by name; each takes `keys` and `args`."""
    return {
        path.name.removesuffix(".lua"): redis.register_script(path.read_text())
        for path in (files(package) / "scripts").iterdir()
    }


def _make_client(url: str, *, cluster: bool, timeout: float) -> Redis:
    if url.startswith(("redis:", "rediss:")) and not _DATABASE.fullmatch(urlsplit(url).path):
        raise ValueError("the client would use database 0, and a part of a password as the port")
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "health_check_interval": _IDLE_CHECK,
        "retry": Retry(NoBackoff(), 0),
        # With RESP3 the client does not notice that an idle connection was closed.
        "protocol": 2,
    }
    if cluster:
        return cast(Redis, RedisCluster.from_url(url, max_connections=_CONNECTIONS, **options))
    if "+sentinel:" in url:
        return _make_primary(url, options)
    return Redis.from_url(url, max_connections=_CONNECTIONS, **options)


class _Primary(Redis):
    """A client of the primary Redis; it asks the Sentinels for the address when it connects."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Also close the connections to the Sentinels."""
        await super().aclose(close_connection_pool)
        await cast(SentinelConnectionPool, self.connection_pool).sentinel_manager.aclose()


def _make_primary(url: str, options: dict[str, Any]) -> Redis:
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    of_url: dict[str, Any] = {**parse_url(f"redis://{user}{at}?{parts.query}")}
    of_url["ssl"] = parts.scheme.startswith("rediss")
    of_primary: dict[str, Any] = {}
    of_sentinels: dict[str, Any] = {}
    for option, value in of_url.items():
        if option.startswith("sentinel_"):
            of_sentinels[option.removeprefix("sentinel_")] = value
            continue
        of_primary[option] = value
        if option.startswith("ssl"):
            of_sentinels[option] = value
    addresses = [urlsplit(f"//{host}") for host in hosts.split(",")]
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(address.hostname, address.port or _SENTINEL_PORT) for address in addresses],
        sentinel_kwargs=options | of_sentinels,
        **options,
    )
    name = parts.path[1:]
    client = sentinel.master_for(name, _Primary, max_connections=_CONNECTIONS, **of_primary)
    return cast(Redis, client)


def explain_error(error: BaseException) -> str:
    """Return the message of an error of Redis, with the code by which the runbook lists it.

    The client cuts the code off the messages of the errors that it knows.
    """
    code = getattr(error, "status_code", None)
    message = str(error)
    return f"{code} {message}" if code and code not in message else message


async def read_clock(redis: Redis) -> int:
    """Return the server's time in microseconds since 1970; in a cluster, the latest one."""
    found = await redis.time(**_name_targets(redis))
    # A cluster of several primaries answers with a time for each name.
    times: list[tuple[int, int]] = list(found.values()) if isinstance(found, dict) else [found]
    seconds, microseconds = max(times)
    return seconds * 1_000_000 + microseconds


async def read_info(redis: Redis, section: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the INFO of each primary of a cluster by its address; of a single server by ""."""
    found = await redis.info(section, **_name_targets(redis))
    # A cluster with one primary returns its INFO alone.
    return found if all(isinstance(value, dict) for value in found.values()) else {"": found}


def _name_targets(redis: Redis) -> dict[str, Any]:
    """Return the option that sends a command to every primary, if this is a cluster."""
    return {"target_nodes": RedisCluster.PRIMARIES} if isinstance(redis, RedisCluster) else {}


@dataclass(slots=True)
class WriteCheck:
    """Checks whether Redis accepts writes from each of the clients."""

    clients: Sequence[Redis]
    metrics: Metrics
    _outage: set[str] = field(init=False, default_factory=set)
    """The types of errors in the current outage; each is logged once."""
    _policies: set[str] = field(init=False, default_factory=set)
    """The policies by which Redis may evict, as logged last."""

    async def __call__(self) -> bool:
        """Return whether Redis accepts a write; log when it begins to fail, and when it ends."""
        try:
            with redis_errors(self.metrics, "probe"):
                async with asyncio.timeout(CHECK_TIMEOUT):
                    await self._write()
        except Exception as error:
            cause = error.__cause__ or error
            kind = type(cause).__name__
            if kind not in self._outage:
                self._outage.add(kind)
                why = explain_error(cause)
                _log.warning("Redis does not answer or rejects writes: %s: %s", kind, why)
            return False
        if self._outage:
            self._outage.clear()
            _log.info("Redis accepts writes again")
        return True

    async def _write(self) -> None:
        """Write a key; raise if Redis is unavailable, full, demoted, or without its disk."""
        with suppress(ResponseError):  # the user may lack the permission
            await self._report_memory()
        written = [await self._can_write(redis) for redis in self.clients]
        if not all(written):
            raise ReadOnlyError("the connections led to a demoted primary")

    async def _report_memory(self) -> None:
        """Set the metrics of the memory of Redis; log new policies by which it may evict."""
        infos = await read_info(self.clients[0], "memory")
        limited = [info for info in infos.values() if info["maxmemory"]]
        ratios = [info["used_memory"] / info["maxmemory"] for info in limited]
        self.metrics.redis_memory_ratio.set(max(ratios, default=0.0))
        policies = {info["maxmemory_policy"] for info in limited} - {"noeviction"}
        self.metrics.redis_may_evict.set(bool(policies))
        if policies - self._policies:
            _log.warning("Redis may evict sessions and pools: %s", ", ".join(sorted(policies)))
        self._policies = policies

    async def _can_write(self, redis: Redis) -> bool:
        try:
            await redis.set(CHECK_KEY, b"", ex=CHECK_KEY_SECONDS)
        except ReadOnlyError:
            # The address may be that of a new primary, while old connections lead to the demoted
            # one: drop them. (A cluster's client does this itself.)
            if not isinstance(redis, RedisCluster):
                await redis.connection_pool.disconnect()
            return False
        return True


@dataclass(slots=True)
class _Outcome:
    """The result of an operation, for its metric."""

    result: Result = "ok"


@contextmanager
def redis_errors(metrics: Metrics, operation: Operation) -> Iterator[_Outcome]:
    """Count and trace an operation on Redis; raise `StateUnavailable` if Redis cannot do it now.

    The block may set the `result` that is counted, to "conflict" or "replayed".
    """
    outcome = _Outcome()
    cancelled = _count_cancellations()
    try:
        with span(operation, calls="redis") as traced:
            yield outcome
            traced.set_attribute("turnwise.result", outcome.result)
        # The client uses `asyncio.wait_for`, which before Python 3.12 loses a cancellation that
        # arrives when the awaited command has just ended.
        if _count_cancellations() > cancelled:
            raise asyncio.CancelledError  # noqa: TRY301 - counted like other errors
    except BaseException as error:
        outcome.result = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        if is_shortage(error):
            outcome.result = "unavailable"
            raise Unavailable(
                "this replica has no file descriptors left; try again soon"
            ) from error
        if failure := _describe_failure(error):
            outcome.result = "unavailable"
            raise StateUnavailable(f"Redis {failure}; try again soon") from error
        raise
    finally:
        metrics.redis_operations.labels(operation, outcome.result).inc()


def _describe_failure(error: BaseException) -> str | None:
    """Return what is wrong with Redis; None if the error has another cause."""
    if isinstance(error.__cause__, AuthenticationError):
        return "rejects the user or the password of the service"
    if isinstance(error, _UNREACHABLE) or _wrote_to_closed(error):
        return "cannot be reached"
    if isinstance(error, _REFUSED):
        return "cannot do this now"
    if isinstance(error, ResponseError) and _CODES.search(str(error)):
        return "cannot do this now"
    return None


def _wrote_to_closed(error: BaseException) -> bool:
    """Return whether the client wrote to a connection that had just been closed.

    Up to redis-py 8.1 this surfaces as an error of the event loop's transport (issue 4287 there).
    """
    if not isinstance(error, AttributeError | TypeError | RuntimeError):
        return False
    frames = (frame.f_code for frame, _ in walk_tb(error.__traceback__))
    return any(code.co_name == _WRITE and code.co_filename == _CLIENT for code in frames)


def _count_cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0

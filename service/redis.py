"""The connection to Redis, and its failures as errors of the service."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterError,
    ConnectionError,  # noqa: A004 - Redis's own
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)

from service.errors import StateUnavailable
from service.metrics import Metrics, Operation, Result

__all__ = ["Outcome", "Redis", "connect", "redis_errors"]

_CONNECTIONS = 64
_CLUSTER_CONNECTIONS = 4096  # to a node: the cluster's client fails at its limit, it does not wait
_IDLE_CHECK = 15
"""Seconds after which an idle connection is tried out before it is used."""

_AWAY = (ConnectionError, TimeoutError, ClusterError, RedisClusterException, OSError)
_REFUSED = (ReadOnlyError, OutOfMemoryError, TryAgainError)
# The same answers out of a script, and those that the client has no class for.
_CODES = re.compile(r"(^|-)(READONLY|OOM|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|MASTERDOWN)\b")


def connect(url: str, *, cluster: bool, timeout: float) -> Redis:
    """Return a client, which connects when it is first used.

    Nothing is tried twice in here: a command whose answer was lost may have been done, and only
    its caller knows whether doing it again is harmless.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        cluster: Whether the URL names a node of a Redis Cluster. Its client knows the same
            commands; the keys of a script or a transaction must share a hash tag.
        timeout: Seconds for connecting, for a command, and for a free connection.
    """
    once = Retry(NoBackoff(), 0)
    if cluster:
        client = RedisCluster.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            health_check_interval=_IDLE_CHECK,
            max_connections=_CLUSTER_CONNECTIONS,
            retry=once,
        )
        return cast(Redis, client)
    pool = BlockingConnectionPool.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        health_check_interval=_IDLE_CHECK,
        max_connections=_CONNECTIONS,
        timeout=timeout,
        retry=once,
    )
    return Redis.from_pool(pool)


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
            raise asyncio.CancelledError
    except _AWAY as error:
        outcome.result = "unavailable"
        raise StateUnavailable("Redis cannot be reached; try again soon") from error
    except ResponseError as error:
        if not (isinstance(error, _REFUSED) or _CODES.search(str(error))):
            raise
        outcome.result = "unavailable"
        raise StateUnavailable("Redis cannot do this now; try again soon") from error
    finally:
        metrics.state_operations.labels(operation, outcome.result).inc()


def _cancelled() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0

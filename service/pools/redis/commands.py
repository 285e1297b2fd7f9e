"""Runs the commands and Lua scripts of pools on Redis, and turns its errors into ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import LockError

from turnwise.service.errors import StateUnavailable
from turnwise.service.observe.metrics import Metrics, Operation
from turnwise.service.redis.connection import load_scripts, read_clock, redis_errors

_LOCK_RETRY_SECONDS = 0.02


class Held(NamedTuple):
    """A lock that this replica holds.

    Attributes:
        lock: The lock.
        since: A time right before this replica got it, in seconds of the clock of Redis.
    """

    lock: Lock
    since: float


class Commands:
    """Runs commands on Redis; each raises StateUnavailable if Redis is unavailable."""

    def __init__(self, redis: Redis, metrics: Metrics) -> None:
        self._redis = redis
        self._metrics = metrics
        self._script = load_scripts("turnwise.service.pools.redis", redis)

    async def run_script(
        self, operation: Operation, script: str, keys: list[str], arguments: list[Any]
    ) -> Any:  # noqa: ANN401 - each script returns another type
        """Return what a script of `redis/scripts` returns."""
        return await self.execute(operation, self._script[script](keys, arguments))

    async def execute(self, operation: Operation, command: Any) -> Any:  # noqa: ANN401 - as redis-py types it
        """Return the answer to a command of redis-py."""
        with redis_errors(self._metrics, operation):
            return await command

    @asynccontextmanager
    async def hold_lock(self, name: str, seconds: float) -> AsyncIterator[Held]:
        """Hold a lock until the block ends; wait for the replica that holds it.

        If a replica ends within its block, the others wait until the lock expires.

        Args:
            name: The key of the lock.
            seconds: Seconds after which it expires, unless somebody extends it.
        """
        lock = self._redis.lock(name, timeout=seconds, thread_local=False)
        while True:
            now = await self.execute("pool_read", read_clock(self._redis)) / 1e6
            if await self.execute("pool_write", lock.acquire(blocking=False)):
                break
            await asyncio.sleep(_LOCK_RETRY_SECONDS)
        try:
            yield Held(lock, now)
        finally:
            with suppress(StateUnavailable, LockError):  # then it expires, or has expired
                await self.execute("pool_write", lock.release())

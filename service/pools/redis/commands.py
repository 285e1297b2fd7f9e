"""Runs the commands and Lua scripts of pools on Redis, and turns its errors into ours."""

from typing import Any

from turnwise.service.observe.metrics import Metrics, Operation
from turnwise.service.redis.connection import Redis, load_scripts, redis_errors


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

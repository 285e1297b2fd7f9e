"""`NamespaceLimit`: how many bytes the pools of a namespace may have."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from turnwise.service.errors import NamespaceFull
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.pool import Pool
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import PoolKey


class NamespaceLimit:
    """Limits the bytes of the pools of a namespace, also of those that are not in memory."""

    def __init__(
        self,
        directory: Directory,
        records: PoolRecords,
        in_memory: Mapping[PoolKey, Pool],
        workers: Workers,
        metrics: Metrics,
        *,
        limit: int,
    ) -> None:
        """Check against a limit.

        Args:
            directory: The names of all pools.
            records: Has the bytes of the pools.
            in_memory: The pools in memory, for those whose bytes Redis does not have.
            workers: Has a thread that counts bytes.
            metrics: Counts what is rejected.
            limit: Most bytes of ids, texts, metadata and vectors.
        """
        self._limit = limit
        self._directory = directory
        self._records = records
        self._in_memory = in_memory
        self._workers = workers
        self._metrics = metrics

    @asynccontextmanager
    async def admit_growth(self, namespace: str, growth: int) -> AsyncIterator[float | None]:
        """Check that the pools of a namespace may grow by some bytes, which the block adds.

        No other pool of the namespace grows until the block ends. Yields the time until which the
        block may commit, as `Directory.lock` does; None if nothing grows.

        Raises:
            NamespaceFull: The pools would exceed the limit.
        """
        if growth <= 0:
            yield None
            return
        async with self._directory.lock(namespace) as until:
            size = growth + await self._count_bytes(namespace)
            if size > self._limit:
                self._metrics.rejected_requests.labels("pools_bytes").inc()
                raise NamespaceFull(
                    f"the pools of namespace '{namespace}' would have {size} bytes, more than the "
                    f"limit of {self._limit}; nothing was changed"
                )
            yield until

    async def _count_bytes(self, namespace: str) -> int:
        """Return the bytes of the pools of a namespace, as Redis has them now."""
        keys = [key for key in await self._directory.names() if key.namespace == namespace]
        summaries = await self._records.summaries(keys)
        counted = {key: each.bytes for key, each in zip(keys, summaries, strict=True) if each}
        uncounted = [
            self._in_memory[key]
            for key, size in counted.items()
            if not size and key in self._in_memory
        ]
        in_memory = await self._workers.edit(lambda: [pool.candidate_bytes for pool in uncounted])
        return sum(counted.values()) + sum(in_memory)

"""`NamespaceLimit`: how many bytes the pools of a namespace may have."""

from collections.abc import Mapping

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
            records: Has the bytes of the pools that are not in memory.
            in_memory: The pools in memory.
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

    async def check(self, namespace: str, growth: int) -> None:
        """Check that the pools of a namespace may grow by some bytes.

        Raises:
            NamespaceFull: The pools would exceed the limit.
        """
        names = {*await self._directory.names(), *self._in_memory}
        keys = [key for key in names if key.namespace == namespace]
        pools = [self._in_memory[key] for key in keys if key in self._in_memory]
        sizes = await self._workers.edit(lambda: {pool.key: pool.candidate_bytes for pool in pools})
        unread = [key for key in keys if not sizes.get(key)]
        summaries = await self._records.summaries(unread)
        size = growth + sum(sizes.values())
        size += sum(summary.bytes for summary in summaries if summary)
        if growth > 0 and size > self._limit:
            self._metrics.rejected_requests.labels("pools_bytes").inc()
            raise NamespaceFull(
                f"the pools of namespace '{namespace}' would have {size} bytes, more than the "
                f"limit of {self._limit}; nothing was changed"
            )

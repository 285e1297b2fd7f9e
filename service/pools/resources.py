"""`PoolResources`: what all pools of a replica share."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.workers import Workers

AdmitGrowth = Callable[[str, int], AbstractAsyncContextManager[float | None]]
"""Takes a namespace and bytes; raises NamespaceFull if its pools may not grow by that much."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of the pools in memory.

    Attributes:
        exact: Number of candidates up to which search is exact.
        size: Greatest number of candidates in a pool.
        namespace_bytes: Most bytes of the candidates of a namespace's pools; None for no limit.
    """

    exact: int
    size: int
    namespace_bytes: int | None


@dataclass(frozen=True, slots=True)
class PoolResources:
    """What all pools of a replica share.

    Attributes:
        workers: The threads of searches, filters and edits.
        memory: Admits work that takes much memory.
        files: The saved indexes.
        limits: Limits of the pools in memory.
        metrics: Gets the size and the version of each pool.
        count_change: Called after each edit, so that other replicas see it.
        admit_growth: Limits the bytes of a namespace; None without a limit.
    """

    workers: Workers
    memory: Memory
    files: IndexFiles
    limits: PoolLimits
    metrics: Metrics
    count_change: Callable[[], Awaitable[None]]
    admit_growth: AdmitGrowth | None

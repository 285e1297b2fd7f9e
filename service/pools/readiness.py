"""The pools that a replica waits for before it is ready.

It waits for those that were in use when it started, and for the one that must exist.
"""

from collections.abc import Iterable, Mapping
from time import monotonic

from turnwise.service.pools.memory.workers import Work
from turnwise.service.pools.pool import Pool
from turnwise.service.pools.redis.values import PoolKey


class AwaitedPools:
    """The pools that were in use when the replica started, until each is read and indexed.

    A pool that is damaged is not awaited. A pool that does not fit into memory is awaited for a
    while, because the replicas of an earlier release may have room for it. After that the replica
    serves its other pools: one pool must not keep a replica down. A pool that is moved to another
    store meanwhile, or the pool to which an alias is moved, is awaited like the former one.
    """

    def __init__(self, refused_seconds: float) -> None:
        """Wait for unknown pools until `begin`.

        Args:
            refused_seconds: Time for which pools that do not fit into memory are awaited.
        """
        self._refused_seconds = refused_seconds
        self._keys: set[PoolKey] | None = None
        self._begun_at = 0.0

    @property
    def are_known(self) -> bool:
        """Whether the pools in use are known: Redis has answered once."""
        return self._keys is not None

    @property
    def are_ready(self) -> bool:
        """Whether the replica waits for no pool any more."""
        return self._keys is not None and not self._keys

    def begin(self, keys: Iterable[PoolKey]) -> None:
        """Wait for these pools."""
        self._keys = set(keys)
        self._begun_at = monotonic()

    def find_successors(
        self, before: Mapping[PoolKey, PoolKey], now: Mapping[PoolKey, PoolKey]
    ) -> set[PoolKey]:
        """Return the pools to which aliases of awaited pools were moved.

        Args:
            before: The pool of each alias before.
            now: The pool of each alias now.
        """
        keys = self._keys or ()
        return {now[alias] for alias, pool in before.items() if pool in keys and alias in now}

    def add(self, keys: Iterable[PoolKey]) -> None:
        """Wait for more pools, if those in use are known."""
        if self._keys is not None:
            self._keys.update(keys)

    def update(self, in_memory: Mapping[PoolKey, Pool]) -> None:
        """Stop waiting for pools that are ready, damaged, refused for too long, or gone."""
        if not self._keys:
            return
        pools = [in_memory[key] for key in self._keys if key in in_memory]
        waits_for_refused = monotonic() - self._begun_at <= self._refused_seconds
        self._keys = {
            pool.key
            for pool in pools
            if pool.is_awaited and (waits_for_refused or not pool.is_refused)
        }


class RequiredPool:
    """The pool that must exist, if there is one: says when to fill it, and fills it."""

    def __init__(self, retry_seconds: float) -> None:
        """Require no pool until `require`.

        Args:
            retry_seconds: Seconds after which a pool that could not be filled is filled again.
        """
        self.is_there = True
        """Whether the pool is there, or none must be."""
        self._retry_seconds = retry_seconds
        self._fill: Work | None = None
        self._is_filling = False
        self._next_at = 0.0
        self._losses = 0

    @property
    def is_due(self) -> bool:
        """Whether it is time to fill the pool, and nobody is filling it."""
        return not (self.is_there or self._is_filling) and monotonic() > self._next_at

    def require(self, fill: Work) -> None:
        """Require the pool that this function fills."""
        self._fill = fill
        self.note_loss()

    def note_loss(self) -> None:
        """Make the pool due, because Redis may not have it any more."""
        self.is_there = self._fill is None
        self._next_at = 0.0
        self._losses += 1

    async def fill(self) -> None:
        """Fill the pool, if one must exist."""
        if self._fill is None:
            return
        self._is_filling = True
        self._next_at = monotonic() + self._retry_seconds
        losses = self._losses
        try:
            await self._fill()
            self.is_there = losses == self._losses
        finally:
            self._is_filling = False

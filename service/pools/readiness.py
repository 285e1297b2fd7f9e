"""The pools that a replica waits for before it is ready.

It waits for those that were in use when it started, and for the one that must exist.
"""

from collections.abc import Callable, Iterable
from time import monotonic

from turnwise.service.pools.memory.workers import Work
from turnwise.service.pools.pool import Pool


class AwaitedPools:
    """The pools that were in use when the replica started, until each is read and indexed.

    A pool that is damaged is not awaited. A pool that does not fit into memory is awaited for a
    while, because the replicas of an earlier release may have room for it. After that the replica
    serves its other pools: one pool must not keep a replica down.
    """

    def __init__(self, refused_seconds: float) -> None:
        """Wait for unknown pools until `begin`.

        Args:
            refused_seconds: Time for which pools that do not fit into memory are awaited.
        """
        self._refused_seconds = refused_seconds
        self._pools: list[Pool] | None = None
        self._begun_at = 0.0

    @property
    def are_known(self) -> bool:
        """Whether the pools in use are known: Redis has answered once."""
        return self._pools is not None

    @property
    def are_ready(self) -> bool:
        """Whether the replica waits for no pool any more."""
        return self._pools == []

    def begin(self, pools: Iterable[Pool]) -> None:
        """Wait for these pools."""
        self._pools = list(pools)
        self._begun_at = monotonic()

    def update(self, is_current: Callable[[Pool], bool]) -> None:
        """Stop waiting for pools that are ready, damaged, refused for too long, or not current."""
        if not self._pools:
            return
        self._pools = [pool for pool in self._pools if is_current(pool) and pool.is_awaited]
        if monotonic() - self._begun_at > self._refused_seconds:
            self._pools = [pool for pool in self._pools if not pool.is_refused]


class RequiredPool:
    """The pool that must exist, if one must: says when it is due to be filled, and fills it."""

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

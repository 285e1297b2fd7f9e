"""`AwaitedPools`: the pools for which a replica waits before it is ready."""

from collections.abc import Callable, Iterable
from time import monotonic

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
        if self._pools:
            self._pools = [
                pool for pool in self._pools if is_current(pool) and self._is_waited_for(pool)
            ]

    def _is_waited_for(self, pool: Pool) -> bool:
        if pool.is_refused and monotonic() - self._begun_at > self._refused_seconds:
            return False
        return pool.is_awaited

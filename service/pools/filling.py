"""`Filling`: fills the pool that must exist, again whenever Redis has lost its data."""

from time import monotonic

from turnwise.service.pools.memory.workers import Work


class Filling:
    """Says when the pool that must exist is due to be filled, and fills it."""

    def __init__(self, retry_seconds: float) -> None:
        """Fill nothing, until `fill` is set.

        Args:
            retry_seconds: Seconds after which a pool that could not be filled is filled again.
        """
        self.is_done = True
        """Whether the pool is there, or none must be."""
        self._retry_seconds = retry_seconds
        self._fill: Work | None = None
        self._next_at = 0.0
        self._is_running = False
        self._starts = 0
        """How often the pool became due."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to fill the pool, and nobody is filling it."""
        return not (self.is_done or self._is_running) and monotonic() > self._next_at

    def require(self, fill: Work) -> None:
        """Require the pool that this function fills."""
        self._fill = fill
        self.start_again()

    def start_again(self) -> None:
        """Make the pool due, because Redis may not have it any more."""
        self.is_done = self._fill is None
        self._next_at = 0.0
        self._starts += 1

    async def run(self) -> None:
        """Fill the pool, if one must exist."""
        if self._fill is None:
            return
        self._is_running = True
        self._next_at = monotonic() + self._retry_seconds
        starts = self._starts
        try:
            await self._fill()
            self.is_done = starts == self._starts  # else Redis lost its data meanwhile
        finally:
            self._is_running = False

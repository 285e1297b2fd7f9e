"""Ends a request that takes longer than its deadline (503).

The routes set it, except for a turn: `Turns.turn` sets its own, because it lifts the deadline while
it commits. The encoder queue and the re-ranker apply the same number of seconds to their own parts.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnwise.service.errors import DeadlineExceeded


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the block if it takes longer than `seconds`.

    `reschedule(None)` of the timeout lifts the deadline, for work that must not be cancelled;
    `reschedule(when)` sets it again.

    Raises:
        DeadlineExceeded: The block took longer.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield limit
    except TimeoutError:
        if not limit.expired():
            raise
        raise DeadlineExceeded(f"not done within {seconds:g} s") from None

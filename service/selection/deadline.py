"""How long a request may take as a whole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnwise.service.errors import DeadlineExceeded


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Cancel what the block does where it takes longer.

    The timeout that is given takes itself off by `reschedule(None)`, for what must not be broken
    off, and `reschedule(when)` puts it on again.

    Raises:
        DeadlineExceeded: The time is over.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield limit
    except TimeoutError:
        if not limit.expired():
            raise
        raise DeadlineExceeded(f"not done within {seconds:g} s") from None

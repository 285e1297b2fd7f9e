"""How long a request may take as a whole."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from service.errors import DeadlineExceeded

Answer = TypeVar("Answer")


async def within(seconds: float, work: Awaitable[Answer]) -> Answer:
    """Return what comes of some work, which is cancelled where it takes longer.

    Raises:
        DeadlineExceeded: The time is over.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise DeadlineExceeded(f"not done within {seconds:g} s") from None

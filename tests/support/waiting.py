"""Waiting for what comes in its own time; how long it takes on a busy machine is no matter."""

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE = 180.0
"""Seconds after which a test gives up. No test waits for them to pass."""


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds, seen by a thread of its own."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)


def in_event_loop() -> bool:
    """Whether this thread runs an event loop, which the caller keeps waiting."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def until(holds: Callable[[], bool | Awaitable[object]]) -> None:
    """Wait until something holds that this event loop brings about, or finds out."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = holds()
            pause = 0.001
            if isinstance(found, Awaitable):
                found = await found
                pause = 0.02  # a server was asked
            if found:
                return
            await asyncio.sleep(pause)

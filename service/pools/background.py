"""Work that nobody waits for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from turnwise.service.errors import ServiceError

Work = Callable[[], Awaitable[None]]

_PATIENCE = 0.5

_log = logging.getLogger("turnwise.pools")


class Background:
    """Tasks, each of which is under way at most once."""

    def __init__(self) -> None:
        self._tasks: dict[object, asyncio.Task[None]] = {}

    def begin(self, what: object, work: Work) -> None:
        """Begin some work, unless it is under way."""
        if what not in self._tasks:
            task = asyncio.create_task(quietly(work))
            self._tasks[what] = task
            task.add_done_callback(lambda _: self._tasks.pop(what))

    async def close(self) -> None:
        """Cancel everything, until it ends: a cancellation can get lost in what awaits a lock."""
        while self._tasks:
            tasks = set(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_PATIENCE)


async def quietly(work: Work) -> None:
    """Do what will be tried again; what it raises is logged."""
    try:
        await work()
    except (ServiceError, MemoryError) as error:
        _log.warning("pools: %s", error or "out of memory")
    except Exception:
        _log.exception("pools: unexpected")

"""Runs the searches and edits of pools in threads, and their upkeep in background tasks."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from turnwise.service.errors import ServiceError
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.memory.flat import FlatIndex, Float16, one_thread
from turnwise.service.threads import FairThreads

T = TypeVar("T")
Work = Callable[[], Awaitable[None]]

_CANCEL_SECONDS = 0.5
_TURN_SECONDS = 0.005
_REST = 1.0
"""Seconds that the thread of new filters rests for each second of work. Filters are evaluated in
Python: turns wait for the interpreter's lock meanwhile."""
_LOOK_UPS = 200_000
"""Look-ups of metadata that count as one new filter: about 0.2 s of work."""

_log = logging.getLogger("turnwise.pools")


class Workers:
    """Threads for searches, with helpers, for new filters, for edits, and for each new index.

    Attributes:
        search: A thread for searches.
        filters: A thread for new filters.
        edits: Two threads for edits: those of a namespace use one of them.
    """

    def __init__(self, search_threads: int, metrics: Metrics) -> None:
        self._threads = search_threads
        self.search = FairThreads(1, "searches", metrics, initializer=one_thread)
        self.filters = FairThreads(1, "filters", metrics)
        self.edits = FairThreads(2, "edits", metrics, initializer=one_thread)
        self._parts = ThreadPoolExecutor(max(1, search_threads - 1), "pool-part", one_thread)
        one_thread()  # the event loop's own thread searches small pools

    def flat(self, vectors: Float16) -> FlatIndex:
        """Return the exact index of vectors (n, d)."""
        return FlatIndex(vectors, parts=self._threads, executor=self._parts)

    async def take_in_turns(self, steps: Iterator[None], look_ups: int) -> None:
        """Take the steps of a new filter, in turns with other filters; a cancellation ends them.

        A new filter of a large pool takes seconds, for which the others must not wait.

        Args:
            steps: The steps.
            look_ups: Number of look-ups of metadata in all steps together.

        Raises:
            Overloaded: The new filters of the namespace that wait have too many look-ups already.
        """
        loop = asyncio.get_running_loop()
        with self.filters.admit(1 + look_ups // _LOOK_UPS):
            while await loop.run_in_executor(self.filters, _take_turn, steps):
                pass

    async def edit(self, work: Callable[[], T]) -> T:
        """Run work that takes milliseconds to seconds."""
        return await asyncio.get_running_loop().run_in_executor(self.edits, work)

    async def build(self, work: Callable[[], T]) -> T:
        """Run work that takes up to minutes, in a daemon thread: a shutdown does not wait."""
        done = Future[T]()
        done.set_running_or_notify_cancel()  # so that a cancelled request does not cancel it

        def run() -> None:
            one_thread()
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        threading.Thread(target=run, name="pool-build", daemon=True).start()
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """Let the threads end."""
        for executor in (self.search, self.filters, self._parts, self.edits):
            executor.shutdown(wait=False, cancel_futures=True)


def _take_turn(steps: Iterator[None]) -> bool:
    """Take steps until the time of a turn is over, then rest; return whether there may be more."""
    begin = time.monotonic()
    for _ in steps:
        if time.monotonic() > begin + _TURN_SECONDS:
            time.sleep(_REST * (time.monotonic() - begin))
            return True
    return False


class Background:
    """Background tasks; at most one runs for each key."""

    def __init__(self) -> None:
        self._tasks: dict[object, asyncio.Task[str]] = {}

    def begin(self, key: object, work: Work) -> None:
        """Start a task, unless one of this key is running."""
        if key not in self._tasks:
            task = asyncio.create_task(log_errors(work))
            self._tasks[key] = task
            task.add_done_callback(lambda _: self._tasks.pop(key))

    async def wait(self, key: object, seconds: float) -> None:
        """Wait for the task of this key, if one is running, but not longer than some seconds."""
        if task := self._tasks.get(key):
            await asyncio.wait({task}, timeout=seconds)

    async def close(self) -> None:
        """Cancel all tasks until they end: a task that awaits a lock can miss a cancellation."""
        while self._tasks:
            tasks = set(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)


async def log_errors(work: Work, known: str = "") -> str:
    """Run work that will be tried again; log its error instead of raising it.

    Args:
        work: The work.
        known: A message that was logged a moment ago, and is not logged again.

    Returns:
        The message of the error, empty if there was none.
    """
    try:
        await work()
    except (ServiceError, MemoryError) as error:
        message = str(error) or "out of memory"
        if message != known:
            _log.warning("pools: %s", message)
        return message
    except Exception:
        _log.exception("pools: unexpected")
    return ""

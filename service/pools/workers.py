"""The threads in which pools are searched and edited."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from turnwise.service.pools.index import FlatIndex, Float16, one_thread

T = TypeVar("T")


class Workers:
    """One search at a time, in as many threads as are given; edits and builds beside it."""

    def __init__(self, search_threads: int) -> None:
        self._threads = search_threads
        self.search = ThreadPoolExecutor(1, "pool-search", one_thread)
        self._parts = ThreadPoolExecutor(max(1, search_threads - 1), "pool-part", one_thread)
        self._edits = ThreadPoolExecutor(1, "pool-edit", one_thread)
        one_thread()  # small pools are searched in the event loop's own thread

    def flat(self, vectors: Float16) -> FlatIndex:
        """Return the exact index of some vectors (n, d)."""
        return FlatIndex(vectors, parts=self._threads, executor=self._parts)

    async def edit(self, work: Callable[[], T]) -> T:
        """Do what takes milliseconds to seconds."""
        return await asyncio.get_running_loop().run_in_executor(self._edits, work)

    async def build(self, work: Callable[[], T]) -> T:
        """Do what takes up to minutes, in a thread that nothing waits for at the end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            one_thread()
            try:
                _settle(loop, done, partial(done.set_result, work()))
            except Exception as error:
                _settle(loop, done, partial(done.set_exception, error))

        threading.Thread(target=run, name="pool-build", daemon=True).start()
        return await done

    def close(self) -> None:
        """Let the threads end."""
        for executor in (self.search, self._parts, self._edits):
            executor.shutdown(wait=False, cancel_futures=True)


def _settle(
    loop: asyncio.AbstractEventLoop, done: "asyncio.Future[T]", settle: Callable[[], None]
) -> None:
    """Settle a future from another thread; nobody may be waiting any more."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: None if done.done() else settle())

"""Slow work of requests: a thread does it one by one, so that turns do not wait for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnwise.service.errors import DeadlineExceeded, Overloaded
from turnwise.service.observe.metrics import Metrics

T = TypeVar("T")

_WAITING = 32
"""Most pieces of work that wait. Each may take seconds."""


class OneByOne:
    """A thread for one kind of slow work."""

    def __init__(self, name: str, metrics: Metrics, timeout: float) -> None:
        """Start without a thread; the first work starts it.

        Args:
            name: The kind of work, for error messages and as the name of the thread.
            metrics: Counts what is rejected.
            timeout: Seconds that a piece of work may wait and take.
        """
        self._name, self._metrics, self._timeout = name, metrics, timeout
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of some work; what it raises is raised here.

        Raises:
            Overloaded: Too much waits already.
            DeadlineExceeded: The timeout passed.
        """
        if self._waiting >= _WAITING:
            self._metrics.rejected_requests.labels("queue_full").inc()
            raise Overloaded(f"{self._waiting} requests wait for the {self._name} already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the {self._name} did not answer within {self._timeout:g} s"
            ) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Finish the work that has begun, and drop what waits."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

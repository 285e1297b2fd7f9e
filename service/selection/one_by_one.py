"""Slow work of requests: a thread does it one by one, so that turns do not wait for it."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from turnwise.service.errors import DeadlineExceeded, Overloaded
from turnwise.service.observe.logs import namespace
from turnwise.service.observe.metrics import Metrics

T = TypeVar("T")


class OneByOne:
    """A thread for one kind of slow work, at which the namespaces take turns.

    A namespace waits for at most one piece of work of each other one, however many those have.
    """

    def __init__(self, name: str, metrics: Metrics, timeout: float, *, limit: int = 32) -> None:
        """Start without a thread; the first work starts it.

        Args:
            name: The kind of work, for error messages and as the name of the thread.
            metrics: Counts what is rejected.
            timeout: Seconds that a piece of work may wait and take.
            limit: Most pieces of work that may go before a new one.
        """
        self._name = name
        self._metrics = metrics
        self._timeout = timeout
        self._limit = limit
        self._thread = ThreadPoolExecutor(1, name)
        self._busy = False
        self._admitted = Counter[str]()
        self._waiting = OrderedDict[str, deque[asyncio.Future[None]]]()
        """Work by namespace; the thread next does the oldest of the first namespace."""

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a piece of work of the caller's namespace, from before its preparation to its end.

        Raises:
            Overloaded: Too much goes before it.
        """
        caller = namespace.get("")
        own = self._admitted[caller]
        others = [count for name, count in self._admitted.items() if name != caller]
        ahead = own + sum(min(count, own + 1) for count in others)
        if ahead >= self._limit:
            self._metrics.rejected_requests.labels("queue_full").inc()
            raise Overloaded(f"{ahead} requests wait for the {self._name} already")
        self._admitted[caller] += 1
        try:
            yield
        finally:
            self._admitted[caller] -= 1
            if not self._admitted[caller]:
                del self._admitted[caller]

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of admitted work; what it raises is raised here.

        Raises:
            DeadlineExceeded: The timeout passed.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._wait_for_thread()
                try:
                    return await asyncio.get_running_loop().run_in_executor(self._thread, work)
                finally:
                    self._pass_thread_on()
        except TimeoutError:
            raise DeadlineExceeded(
                f"the {self._name} did not answer within {self._timeout:g} s"
            ) from None

    async def close(self) -> None:
        """Finish the work that has begun, and drop what waits."""
        for line in self._waiting.values():
            for turn in line:
                turn.cancel()
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _wait_for_thread(self) -> None:
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace.get(""), deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_thread_on()
            raise

    def _pass_thread_on(self) -> None:
        """Let the next work begin: the oldest of the namespace that has waited longest."""
        while self._waiting:
            name, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[name] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False

"""Limits how many requests a replica works on at once. Others wait, or are refused unread (429).

Each request in progress delays all others by a little at every step, so more of them at once do not
mean more answers a second. A request that finds all places taken waits in the line of its
namespace. The next free place goes to the namespace that has the fewest requests in progress. A
namespace cannot take all places, so that its slow requests leave some to the others.

How long a request would wait follows from the pace at which places have lately become free. If
that is more than 1.5 seconds, the request is refused at once, before its body is read. Nobody waits
for longer.
"""

import asyncio
from collections import Counter, deque
from time import monotonic
from typing import Self

from turnwise.service.encoder.batcher import Priority
from turnwise.service.errors import Overloaded
from turnwise.service.observe.metrics import Metrics

LIMIT = 16
"""Requests in progress at once. On two cores, five times the load that they take gave .81 of the
best throughput, and a 99th percentile of 1.6 s (`benchmarks.overload`). Twice as many requests gave
2 % more turns a second to 32 clients that wait for their answers, but fewer under overload."""
SHARE = 12
"""Requests in progress of one namespace."""
WAIT_SECONDS = 1.5
"""Longest wait for a place."""
_RECENT = 32
"""The mean interval of so many places that became free is the pace."""


class Place:
    """A place of a request in progress."""

    def __init__(self, limit: "ConcurrencyLimit", namespace: str) -> None:
        self._limit: ConcurrencyLimit | None = limit
        self._namespace = namespace

    def free(self) -> None:
        """Give the place to the next request. A second call does nothing."""
        if self._limit:
            self._limit.free(self._namespace)
            self._limit = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


class ConcurrencyLimit:
    """The requests in progress, and those that wait, by namespace."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        limit: int = LIMIT,
        share: int = SHARE,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Start without requests.

        Args:
            metrics: Counts refused requests.
            limit: Most requests in progress.
            share: Most requests in progress of one namespace.
            wait_seconds: Longest wait for a place.
        """
        self._metrics = metrics
        self._limit = limit
        self._share = share
        self._wait_seconds = wait_seconds
        self._running = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The requests that wait, oldest first; no namespace has an empty line."""
        self._intervals: deque[float] = deque(maxlen=_RECENT)
        """Seconds between two places that became free for a request that waited."""
        self._since = 0.0
        """When a place last became free, or the first request began to wait."""

    async def enter(self, namespace: str) -> Place:
        """Return a place for a request, and wait for it if necessary.

        Raises:
            Overloaded: The request would wait for too long.
        """
        if self._has_room(namespace) and namespace not in self._waiting:
            self._running[namespace] += 1
        else:
            await self._wait(namespace)
        return Place(self, namespace)

    def free(self, namespace: str) -> None:
        """Free a place of a namespace, and give it to a request that waits."""
        self._running[namespace] -= 1
        if not self._running[namespace]:
            del self._running[namespace]
        names = [name for name in self._waiting if self._has_room(name)]
        if not names:
            return
        now = monotonic()
        self._intervals.append(now - self._since)
        self._since = now
        name = min(names, key=self._running.__getitem__)
        self._running[name] += 1
        line = self._waiting[name]
        line.popleft().set_result(None)
        if not line:
            del self._waiting[name]

    def _has_room(self, namespace: str) -> bool:
        is_full = self._running.total() >= self._limit
        return not is_full and self._running[namespace] < self._share

    async def _wait(self, namespace: str) -> None:
        if not self._waiting:
            self._since = monotonic()
        self._check_wait(namespace)
        entered = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(entered)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await asyncio.shield(entered)  # `free` may come before this request leaves the line
        except BaseException as error:
            if entered.done():
                self.free(namespace)  # the place came at the same moment
            else:
                self._leave_line(namespace, entered)
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise

    def _check_wait(self, namespace: str) -> None:
        """Refuse a request that would wait for too long; the first one in a line never would."""
        ahead = len(self._waiting.get(namespace, ()))
        if not ahead or not self._intervals:
            return
        pace = sum(self._intervals) / len(self._intervals)
        if (ahead + 1) * len(self._waiting) * pace > self._wait_seconds:
            raise self._refusal()

    def _leave_line(self, namespace: str, entered: "asyncio.Future[None]") -> None:
        line = self._waiting[namespace]
        line.remove(entered)
        if not line:
            del self._waiting[namespace]

    def _refusal(self) -> Overloaded:
        self._metrics.rejected_requests.labels("queue_full").inc()
        return Overloaded(f"{self._running.total()} requests are in progress already")


def limit_concurrency(metrics: Metrics) -> dict[Priority, ConcurrencyLimit]:
    """Return a limit for turns, and one for lists of candidates or goals.

    A list takes many times as long as a turn, so turns must not wait for the places of lists.
    """
    return {priority: ConcurrencyLimit(metrics) for priority in (Priority.TURN, Priority.LIST)}

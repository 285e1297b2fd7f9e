"""Limits how many requests a replica works on at once. Others wait, or are refused unread (429).

Each request in progress delays all others by a little at every step, so more of them at once do not
mean more answers a second. A request that finds all places taken waits in the line of its
namespace. The next free place goes to the namespace that has the fewest requests in progress. A
namespace cannot take all places, so that its slow requests leave some to the others. A request with
a large body counts as several ones of its namespace: it keeps Python busy for long.

How long a request would wait follows from the pace at which places have lately become free. If
that is more than 1.5 seconds, the request is refused at once, before its body is read. Nobody waits
for longer.
"""

import asyncio
from collections import Counter, deque
from time import monotonic
from typing import NamedTuple, Self

from starlette.datastructures import Headers

from turnwise.service.encoder.batcher import Priority
from turnwise.service.errors import Overloaded
from turnwise.service.observe.metrics import Metrics

LIMIT = 16
"""Requests in progress at once. Under five times the load that it can serve, a replica on two cores
had .81 of its best throughput and a 99th percentile of 1.6 s (`benchmarks.overload`). At twice the
limit, 32 clients that wait for their answers got 2 % more turns a second, and fewer under overload.
"""
SHARE = 12
"""Requests in progress of one namespace."""
WAIT_SECONDS = 1.5
"""Longest wait for a place."""
_BYTES = 1 << 14
"""Bytes of a body that count as one more request of its namespace."""
_RECENT = 32
"""Number of places that lately became free, whose mean interval is the pace."""


class Place:
    """A place of a request in progress."""

    def __init__(self, limit: "ConcurrencyLimit", namespace: str, weight: int) -> None:
        self._limit: ConcurrencyLimit | None = limit
        self._namespace = namespace
        self._weight = weight

    def free(self) -> None:
        """Give the place to the next request. A second call does nothing."""
        if self._limit:
            self._limit.free(self._namespace, self._weight)
            self._limit = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


class _Waiting(NamedTuple):
    """A request that waits: how much it counts, and the future of its place."""

    weight: int
    entered: asyncio.Future[None]


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
            share: Most requests in progress of one namespace, by their weights.
            wait_seconds: Longest wait for a place.
        """
        self._metrics = metrics
        self._limit = limit
        self._share = share
        self._wait_seconds = wait_seconds
        self._running = Counter[str]()
        self._weights = Counter[str]()
        """The sum of the weights of the requests in progress, by namespace."""
        self._waiting: dict[str, deque[_Waiting]] = {}
        """The requests that wait, oldest first; no namespace has an empty line."""
        self._intervals: deque[float] = deque(maxlen=_RECENT)
        """Seconds between two places that became free for a request that waited."""
        self._since = 0.0
        """When a place last became free, or the first request began to wait."""

    async def enter(self, namespace: str, weight: int = 1) -> Place:
        """Return a place for a request, and wait for it if necessary.

        Args:
            namespace: The namespace of the request.
            weight: How many requests of its namespace it counts for. The only request of a
                namespace is admitted with any weight.

        Raises:
            Overloaded: The request would wait for too long.
        """
        if self._has_room(namespace, weight) and namespace not in self._waiting:
            self._begin(namespace, weight)
        else:
            await self._wait(namespace, weight)
        return Place(self, namespace, weight)

    def free(self, namespace: str, weight: int) -> None:
        """Free a place of a namespace, and give it to a request that waits."""
        self._running[namespace] -= 1
        self._weights[namespace] -= weight
        if not self._running[namespace]:
            del self._running[namespace]
            del self._weights[namespace]
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Give places to all that have room now: a heavy request leaves room for several."""
        while names := [
            name for name, line in self._waiting.items() if self._has_room(name, line[0].weight)
        ]:
            self._admit_first(min(names, key=self._running.__getitem__))

    def _admit_first(self, namespace: str) -> None:
        """Give a place to the request of a namespace that has waited longest."""
        now = monotonic()
        self._intervals.append(now - self._since)
        self._since = now
        line = self._waiting[namespace]
        first = line.popleft()
        if not line:
            del self._waiting[namespace]
        self._begin(namespace, first.weight)
        first.entered.set_result(None)

    def _begin(self, namespace: str, weight: int) -> None:
        self._running[namespace] += 1
        self._weights[namespace] += weight

    def _has_room(self, namespace: str, weight: int) -> bool:
        if self._running.total() >= self._limit:
            return False
        in_progress = self._weights[namespace]
        return in_progress == 0 or in_progress + weight <= self._share

    async def _wait(self, namespace: str, weight: int) -> None:
        """Wait in the line of a namespace for a place."""
        if not self._waiting:
            self._since = monotonic()
        self._check_wait(namespace)
        waiting = _Waiting(weight, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(namespace, deque()).append(waiting)
        try:
            async with asyncio.timeout(self._wait_seconds):
                # `free` may come before this request leaves the line.
                await asyncio.shield(waiting.entered)
        except BaseException as error:
            if waiting.entered.done():
                self.free(namespace, weight)  # the place came at the same moment
            else:
                self._leave_line(namespace, waiting)
                self._admit_waiting()  # those behind it may be lighter
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise

    def _check_wait(self, namespace: str) -> None:
        """Refuse a request that would wait for too long; the first one in a line never would."""
        ahead = len(self._waiting.get(namespace, ()))
        if not ahead or not self._intervals:
            return
        seconds_a_place = sum(self._intervals) / len(self._intervals)
        # The waiting namespaces get places about equally often.
        places = (ahead + 1) * len(self._waiting)
        if places * seconds_a_place > self._wait_seconds:
            raise self._refusal()

    def _leave_line(self, namespace: str, waiting: _Waiting) -> None:
        line = self._waiting[namespace]
        line.remove(waiting)
        if not line:
            del self._waiting[namespace]

    def _refusal(self) -> Overloaded:
        self._metrics.rejected_requests.labels("queue_full").inc()
        return Overloaded(f"{self._running.total()} requests are in progress already")


def weigh_body(headers: Headers) -> int:
    """Return how many requests of its namespace a request counts for, by the length of its body."""
    if "transfer-encoding" in headers:
        return SHARE  # the length is unknown, so it may be a large one
    length = headers.get("content-length", "")
    return 1 + int(length) // _BYTES if length.isdecimal() else 1


def limit_concurrency(metrics: Metrics) -> dict[Priority, ConcurrencyLimit]:
    """Return a limit for turns, and one for lists of candidates or goals.

    A list takes many times as long as a turn, so turns must not wait for the places of lists.
    """
    return {priority: ConcurrencyLimit(metrics) for priority in (Priority.TURN, Priority.LIST)}

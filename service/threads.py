"""`FairThreads`: threads for the slow work of requests; the namespaces take turns.

A namespace that asks for much delays the others only by the work that has begun.
"""

import asyncio
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from turnwise.service.current_request import namespace
from turnwise.service.errors import Overloaded
from turnwise.service.observe.metrics import Metrics

T = TypeVar("T")

_MORE_THREADS = 4
"""Threads beyond the number of cores, as asyncio has them: some wait for files."""
_SWITCH_SECONDS = 0.002
"""Seconds for which a thread may run Python while another one wants to. A turn passes between the
event loop and other threads some ten times; by default it would wait 5 ms each time. At 0.5 ms, 32
sessions had 7 to 9 % fewer turns a second."""


class _Work(NamedTuple):
    """A piece of work for a namespace, and the future of its result."""

    namespace: str
    future: "Future[Any]"
    call: Callable[[], Any]


class FairThreads(ThreadPoolExecutor):
    """An executor that no namespace can fill.

    The next piece of work is of the namespace whose last one began longest ago.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        metrics: Metrics,
        *,
        share: int | None = None,
        limit: int = 32,
        initializer: Callable[[], None] | None = None,
    ) -> None:
        """Start without threads; the first work starts one.

        Args:
            threads: Number of threads.
            name: What the threads do: their name, and a part of error messages.
            metrics: Counts rejected requests.
            share: Most threads that a namespace uses at once; by default half of them, if there are
                several.
            limit: Most requests of a namespace that `admit` lets in at once.
            initializer: Called in each thread before its first work.
        """
        super().__init__(threads, name, initializer)
        self._name = name
        self._metrics = metrics
        self._limit = limit
        self._share = share or max(1, threads // 2)
        self._admitted = Counter[str]()
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Work]] = {}
        """Work by namespace, oldest first."""
        self._running = Counter[str]()
        self._begun = 0
        self._last_begun: dict[str, int] = {}
        """The number of the last work of each namespace; empty when there is nothing to do."""

    @contextmanager
    def admit(self, weight: int = 1) -> Iterator[None]:
        """Count a request of the caller's namespace, from before its preparation to its end.

        Args:
            weight: How many requests it counts for. The only request of a namespace is admitted
                with any weight.

        Raises:
            Overloaded: The namespace has as many requests as it may have at once.
        """
        caller = namespace.get("")
        admitted = self._admitted[caller]
        if admitted and admitted + weight > self._limit:
            self._metrics.rejected_requests.labels("queue_full").inc()
            raise Overloaded(f"the {self._name} has too much to do for this namespace already")
        self._admitted[caller] += weight
        try:
            yield
        finally:
            self._admitted[caller] -= weight
            if not self._admitted[caller]:
                del self._admitted[caller]

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":  # noqa: ANN401 - as the base class
        """Queue work for the namespace of the caller's context."""
        work = _Work(namespace.get(""), Future(), partial(call, *args, **kwargs))
        with self._lock:
            self._waiting.setdefault(work.namespace, deque()).append(work)
        super().submit(self._work_off)
        return work.future

    async def run(self, call: Callable[..., T], /, *args: Any) -> T:  # noqa: ANN401 - as `submit`
        """Call a function in a thread, in the caller's context, as `asyncio.to_thread` does."""
        in_context = partial(copy_context().run, call, *args)
        return await asyncio.get_running_loop().run_in_executor(self, in_context)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish the work, or only what has begun."""
        if cancel_futures:
            with self._lock:
                dropped = [work.future for line in self._waiting.values() for work in line]
                self._waiting.clear()
            for future in dropped:
                future.cancel()
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _work_off(self) -> None:
        """Work until nothing waits that this thread may begin."""
        while work := self._begin_next():
            _run(work)
            with self._lock:
                self._running[work.namespace] -= 1

    def _begin_next(self) -> _Work | None:
        with self._lock:
            names = [name for name in self._waiting if self._running[name] < self._share]
            if not names:
                if not self._running.total():
                    self._last_begun.clear()
                return None
            name = min(names, key=lambda each: self._last_begun.get(each, 0))
            work = self._waiting[name].popleft()
            self._running[name] += 1
            self._begun += 1
            self._last_begun[name] = self._begun
            if not self._waiting[name]:
                del self._waiting[name]
            return work


def _run(work: _Work) -> None:
    """Do work for which somebody still waits, and settle its future."""
    if not work.future.set_running_or_notify_cancel():
        return
    try:
        result = work.call()
    except BaseException as error:
        work.future.set_exception(error)
    else:
        work.future.set_result(result)


def share_threads(metrics: Metrics) -> None:
    """Let the namespaces take turns at the threads of `asyncio.to_thread`, and at Python."""
    threads = FairThreads(_count_threads(), "other work", metrics)
    asyncio.get_running_loop().set_default_executor(threads)
    sys.setswitchinterval(_SWITCH_SECONDS)


def make_python_threads(name: str, metrics: Metrics) -> FairThreads:
    """Return threads for work in Python alone. A namespace uses one of them at a time.

    Python runs one thread at a time. More threads of a namespace would only delay the event loop.

    Args:
        name: What the threads do.
        metrics: Counts rejected requests.
    """
    return FairThreads(_count_threads(), name, metrics, share=1)


def _count_threads() -> int:
    return (os.cpu_count() or 1) + _MORE_THREADS

"""`SessionWriters`: the writers of a session on this replica go one after another.

Without it, concurrent writers would all read, encode and search again whenever one of them commits.
Writers on other replicas are not in line. Between replicas a commit fails if another one came
first, and its writer tries again. Readers never wait.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from turnwise.models.texts import write_count
from turnwise.service.errors import DeadlineExceeded, Overloaded, StateUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.sessions.store import SessionKey

T = TypeVar("T")

_ATTEMPTS = 200
"""Attempts to commit a change: of the writers on several replicas, one succeeds in each round."""


@dataclass(slots=True)
class _Line:
    """The writers of one session, in order of arrival; the lock is fair."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    writers: int = 0


class SessionWriters:
    """Lines of writers, one for each session that is being changed."""

    def __init__(self, metrics: Metrics, timeout: float, *, limit: int = 100) -> None:
        """Start without writers.

        Args:
            metrics: Counts rejected writers.
            timeout: Seconds that a writer may wait in line.
            limit: Most writers of a session, including the one that writes.
        """
        self._metrics = metrics
        self._timeout = timeout
        self._limit = limit
        self._lines: dict[SessionKey, _Line] = {}

    async def change(self, session: SessionKey, attempt: Callable[[], Awaitable[T | None]]) -> T:
        """Wait for the earlier writers; then try a change until it lands, and return its result.

        Args:
            session: The session.
            attempt: Reads, computes and commits; None where a writer on another replica committed
                first.

        Raises:
            Overloaded: Too many writers wait for the session.
            DeadlineExceeded: The timeout passed.
            StateUnavailable: Writers on other replicas were faster every time.
        """
        async with self._wait_in_line(session):
            for _ in range(_ATTEMPTS):
                if (result := await attempt()) is not None:
                    return result
        raise StateUnavailable(f"too many changes of session '{session.id}' at once; try again")

    @asynccontextmanager
    async def _wait_in_line(self, session: SessionKey) -> AsyncIterator[None]:
        line = self._lines.setdefault(session, _Line())
        if line.writers >= self._limit:
            self._metrics.rejected_requests.labels("queue_full").inc()
            raise Overloaded(
                f"session '{session.id}' has {write_count(line.writers, 'request')} waiting to "
                "change it"
            )
        line.writers += 1
        try:
            if line.writers == 1:  # most often; a timeout costs more than the lock
                await line.lock.acquire()
            else:
                await self._acquire(line.lock, session)
            try:
                yield
            finally:
                line.lock.release()
        finally:
            line.writers -= 1
            if not line.writers:
                del self._lines[session]

    async def _acquire(self, lock: asyncio.Lock, session: SessionKey) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await lock.acquire()
        except TimeoutError:
            raise DeadlineExceeded(
                f"other requests changed session '{session.id}' for {self._timeout:g} s"
            ) from None

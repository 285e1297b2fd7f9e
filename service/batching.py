"""The queue in front of the encoder: what waits when the device falls free is the next batch.

A request goes through two threads. The first cuts its texts into word pieces, while the device
works on what came before; the second forms batches and runs them. Neither waits for company: there
is no timer. A turn waits for one batch at most that is not of turns, and such batches are small.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from models.encoder import UtteranceEncoder
from models.roles import Role, RoleText
from service.errors import DeadlineExceeded, Draining, EncoderFailed, Overloaded, ServiceError
from service.metrics import Metrics, Path

Float32 = NDArray[np.float32]

_log = logging.getLogger(__name__)

BACKGROUND_TOKENS = 256
"""Of a batch on a CPU that no turn waits for: about 30 ms, with hardly less throughput."""

_WINDOW = 256
_SLICE = 64
_FAILURES = 3
_PROBE_SECONDS = 1.0
_STALLED_SECONDS = 60.0


class Priority(IntEnum):
    """Who goes first."""

    TURN = 0
    """An utterance that a client waits for."""
    LIST = 1
    """Candidates and goals that a client waits for."""
    IDLE = 2
    """What the next turn will need."""
    BULK = 3
    """Uploads; whoever sends them waits for each slice, so that they need no bound."""

    @property
    def path(self) -> Path:
        """The label in metrics."""
        return _PATHS[self]


_PATHS: dict[Priority, Path] = {
    Priority.TURN: "critical",
    Priority.LIST: "critical",
    Priority.IDLE: "idle",
    Priority.BULK: "bulk",
}


@dataclass(eq=False, slots=True)
class _Request:
    """Texts that are asked for together, and what is known of their vectors."""

    items: Sequence[RoleText]
    priority: Priority
    deadline: float
    answer: asyncio.Future[Float32]
    vectors: Float32
    since: float = field(default_factory=time.monotonic)
    left: int = 0

    @property
    def gone(self) -> bool:
        """Whether nobody waits any more."""
        return self.answer.done() or self.deadline < time.monotonic()


@dataclass(eq=False, slots=True)
class _Entry:
    """One text of a request, in word pieces."""

    request: _Request
    place: int
    tokens: list[int]


class EncoderQueue:
    """Encodes for many at once, on one device."""

    def __init__(
        self, encoder: UtteranceEncoder, metrics: Metrics, *, limit: int, batch_tokens: int
    ) -> None:
        """Take an encoder, which nobody else may use from now on.

        Args:
            encoder: What encodes.
            metrics: Counts and times.
            limit: Texts that may wait, without those of uploads.
            batch_tokens: Tokens of a padded batch.
        """
        self._encoder, self._metrics, self._limit = encoder, metrics, limit
        on_cpu = encoder.model.device.type == "cpu"
        background = min(batch_tokens, BACKGROUND_TOKENS) if on_cpu else batch_tokens
        self._budgets = {p: background if p else batch_tokens for p in Priority}
        self._raw: list[deque[_Request]] = [deque() for _ in Priority]
        self._ready: list[deque[_Entry]] = [deque() for _ in Priority]
        self._changed = threading.Condition()
        self._waiting = dict.fromkeys(Priority, 0)
        self._failures = 0
        self._busy_since: float | None = None
        self._draining = self._stopped = False
        self._threads = [
            threading.Thread(target=self._tokenize_all, name="tokenizer", daemon=True),
            threading.Thread(target=self._run_all, name="encoder", daemon=True),
        ]
        metrics.queue_oldest_seconds.set_function(self._oldest)

    @property
    def healthy(self) -> bool:
        """False after repeated failures, until a batch succeeds again."""
        return self._failures < _FAILURES

    @property
    def stalled(self) -> bool:
        """Whether a batch has been on the device for longer than any can take."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > _STALLED_SECONDS

    async def start(self) -> None:
        """Warm the model up and start to work."""
        await asyncio.to_thread(self._warm_up)
        for thread in self._threads:
            thread.start()

    async def encode(
        self,
        items: Sequence[RoleText],
        priority: Priority = Priority.TURN,
        timeout: float | None = None,
    ) -> Float32:
        """Encode texts in their roles.

        Args:
            items: n texts.
            priority: Who goes first.
            timeout: Seconds after which the vectors are of no use any more.

        Returns:
            (n, d) float32, unit rows.

        Raises:
            Overloaded: Too many texts wait.
            DeadlineExceeded: The time is over.
            EncoderFailed: The model failed on one of the texts.
            Draining: The queue is closing.
        """
        if self._draining:
            self._metrics.rejected.labels("draining").inc()
            raise Draining("the service is about to stop")
        if not items:
            return np.empty((0, self._encoder.dimension), np.float32)
        request = self._admit(items, priority, timeout)
        try:
            async with asyncio.timeout(timeout):
                return await request.answer
        except TimeoutError:
            raise DeadlineExceeded(f"not encoded within {timeout:g} s") from None

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what waits within some seconds, and stop."""
        self._draining = True
        end = time.monotonic() + timeout
        while sum(self._waiting.values()) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                await asyncio.to_thread(thread.join, max(end - time.monotonic(), 1.0))

    def _admit(
        self, items: Sequence[RoleText], priority: Priority, timeout: float | None
    ) -> _Request:
        request = _Request(
            items=items,
            priority=priority,
            deadline=np.inf if timeout is None else time.monotonic() + timeout,
            answer=asyncio.get_running_loop().create_future(),
            vectors=np.empty((len(items), self._encoder.dimension), np.float32),
            left=len(items),
        )
        with self._changed:
            bounded = sum(self._waiting[p] for p in Priority if p is not Priority.BULK)
            if priority is not Priority.BULK and bounded + len(items) > self._limit:
                self._metrics.rejected.labels("queue_full").inc()
                raise Overloaded(f"{bounded} texts wait for the encoder already")
            self._count(priority, len(items))
            self._raw[priority].append(request)
            self._changed.notify_all()
        return request

    def _tokenize_all(self) -> None:
        while request := self._next_raw():
            with self._metrics.stage("tokenize"):
                self._tokenize(request)

    def _tokenize(self, request: _Request) -> None:
        for start in range(0, len(request.items), _SLICE):
            items = request.items[start : start + _SLICE]
            try:
                tokens = self._encoder.tokenize(items)
            except Exception as error:
                self._forget([_Entry(request, start, [])] * (len(request.items) - start))
                self._fail(request, error)
                return
            entries = [_Entry(request, start + n, pieces) for n, pieces in enumerate(tokens)]
            with self._changed:
                self._ready[request.priority].extend(entries)
                self._changed.notify_all()

    def _next_raw(self) -> _Request | None:
        with self._changed:
            while not self._stopped:
                for waiting in self._raw:
                    if waiting:
                        return waiting.popleft()
                self._changed.wait()
        return None

    def _run_all(self) -> None:
        while (batch := self._next_batch()) is not None:
            if batch:
                self._run(batch)
            else:
                self._probe()

    def _next_batch(self) -> list[_Entry] | None:
        """Return entries to encode; none to see whether the model works again; None to stop."""
        with self._changed:
            while not self._stopped:
                for priority in Priority:
                    if batch := self._take(priority):
                        return batch
                patience = None if self.healthy else _PROBE_SECONDS
                if not self._changed.wait(patience):
                    return []
        return None

    def _take(self, priority: Priority) -> list[_Entry]:
        """Take the oldest entry and those of like length that fit the budget beside it."""
        waiting = self._ready[priority]
        while waiting and waiting[0].request.gone:
            self._drop(waiting.popleft())
        if not waiting:
            return []
        window = [waiting[n] for n in range(min(len(waiting), _WINDOW))]
        length = len(window[0].tokens)
        batch, longest = window[:1], length
        for entry in sorted(window[1:], key=lambda entry: abs(len(entry.tokens) - length)):
            longest = max(longest, len(entry.tokens))
            if (len(batch) + 1) * longest > self._budgets[priority]:
                break
            batch.append(entry)
        taken = set(map(id, batch))
        self._ready[priority] = deque(entry for entry in waiting if id(entry) not in taken)
        for entry in [entry for entry in batch if entry.request.gone]:
            batch.remove(entry)
            self._drop(entry)
        return batch

    def _run(self, batch: list[_Entry]) -> None:
        now = time.monotonic()
        for entry in batch:
            self._metrics.stage_seconds.labels("queue").observe(now - entry.request.since)
        try:
            self._deliver(batch, self._forward([entry.tokens for entry in batch]))
        except Exception as error:
            if len(batch) == 1:
                self._forget(batch)
                self._fail(batch[0].request, error)
                return
            for entry in batch:  # so that one text cannot fail its company
                self._run([entry])

    def _forward(self, tokens: list[list[int]]) -> Float32:
        self._busy_since = time.monotonic()
        try:
            with self._metrics.stage("encode"):
                vectors = self._encoder.forward(tokens)
        except Exception:
            self._failures += 1
            self._metrics.batch_failures.inc()
            raise
        finally:
            self._busy_since = None
        self._failures = 0
        self._metrics.batch_items.observe(len(tokens))
        self._metrics.batch_tokens.observe(len(tokens) * max(map(len, tokens)))
        return vectors

    def _deliver(self, batch: list[_Entry], vectors: Float32) -> None:
        self._forget(batch)
        for entry, vector in zip(batch, vectors, strict=True):
            request = entry.request
            request.vectors[entry.place] = vector
            request.left -= 1
            role = request.items[entry.place].role
            self._metrics.encoded.labels(role, request.priority.path).inc()
            if not request.left:
                _settle(request.answer, request.vectors)

    def _fail(self, request: _Request, error: Exception) -> None:
        _log.error("the encoder failed", exc_info=error)
        _settle(request.answer, EncoderFailed("the model failed on a text of this request"))

    def _drop(self, entry: _Entry) -> None:
        late = entry.request.deadline < time.monotonic()
        self._metrics.dropped.labels("deadline" if late else "cancelled").inc()
        self._count(entry.request.priority, -1)

    def _forget(self, entries: Sequence[_Entry]) -> None:
        with self._changed:
            for entry in entries:
                self._count(entry.request.priority, -1)

    def _count(self, priority: Priority, change: int) -> None:
        self._waiting[priority] += change
        self._metrics.queue_depth.labels(priority.path).inc(change)

    def _oldest(self) -> float:
        with self._changed:
            heads = [waiting[0].since for waiting in self._raw if waiting]
            heads += [waiting[0].request.since for waiting in self._ready if waiting]
        return time.monotonic() - min(heads) if heads else 0.0

    def _warm_up(self) -> None:
        self._encoder.forward(self._encoder.tokenize([RoleText("Hello", Role.AFTER)]))

    def _probe(self) -> None:
        with suppress(Exception):  # counted by _forward; tried again soon
            self._forward(self._encoder.tokenize([RoleText("Hello", Role.AFTER)]))


def _settle(answer: asyncio.Future[Float32], result: Float32 | ServiceError) -> None:
    """Give a future its result or error from another thread, unless nobody waits any more."""

    def settle() -> None:
        if answer.done():
            return
        if isinstance(result, ServiceError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    with suppress(RuntimeError):  # the loop is closed: nobody waits
        answer.get_loop().call_soon_threadsafe(settle)

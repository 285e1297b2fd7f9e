"""The queue in front of the encoder: what waits when the device falls free is the next batch.

The device's thread forms batches and runs them. While it is busy another cuts the texts that come
in the meantime into word pieces; a text that finds the device free is cut up on the spot, which
spares it a change of threads. Neither waits for company: there is no timer. A turn waits for one
batch at most that is not of turns, and such batches are small.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from statistics import median

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import RoleText
from turnwise.service.encoder.backlog import Backlog, EncodingRequest, Entry, Piece, Priority
from turnwise.service.encoder.device import Device, fail, settle
from turnwise.service.errors import DeadlineExceeded, Draining, Overloaded
from turnwise.service.observe.metrics import Metrics

__all__ = ["EncoderQueue", "Priority"]

CPU_TOKENS = 256
"""Most tokens of a padded batch on a CPU, about 40 ms: more add latency, and no throughput."""

_OF_LATE = 32
"""Batches whose median tells how long a text takes."""
_PROBE_SECONDS = 1.0
_STALLED_SECONDS = 10.0
_HUNG_SECONDS = 60.0


class EncoderQueue:
    """Encodes for many at once, on one device."""

    def __init__(
        self,
        encoder: UtteranceEncoder,
        metrics: Metrics,
        *,
        limit: int,
        batch_tokens: int,
        patience: float = math.inf,
    ) -> None:
        """Take an encoder, which nobody else may use from now on.

        Args:
            encoder: What encodes.
            metrics: Counts and times.
            limit: Texts that may wait before one, those of uploads left out.
            batch_tokens: Tokens of a padded batch.
            patience: Seconds that a text may have to wait: where it would take longer at the
                pace of late, it is refused at once, which costs nothing.
        """
        self._encoder, self._metrics = encoder, metrics
        self._limit, self._patience = limit, patience
        self._paces: deque[float] = deque(maxlen=_OF_LATE)
        self._pace = 0.0
        on_cpu = encoder.model.device.type == "cpu"
        tokens = min(batch_tokens, CPU_TOKENS) if on_cpu else batch_tokens
        self._backlog = Backlog(metrics, tokens)
        self._device = Device(encoder, metrics)
        self._lock = threading.Lock()
        self._for_device = threading.Condition(self._lock)
        self._for_tokenizer = threading.Condition(self._lock)
        self._tokenizer_lock = threading.Lock()
        self._busy_since: float | None = None
        self._started = self._draining = self._stopped = False
        self._threads = [
            threading.Thread(target=self._run_all, name="encoder", daemon=True),
            threading.Thread(target=self._tokenize_all, name="tokenizer", daemon=True),
        ]
        metrics.watch_queue(self._oldest, self._running)

    @property
    def healthy(self) -> bool:
        """False after repeated failures, until a batch succeeds again."""
        return self._device.healthy

    @property
    def stalled(self) -> bool:
        """Whether a batch has been on the device for longer than any should take."""
        return self._running() > _STALLED_SECONDS

    @property
    def hung(self) -> bool:
        """Whether that has gone on until only a new process can help: no thread can be stopped."""
        return self._running() > _HUNG_SECONDS

    async def start(self) -> None:
        """Warm the model up and start to work; raises what the model raises."""
        await asyncio.to_thread(self._device.warm_up)
        for thread in self._threads:
            thread.start()
        self._started = True

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
            self._count_rejected(priority, "draining")
            raise _draining()
        if not items:
            return np.empty((0, self._encoder.dimension), np.float32)
        request = EncodingRequest(
            items=items,
            priority=priority,
            answer=asyncio.get_running_loop().create_future(),
            vectors=np.empty((len(items), self._encoder.dimension), np.float32),
            deadline=math.inf if timeout is None else time.monotonic() + timeout,
        )
        self._admit(request)
        try:
            async with asyncio.timeout(timeout):
                return await request.answer
        except TimeoutError:
            raise DeadlineExceeded(f"not encoded within {timeout:g} s") from None

    def check(self) -> None:
        """See whether a turn's text would be taken, before anything else is done for it.

        Raises:
            Overloaded: It would not.
        """
        with self._lock:
            self._refuse(Priority.TURN, 1)

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what waits within some seconds, and stop."""
        with self._lock:
            self._draining = True
            self._wake_all()
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread.is_alive():
                await asyncio.to_thread(thread.join, max(end - time.monotonic(), 0))
        with self._lock:
            self._stopped = True
            self._wake_all()
            left = self._backlog.clear()
        for request in left:
            settle(request, _draining())

    def _admit(self, request: EncodingRequest) -> None:
        with self._lock:
            if request.priority is not Priority.BULK:
                self._refuse(request.priority, len(request.items))
            self._backlog.add(request)
            if self._busy_since is None:
                self._for_device.notify()
            else:
                self._for_tokenizer.notify()

    def _refuse(self, priority: Priority, more: int) -> None:
        waiting = self._backlog.before(priority)
        full = waiting + more > self._limit or waiting * self._pace > self._patience
        if waiting and full:  # so that a large one can be served
            self._count_rejected(priority, "queue_full")
            raise Overloaded(f"{waiting} texts wait for the encoder already")

    def _count_rejected(self, priority: Priority, reason: str) -> None:
        if priority is not Priority.IDLE:  # of which no client hears
            self._metrics.rejected_requests.labels(reason).inc()

    def _run_all(self) -> None:
        while (work := self._next_work()) is not None:
            if isinstance(work, Piece):
                self._tokenize(work)
            elif work:
                begin = time.monotonic()
                self._device.run(work)
                self._paces.append((time.monotonic() - begin) / len(work))
                self._pace = median(self._paces)
            else:
                self._device.probe()

    def _tokenize_all(self) -> None:
        while piece := self._next_piece():
            self._tokenize(piece)

    def _next_work(self) -> list[Entry] | Piece | None:
        """Wait for work. No entries: see whether the model works again. None: stop."""
        with self._lock:
            self._busy_since = None
            while True:
                if work := self._backlog.take():
                    if not isinstance(work, Piece):
                        self._busy_since = time.monotonic()
                        self._for_tokenizer.notify()
                    return work
                if self._over:  # only now: what takes may drop the last that waited
                    self._wake_all()
                    return None
                if not self._for_device.wait(None if self.healthy else _PROBE_SECONDS):
                    self._busy_since = time.monotonic()  # a device may also hang in this
                    return []

    def _next_piece(self) -> Piece | None:
        with self._lock:
            while not self._over:
                if self._busy_since is not None and (piece := self._backlog.take_piece()):
                    return piece
                self._for_tokenizer.wait()
        return None

    @property
    def _over(self) -> bool:
        return self._stopped or (self._draining and not self._backlog.size)

    def _wake_all(self) -> None:
        self._for_device.notify()
        self._for_tokenizer.notify()

    def _tokenize(self, piece: Piece) -> None:
        try:
            with self._tokenizer_lock, self._metrics.stage("tokenize"):
                tokens = self._encoder.tokenize(piece.items)
        except Exception as error:
            fail(piece.request, error)
            with self._lock:
                self._backlog.forget(piece)
                self._wake_all()
        else:
            with self._lock:
                self._backlog.put(piece, tokens)
                self._for_device.notify()

    def _running(self) -> float:
        """Return the age in seconds of the batch on the device; a thread that died is not back."""
        if self._started and not self._over and not all(t.is_alive() for t in self._threads):
            return math.inf
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def _oldest(self) -> float:
        with self._lock:
            return self._backlog.oldest


def _draining() -> Draining:
    return Draining("the service is about to stop")

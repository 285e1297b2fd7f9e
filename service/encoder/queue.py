"""The encoder queue: batches texts as soon as the device is free; rejects more if it is full (429).

The encoder thread forms batches and runs them. While it is busy, the tokenizer thread tokenizes the
texts that arrive; if the device is free, the encoder thread tokenizes them itself, which saves a
switch of threads. Neither waits for a batch to fill: there is no timer. A turn waits for at most
one batch of lower priority, and batches are small. The pairs of a cross-encoder wait in a lane of
the same queue, so they share the device with the encoder and delay a turn no longer than that.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from statistics import median

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.rerankers.pairs import Pair
from turnwise.models.roles import RoleText
from turnwise.models.texts import write_count
from turnwise.service.current_request import namespace
from turnwise.service.encoder.batcher import Batch, Batcher, EncodingRequest, Priority, TextSlice
from turnwise.service.encoder.model import REMOTE, Encoder, Model
from turnwise.service.encoder.runner import BatchRunner, fail, settle
from turnwise.service.errors import DeadlineExceeded, Draining, EncoderUnavailable, Overloaded
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.tracing import shared_span

CPU_TOKENS = 256
"""Tokens of a batch on a CPU, about 40 ms: more would add latency, but no throughput."""

_RECENT_BATCHES = 32
"""Latest batches whose median time is the estimate for a text."""
TRY_SECONDS = 1.0
"""Pause between two tries of an encoder that fails."""
IDLE_SECONDS = 5.0
"""Seconds without work after which a remote encoder is tried: it may have gone away."""
STALLED_SECONDS = 10.0
HUNG_SECONDS = 60.0


class _Order(Enum):
    """Orders for the encoder thread when there is no work."""

    TRY_MODEL = auto()
    STOP = auto()


class _Pace:
    """The time that a model takes for a text."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT_BATCHES)

    def record(self, seconds: float) -> None:
        """Add the seconds that each text of a batch took."""
        self._recent.append(seconds)
        self.seconds = median(self._recent)


class EncoderQueue:
    """Encodes texts of many requests in common batches, on one device."""

    def __init__(
        self,
        encoder: Encoder,
        metrics: Metrics,
        *,
        limit: int,
        batch_tokens: int,
        max_wait: float = math.inf,
    ) -> None:
        """Take an encoder, which only this queue may use from now on.

        Args:
            encoder: Encodes the batches.
            metrics: Gets counts and times.
            limit: Greatest number of texts that may wait ahead of a new one, bulk ones excluded.
            batch_tokens: Limit for the tokens of a batch, padding included.
            max_wait: Seconds. A text that is expected to wait longer is rejected at once.
        """
        self._encoder = encoder
        self._metrics = metrics
        self._limit = limit
        self._max_wait = max_wait
        self._paces = dict.fromkeys(Priority, _Pace())
        for priority in (Priority.CASCADE, Priority.RERANK):  # models of their own
            self._paces[priority] = _Pace()
        self._remote = encoder.device == REMOTE
        tokens = min(batch_tokens, CPU_TOKENS) if encoder.device == "cpu" else batch_tokens
        self._batcher = Batcher(metrics, tokens)
        self._runner = BatchRunner(encoder, metrics)
        self._lock = threading.Lock()
        self._encoder_wakes = threading.Condition(self._lock)
        self._tokenizer_wakes = threading.Condition(self._lock)
        self._tokenizer_lock = threading.Lock()
        self._busy_since: float | None = None
        self._started = False
        self._draining = False
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run_all, name="encoder", daemon=True),
            threading.Thread(target=self._tokenize_all, name="tokenizer", daemon=True),
        ]
        metrics.watch_queue(self._oldest_seconds, self._running_seconds)

    @property
    def healthy(self) -> bool:
        """False after repeated failures, until a batch succeeds again."""
        return self._runner.healthy

    @property
    def stalled(self) -> bool:
        """Whether a batch has run for longer than any should take."""
        return self._running_seconds() > STALLED_SECONDS

    @property
    def hung(self) -> bool:
        """Whether a batch has run so long that only a new process can help."""
        return self._running_seconds() > HUNG_SECONDS

    async def start(self) -> None:
        """Warm the model up and start the threads; raises the model's errors."""
        await asyncio.to_thread(self._runner.warm_up)
        for thread in self._threads:
            thread.start()
        self._started = True

    async def encode(
        self,
        texts: Sequence[RoleText | str],
        priority: Priority = Priority.TURN,
        timeout: float | None = None,
        *,
        admitted: bool = False,
    ) -> Float32:
        """Return the vectors of texts.

        Args:
            texts: n texts in roles, or as the model reads them.
            priority: Priority of the texts.
            timeout: Seconds after which the vectors are not needed any more.
            admitted: Whether these are more texts of a request whose first ones were admitted.

        Returns:
            (n, d) float32, unit rows.

        Raises:
            Overloaded: Too many texts wait already.
            DeadlineExceeded: The timeout is over.
            EncoderFailed: The model failed on one of the texts.
            EncoderUnavailable: The remote encoder does not answer.
            Draining: The service is stopping.
        """
        return await self._compute(self._encoder, texts, priority, timeout, admitted=admitted)

    async def score(
        self,
        model: Model,
        pairs: Sequence[Pair],
        timeout: float | None = None,
        priority: Priority = Priority.RERANK,
    ) -> Float32:
        """Return the scores (n,) of pairs by a cross-encoder, in a lane of their own.

        Args:
            model: The cross-encoder, always the same for a priority, which only this queue may use.
            pairs: n pairs.
            timeout: Seconds after which the scores are not needed any more.
            priority: `RERANK`, or `CASCADE`.

        Raises:
            ServiceError: As `encode`.
        """
        return (await self._compute(model, pairs, priority, timeout))[:, 0]

    async def _compute(
        self,
        model: Model,
        texts: Sequence[RoleText | str | Pair],
        priority: Priority,
        timeout: float | None,
        *,
        admitted: bool = False,
    ) -> Float32:
        if self._draining:
            self._count_rejected(priority, "draining")
            raise _draining()
        if model is self._encoder:
            self._check_available()
        if not texts:
            return np.empty((0, model.dimension), np.float32)
        request = EncodingRequest(
            model=model,
            texts=texts,
            priority=priority,
            answer=asyncio.get_running_loop().create_future(),
            vectors=np.empty((len(texts), model.dimension), np.float32),
            deadline=math.inf if timeout is None else time.monotonic() + timeout,
        )
        self._add(request, check=not admitted and priority is not Priority.BULK)
        try:
            async with asyncio.timeout(timeout):
                return await request.answer
        except TimeoutError:
            done = "re-ranked" if priority.lane == "rerank" else "encoded"
            raise DeadlineExceeded(f"not {done} within {timeout:g} s") from None

    def check(self, priority: Priority) -> None:
        """Check that a text would be admitted, before a request does any other work.

        Raises:
            Overloaded: It would be rejected.
            EncoderUnavailable: The remote encoder does not answer.
        """
        self._check_available()
        with self._lock:
            self._check_room(priority, 1)

    async def drain(self, timeout: float) -> None:
        """Reject new texts, encode the waiting ones within `timeout` seconds, and stop."""
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
            left = self._batcher.clear()
        for request in left:
            settle(request, _draining())

    def _add(self, request: EncodingRequest, *, check: bool) -> None:
        with self._lock:
            if check:
                self._check_room(request.priority, len(request.texts))
            self._batcher.add(request)
            if self._busy_since is None:
                self._encoder_wakes.notify()
            else:
                self._tokenizer_wakes.notify()

    def _check_available(self) -> None:
        """Reject texts at once while a remote encoder fails; `_run_all` tries it meanwhile."""
        if self._remote and not self.healthy:
            raise EncoderUnavailable("the remote encoder is unavailable")

    def _check_room(self, priority: Priority, more: int) -> None:
        """Reject `more` texts of a priority if too many wait before them, or for too long."""
        ahead = self._batcher.count_ahead(priority, namespace.get(""))
        waiting = ahead.total()
        seconds = sum(count * self._paces[other].seconds for other, count in ahead.items())
        is_full = waiting + more > self._limit or seconds > self._max_wait
        if waiting and is_full:  # an empty queue admits a request of any size
            self._count_rejected(priority, "queue_full")
            raise Overloaded(f"the encoder has {write_count(waiting, 'text')} waiting already")

    def _count_rejected(self, priority: Priority, reason: str) -> None:
        if priority not in {Priority.IDLE, Priority.CASCADE}:  # no request fails for it
            self._metrics.rejected_requests.labels(reason).inc()

    def _run_all(self) -> None:
        while (work := self._wait_for_work()) is not _Order.STOP:
            if work is _Order.TRY_MODEL:
                self._runner.try_model()
            elif isinstance(work, TextSlice):
                self._tokenize(work)
            else:
                begin = time.monotonic()
                self._runner.run(work)
                pace = self._paces[work[0].request.priority]
                pace.record((time.monotonic() - begin) / len(work))

    def _tokenize_all(self) -> None:
        while part := self._next_slice():
            self._tokenize(part)

    def _wait_for_work(self) -> Batch | TextSlice | _Order:
        """Return the next work of the encoder thread; wait until there is some."""
        with self._lock:
            self._busy_since = None
            while True:
                work = self._batcher.next_work()
                if isinstance(work, TextSlice):
                    return work
                if work is not None:
                    self._busy_since = time.monotonic()
                    if self._batcher.has_slices:
                        self._tokenizer_wakes.notify()
                    return work
                if self._is_over:  # checked after next_work, which may drop the last texts
                    self._wake_all()
                    return _Order.STOP
                if not self._encoder_wakes.wait(self._idle_seconds()):
                    self._busy_since = time.monotonic()  # the trial may hang as well
                    return _Order.TRY_MODEL

    def _idle_seconds(self) -> float | None:
        """Return the seconds after which an idle encoder is tried; None for never."""
        if self._remote:
            return TRY_SECONDS if self._runner.failing else IDLE_SECONDS
        return None if self.healthy else TRY_SECONDS

    def _next_slice(self) -> TextSlice | None:
        with self._lock:
            while not self._is_over:
                if self._busy_since is not None and (part := self._batcher.next_slice()):
                    return part
                self._tokenizer_wakes.wait()
        return None

    @property
    def _is_over(self) -> bool:
        return self._stopped or (self._draining and not self._batcher.size)

    def _wake_all(self) -> None:
        self._encoder_wakes.notify()
        self._tokenizer_wakes.notify()

    def _tokenize(self, part: TextSlice) -> None:
        try:
            with (
                self._tokenizer_lock,
                shared_span("tokenize", [part.request.span]),
                self._metrics.stage("tokenize"),
            ):
                tokens = part.request.model.tokenize(part.texts)
        except Exception as error:
            fail(part.request, error)
            with self._lock:
                self._batcher.drop(part)
                self._wake_all()
        else:
            with self._lock:
                self._batcher.add_tokens(part, tokens)
                self._encoder_wakes.notify()
                is_late = self._stopped
            if is_late:  # the other texts were cleared without these
                settle(part.request, _draining())

    def _running_seconds(self) -> float:
        """Return the age of the running batch; 0 if none runs, infinity if a thread has died."""
        if self._started and not self._is_over and not all(t.is_alive() for t in self._threads):
            return math.inf
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def _oldest_seconds(self) -> float:
        with self._lock:
            return self._batcher.oldest_seconds


def _draining() -> Draining:
    return Draining("the service is about to stop")

"""The queue in front of the encoder: what waits when the device falls free is the next batch.

The device's thread forms batches and runs them. While it is busy another cuts the texts that come
in the meantime into word pieces; a text that finds the device free is cut up on the spot, which
spares it a change of threads. Neither waits for company: there is no timer. A turn waits for one
batch at most that is not of turns, and such batches are small.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from models.encoder import UtteranceEncoder
from models.roles import Role, RoleText
from service.backlog import Backlog, Entry, Piece, Priority, Request
from service.errors import DeadlineExceeded, Draining, EncoderFailed, Overloaded, ServiceError
from service.metrics import Metrics

__all__ = ["EncoderQueue", "Priority"]

Float32 = NDArray[np.float32]

BACKGROUND_TOKENS = 256
"""Of a batch on a CPU that no turn waits for: about 30 ms, with hardly less throughput."""

_FAILURES = 3
_PROBE_SECONDS = 1.0
_STALLED_SECONDS = 60.0
_PROBE = RoleText("Hello", Role.AFTER)

_log = logging.getLogger("turnwise.batching")


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
        budgets = {**dict.fromkeys(Priority, background), Priority.TURN: batch_tokens}
        self._backlog = Backlog(metrics, budgets)
        self._lock = threading.Lock()
        self._for_device = threading.Condition(self._lock)
        self._for_tokenizer = threading.Condition(self._lock)
        self._tokenizer_lock = threading.Lock()
        self._failures = 0
        self._busy_since: float | None = None
        self._draining = self._stopped = False
        self._threads = [
            threading.Thread(target=self._run_all, name="encoder", daemon=True),
            threading.Thread(target=self._tokenize_all, name="tokenizer", daemon=True),
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
        """Warm the model up and start to work; raises what the model raises."""
        self._probe = self._encoder.tokenize([_PROBE])
        await asyncio.to_thread(self._encoder.forward, self._probe)
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
            raise _draining()
        if not items:
            return np.empty((0, self._encoder.dimension), np.float32)
        request = Request(
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
            _settle(request.answer, _draining())

    def _admit(self, request: Request) -> None:
        with self._lock:
            waiting, more = self._backlog.bounded, len(request.items)
            if request.priority is not Priority.BULK and waiting + more > self._limit:
                self._metrics.rejected.labels("queue_full").inc()
                raise Overloaded(f"{waiting} texts wait for the encoder already")
            self._backlog.add(request)
            if self._busy_since is None:
                self._for_device.notify()
            else:
                self._for_tokenizer.notify()

    def _run_all(self) -> None:
        while (work := self._next_work()) is not None:
            if isinstance(work, Piece):
                self._tokenize(work)
            elif work:
                self._run(work)
            else:
                with suppress(Exception):  # counted already, and tried again soon
                    self._forward(self._probe)

    def _tokenize_all(self) -> None:
        while piece := self._next_piece():
            self._tokenize(piece)

    def _next_work(self) -> list[Entry] | Piece | None:
        """Wait for work. No entries: see whether the model works again. None: stop."""
        with self._lock:
            self._busy_since = None
            while not self._over:
                if work := self._backlog.take():
                    if not isinstance(work, Piece):
                        self._busy_since = time.monotonic()
                        self._for_tokenizer.notify()
                    return work
                if not self._for_device.wait(None if self.healthy else _PROBE_SECONDS):
                    return []
            self._wake_all()
        return None

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
            self._fail(piece.request, error)
            with self._lock:
                self._backlog.forget(piece)
                self._wake_all()
        else:
            with self._lock:
                self._backlog.put(piece, tokens)
                self._for_device.notify()

    def _run(self, batch: list[Entry]) -> None:
        now = time.monotonic()
        for entry in batch:
            self._metrics.stage_seconds.labels("queue").observe(now - entry.request.since)
        try:
            self._encode(batch)
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch[0].request, error)
            else:
                self._run_one_by_one(batch)

    def _run_one_by_one(self, batch: list[Entry]) -> None:
        """Encode each alone, so that one text cannot fail its company."""
        for entry in batch:
            if not entry.request.gone:
                try:
                    self._encode([entry])
                except Exception as error:
                    self._fail(entry.request, error)

    def _encode(self, batch: list[Entry]) -> None:
        vectors = self._forward([entry.tokens for entry in batch])
        for entry, vector in zip(batch, vectors, strict=True):
            request = entry.request
            request.vectors[entry.place] = vector
            request.encoded += 1
            role = request.items[entry.place].role
            self._metrics.encoded.labels(role, request.priority.path).inc()
            if request.encoded == len(request.items):
                _settle(request.answer, request.vectors)

    def _forward(self, tokens: list[list[int]]) -> Float32:
        try:
            with self._metrics.stage("encode"):
                vectors = _finite(self._encoder.forward(tokens))
        except Exception:
            self._failures += 1
            self._metrics.batch_failures.inc()
            raise
        self._failures = 0
        self._metrics.batch_items.observe(len(tokens))
        self._metrics.batch_tokens.observe(len(tokens) * max(map(len, tokens)))
        return vectors

    def _fail(self, request: Request, error: Exception) -> None:
        _log.error("the encoder failed", exc_info=error)
        request.failed = True
        _settle(request.answer, EncoderFailed("the model failed on a text of this request"))

    def _oldest(self) -> float:
        with self._lock:
            return self._backlog.oldest


def _finite(vectors: Float32) -> Float32:
    if not np.isfinite(vectors).all():
        raise FloatingPointError("a vector is not finite")
    return vectors


def _draining() -> Draining:
    return Draining("the service is about to stop")


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

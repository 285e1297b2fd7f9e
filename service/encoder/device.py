"""Batches on the device: an error fails only the request that it is about."""

import asyncio
import logging
import time
from contextlib import suppress

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import Role, RoleText
from turnwise.service.encoder.backlog import EncodingRequest, Entry
from turnwise.service.errors import EncoderFailed, ServiceError
from turnwise.service.observe.metrics import Metrics

_FAILURES = 3
_PROBE = RoleText("Hello", Role.AFTER)

_log = logging.getLogger("turnwise.encoder")


class Device:
    """Runs batches, one at a time, and knows whether that works."""

    def __init__(self, encoder: UtteranceEncoder, metrics: Metrics) -> None:
        self._encoder, self._metrics = encoder, metrics
        self._failures = 0
        self._probe: list[list[int]] = []

    @property
    def healthy(self) -> bool:
        """False after repeated failures, until a batch succeeds again."""
        return self._failures < _FAILURES

    def warm_up(self) -> None:
        """Encode once; raises what the model raises."""
        self._probe = self._encoder.tokenize([_PROBE])
        self._encoder.forward(self._probe)

    def probe(self) -> None:
        """See whether the model works again."""
        with suppress(Exception):  # counted already
            self._forward(self._probe)

    def run(self, batch: list[Entry]) -> None:
        """Encode a batch, and settle the requests that are whole with it, or that it fails."""
        now = time.monotonic()
        for entry in batch:  # uploads and idle work may wait for seconds, and mislead about turns
            if entry.request.priority.lane == "critical":
                self._metrics.stage_seconds.labels("queue").observe(now - entry.request.since)
        try:
            self._encode(batch)
        except Exception as error:
            if len(batch) == 1:
                fail(batch[0].request, error)
            else:
                self._run_one_by_one(batch)

    def _run_one_by_one(self, batch: list[Entry]) -> None:
        """Encode each alone, so that one text cannot fail its company."""
        for entry in batch:
            if not entry.request.gone:
                try:
                    self._encode([entry])
                except Exception as error:
                    fail(entry.request, error)

    def _encode(self, batch: list[Entry]) -> None:
        vectors = self._forward([entry.tokens for entry in batch])
        for entry, vector in zip(batch, vectors, strict=True):
            request = entry.request
            request.vectors[entry.place] = vector
            request.encoded += 1
            role = request.items[entry.place].role
            self._metrics.encoded_texts.labels(role, request.priority.lane).inc()
            if request.encoded == len(request.items):
                settle(request, request.vectors)

    def _forward(self, tokens: list[list[int]]) -> Float32:
        try:
            with self._metrics.stage("encode"):
                vectors = self._encoder.forward(tokens)
            _check(vectors, (len(tokens), self._encoder.dimension))
        except Exception:
            self._failures += 1
            self._metrics.batch_failures.inc()
            raise
        self._failures = 0
        self._metrics.batch_texts.observe(len(tokens))
        self._metrics.batch_tokens.observe(len(tokens) * max(map(len, tokens)))
        return vectors


def fail(request: EncodingRequest, error: Exception) -> None:
    """Log an error, and tell it to who waits for the request."""
    _log.error("the encoder failed", exc_info=error, extra={"request_id": request.id})
    request.failed = True
    settle(request, EncoderFailed("the model failed on a text of this request"))


def settle(request: EncodingRequest, result: Float32 | ServiceError) -> None:
    """Answer a request from another thread, unless nobody waits any more."""
    answer: asyncio.Future[Float32] = request.answer

    def answer_it() -> None:
        if answer.done():
            return
        if isinstance(result, ServiceError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    with suppress(RuntimeError):  # the loop is closed: nobody waits
        answer.get_loop().call_soon_threadsafe(answer_it)


def _check(vectors: Float32, shape: tuple[int, int]) -> None:
    if vectors.shape != shape:
        raise ValueError(f"the model gave vectors of shape {vectors.shape}, not {shape}")
    if not np.isfinite(vectors).all():  # as float16 can overflow
        raise FloatingPointError("the model gave a vector that is not finite")

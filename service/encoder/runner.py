"""Runs batches on the model; an error fails only the request whose text caused it."""

import asyncio
import logging
import time
from collections.abc import Sized
from contextlib import suppress

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.roles import Role, RoleText
from turnwise.service.encoder.batcher import Batch, EncodingRequest
from turnwise.service.encoder.model import Model, TextError
from turnwise.service.errors import EncoderFailed, EncoderUnavailable, ServiceError
from turnwise.service.observe.metrics import ANY_ROLE, Metrics
from turnwise.service.observe.tracing import add_past_span, exemplar, shared_span

_MAX_FAILURES = 3
_TRIAL = RoleText("Hello", Role.AFTER)

_log = logging.getLogger("turnwise.encoder")


class BatchRunner:
    """Runs one batch at a time, and records whether the encoder works."""

    def __init__(self, encoder: Model, metrics: Metrics) -> None:
        self._encoder = encoder
        self._metrics = metrics
        self._failures = 0
        self._trial: list[Sized] = []

    @property
    def healthy(self) -> bool:
        """False after repeated failures, until a batch succeeds again."""
        return self._failures < _MAX_FAILURES

    @property
    def failing(self) -> bool:
        """Whether the last batch failed."""
        return self._failures > 0

    def warm_up(self) -> None:
        """Encode one text; raises the model's errors."""
        self._trial = [*self._encoder.tokenize([_TRIAL])]
        self._encoder.forward(self._trial)

    def try_model(self) -> None:
        """Run the model on one text, to find out whether it works again."""
        with suppress(Exception):  # `_encode_tokens` counts it
            self._encode_tokens(self._trial)

    def run(self, batch: Batch) -> None:
        """Encode a batch, and answer the requests that it completes or fails."""
        now = time.monotonic()
        for request in _list_requests(batch):
            if not request.encoded:  # its first batch
                self._record_wait(request, now - request.queued_at)
        try:
            self._encode(batch)
        except EncoderUnavailable as error:  # no fault of a text: each alone would fail as well
            for request in _list_requests(batch):
                fail(request, error)
        except Exception as error:
            if len(batch) == 1:
                self._fail_text(batch[0].request, error)
            else:
                self._run_one_by_one(batch)

    def _record_wait(self, request: EncodingRequest, seconds: float) -> None:
        add_past_span("queue", request.span, seconds)
        if request.priority.lane == "critical":  # others may wait for seconds
            self._metrics.stage_seconds.labels("queue").observe(seconds, exemplar(request.span))

    def _run_one_by_one(self, batch: Batch) -> None:
        """Encode each text alone, so that one cannot fail the others."""
        for text in batch:
            if not text.request.abandoned:
                try:
                    self._encode([text])
                except Exception as error:
                    self._fail_text(text.request, error)

    def _fail_text(self, request: EncodingRequest, error: Exception) -> None:
        fail(request, error)
        if isinstance(error, TextError):
            self.try_model()

    def _encode(self, batch: Batch) -> None:
        first = batch[0].request
        tokens = [text.tokens for text in batch]
        attributes = {
            "turnwise.lane": first.priority.lane,
            "turnwise.batch.texts": len(tokens),
            "turnwise.batch.tokens": _count_padded(tokens),
        }
        with shared_span("batch", [each.span for each in _list_requests(batch)], attributes):
            rows = self._compute_rows(first.model, tokens)
        for text, row in zip(batch, rows, strict=True):
            request = text.request
            request.vectors[text.index] = row
            request.encoded += 1
            item = request.texts[text.index]
            if request.model is self._encoder:
                role = item.role if isinstance(item, RoleText) else ANY_ROLE
                self._metrics.encoded_texts.labels(role, request.priority.lane).inc()
            if request.encoded == len(request.texts):
                settle(request, request.vectors)

    def _compute_rows(self, model: Model, tokens: list[Sized]) -> Float32:
        """Run a batch; those of a re-ranker do not count for the encoder's metrics and health."""
        if model is self._encoder:
            return self._encode_tokens(tokens)
        return _check_vectors(model.forward(tokens), (len(tokens), model.dimension))

    def _encode_tokens(self, tokens: list[Sized]) -> Float32:
        try:
            with self._metrics.stage("encode"):
                vectors = self._encoder.forward(tokens)
            _check_vectors(vectors, (len(tokens), self._encoder.dimension))
        except TextError:
            if tokens is self._trial:  # it rejects every text
                self._failures += 1
            raise
        except Exception:
            self._failures += 1
            self._metrics.batch_failures.inc()
            raise
        self._failures = 0
        self._metrics.batch_texts.observe(len(tokens))
        self._metrics.batch_tokens.observe(_count_padded(tokens))
        return vectors


def fail(request: EncodingRequest, error: Exception) -> None:
    """Log an error, and answer the request with it."""
    request.failed = True
    # A copy, because the other thread may have entered the context.
    settle(request, request.context.copy().run(_log_failure, request, error))


def _log_failure(request: EncodingRequest, error: Exception) -> ServiceError:
    """Log an error; return the one that answers the request."""
    if isinstance(error, EncoderUnavailable):
        _log.warning("the remote encoder failed: %s", error)
        return error
    encodes = request.priority.lane != "rerank"
    _log.error("the encoder failed" if encodes else "the re-ranker failed", exc_info=error)
    return EncoderFailed("the model failed on a text of this request")


def settle(request: EncodingRequest, result: Float32 | ServiceError) -> None:
    """Answer a request from another thread, unless it has an answer or is cancelled."""
    answer: asyncio.Future[Float32] = request.answer

    def set_answer() -> None:
        if answer.done():
            return
        if isinstance(result, ServiceError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    with suppress(RuntimeError):  # the loop is closed
        answer.get_loop().call_soon_threadsafe(set_answer)


def _list_requests(batch: Batch) -> list[EncodingRequest]:
    """Return the requests whose texts a batch has, that of its oldest text first."""
    return list(dict.fromkeys(text.request for text in batch))


def _count_padded(tokens: list[Sized]) -> int:
    """Return the number of tokens of a batch, padding included."""
    return len(tokens) * max(map(len, tokens))


def _check_vectors(vectors: Float32, shape: tuple[int, int]) -> Float32:
    if vectors.shape != shape:
        raise ValueError(f"the model returned vectors of shape {vectors.shape}, not {shape}")
    if not np.isfinite(vectors).all():  # float16 can overflow
        raise FloatingPointError("the model returned a vector that is not finite")
    return vectors

"""An encoder behind the embeddings API of another process: the encoder tier."""

import logging
import time
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.card import CARD, TOLERANCE, TOLERANCE_OF_8_BITS
from turnwise.models.encoder.stated import ReadText, StatedEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import RoleText
from turnwise.models.texts import write_count
from turnwise.service.encoder.model import REMOTE, TextError
from turnwise.service.errors import EncoderUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.tracing import span, trace_headers
from turnwise.service.urls import show_url
from turnwise.service.wire.embeddings import MOST_CHARACTERS

_CONNECT_SECONDS = 1.0
_KEPT_SECONDS = 60.0
"""Seconds that an idle connection stays open: an encoder-only service keeps it for 75."""
_TEXT_REJECTED = {400, 413, 422}
"""Statuses with which an endpoint rejects a text."""
_RETRIED_STATUSES = {429, *range(500, 600)}

_log = logging.getLogger("turnwise.encoder")


class _WrongEndpoint(EncoderUnavailable):
    """The endpoint does not serve this model, so trying again cannot help."""


class _Answer(NamedTuple):
    """The answer of an endpoint to a call."""

    vectors: Float32
    """(n, d) unit rows."""
    has_fingerprint: bool
    """Whether the endpoint names the model's fingerprint, as an encoder tier of Turnwise does."""


class RemoteEncoder(StatedEncoder):
    """Encodes texts by calls of an OpenAI-compatible endpoint `/v1/embeddings`.

    It reads the card, the tokenizer and the heads of a model, but no weights, and needs no torch.
    Texts are sent with their prefixes, long utterances without their middle. A call that fails to
    connect, or gets 429 or 5xx, is tried twice more within its time. The endpoint must know the
    model by its name.
    """

    device = REMOTE
    threads = None
    runtime = "embeddings over HTTP"

    def __init__(
        self,
        model: str | Path,
        url: str,
        metrics: Metrics,
        *,
        key: str | None,
        timeout: float,
        pauses: Sequence[float] = (0.05, 0.2),
        start_pause: float = 1.0,
    ) -> None:
        """Read the card, the tokenizer and the heads; call nothing yet.

        Args:
            model: A folder with a card, or a hub name.
            url: The endpoint.
            metrics: Counts the calls.
            key: Sent as bearer token, if there is one.
            timeout: Seconds of a call with its retries.
            pauses: Seconds before the second and the third try of a call.
            start_pause: Seconds between the tries of `verify`.

        Raises:
            ModelError: A file cannot be read, or the card does not describe the encoder.
        """
        super().__init__(model)
        try:
            if self._facts.max_tokens is None:
                raise ValueError(f"{CARD} states no limit of tokens")  # noqa: TRY301
            self.load_tokenizer(self._facts.max_tokens)
        except Exception as error:  # the tokenizer's library raises plain exceptions
            raise ModelError(
                f"model '{model}': {error}; write the folder again with `turnwise card`"
            ) from error
        self._url = url
        self._shown_url = show_url(url)
        self._timeout = timeout
        self._metrics = metrics
        self._pauses = pauses
        self._start_pause = start_pause
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        kept = httpx.Limits(keepalive_expiry=_KEPT_SECONDS)
        # With a transport of its own, the client ignores the variables of proxies.
        self._http = httpx.Client(headers=headers, transport=httpx.HTTPTransport(limits=kept))

    def close(self) -> None:
        """Close the kept connections."""
        self._http.close()

    def verify(self, patience: float = 0.0) -> None:
        """Check that the endpoint encodes the card's probes as the card states.

        An encoder tier of Turnwise may compute in 8 bits, so its vectors may differ more. It checks
        them itself when it starts, and its fingerprint identifies the model.

        Args:
            patience: Seconds to wait for an endpoint that does not answer yet.

        Raises:
            ModelError: The endpoint has another model, or cannot be reached.
        """
        end = time.monotonic() + patience
        texts = [probe.text for probe in self._facts.probes]
        while True:
            try:
                answer = self._request_embeddings(texts)
                break
            except (_WrongEndpoint, ValueError) as error:
                raise ModelError(f"remote encoder {self._shown_url}: {error}") from None
            except EncoderUnavailable as error:
                if time.monotonic() >= end:
                    raise ModelError(f"remote encoder {self._shown_url}: {error}") from None
                _log.info("waiting for the remote encoder %s: %s", self._shown_url, error)
                time.sleep(self._start_pause)
        tolerance = TOLERANCE_OF_8_BITS if answer.has_fingerprint else TOLERANCE
        vectors = answer.vectors
        if vectors.shape[1] != self.dimension or self._facts.differs(vectors, tolerance):
            raise ModelError(
                f"remote encoder {self._shown_url}: its vectors are not those of model "
                f"'{self.name}'; it has another model, pooling or limit of tokens"
            )

    def tokenize(self, items: Sequence[RoleText]) -> list[ReadText]:
        """Return the texts as they are sent, with their word pieces."""
        return self.read(items)

    def forward(self, tokens: list[ReadText]) -> Float32:
        """Return the (n, d) unit rows of n ≥ 1 texts.

        Raises:
            EncoderUnavailable: The endpoint cannot be reached, or fails.
            TextError: The endpoint rejects a text.
        """
        return self._request_embeddings([read.text[:MOST_CHARACTERS] for read in tokens]).vectors

    def _request_embeddings(self, texts: list[str]) -> _Answer:
        body = {"model": self.name, "input": texts, "encoding_format": "base64"}
        try:
            answer = self._read_answer(self._call(body), len(texts))
        except Exception:
            self._metrics.encoder_calls.labels("failed").inc()
            raise
        self._metrics.encoder_calls.labels("ok").inc()
        return answer

    def _call(self, body: dict[str, Any]) -> httpx.Response:
        """Return the response to a call, tried again while its time lasts."""
        end = time.monotonic() + self._timeout
        pauses = iter(self._pauses)
        while True:
            left = max(end - time.monotonic(), 0.0)  # a pause may last longer than it should
            limits = httpx.Timeout(left, connect=min(left, _CONNECT_SECONDS))
            try:
                response = self._post(body, limits)
            except httpx.TransportError as error:
                failure = str(error) or type(error).__name__
            else:
                if response.status_code not in _RETRIED_STATUSES:
                    return response
                failure = f"status {response.status_code}"
            pause = next(pauses, None)
            if pause is None or time.monotonic() + pause >= end:
                raise EncoderUnavailable(f"the remote encoder is unavailable: {failure}")
            self._metrics.encoder_calls.labels("retried").inc()
            time.sleep(pause)

    def _post(self, body: dict[str, Any], limits: httpx.Timeout) -> httpx.Response:
        with span("POST /v1/embeddings", calls="encoder") as call:
            headers = trace_headers()
            response = self._http.post(self._url, json=body, timeout=limits, headers=headers)
            call.set_attribute("http.response.status_code", response.status_code)
        return response

    def _read_answer(self, response: httpx.Response, count: int) -> _Answer:
        """Return the answer in a response to a call with `count` texts."""
        status = response.status_code
        if status in _TEXT_REJECTED:
            raise TextError(f"the remote encoder rejects a text: {response.text[:200]}")
        if status != httpx.codes.OK:
            raise _WrongEndpoint(f"status {status}: {response.text[:200]}")
        try:
            answer = response.json()
            data = sorted(answer["data"], key=lambda item: item["index"])
            vectors = np.stack([_decode_vector(item["embedding"]) for item in data])
        except (ValueError, KeyError, TypeError):
            raise _WrongEndpoint("it does not answer as /v1/embeddings") from None
        fingerprint = answer.get("fingerprint")
        if fingerprint is not None and fingerprint != self.fingerprint:
            raise _WrongEndpoint(f"it has another model ({fingerprint}, not {self.fingerprint})")
        if len(vectors) != count:
            raise _WrongEndpoint(
                f"it returned {write_count(len(vectors), 'vector')} for "
                f"{write_count(count, 'text')}"
            )
        unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return _Answer(unit, has_fingerprint=fingerprint is not None)


def _decode_vector(embedding: str | list[float]) -> Float32:
    """Return a vector (d,). An endpoint may answer with numbers although base64 was asked for."""
    if isinstance(embedding, str):
        return np.frombuffer(b64decode(embedding), "<f4")
    return np.asarray(embedding, np.float32)

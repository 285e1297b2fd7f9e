"""The encoder tier as a replica sees it, from the answers of an endpoint."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.relay import Relay, relaying
from turnwise.models.card import CARD, read_card
from turnwise.models.encoder.stated import TOKENIZER
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText
from turnwise.service.cli.models.card import card
from turnwise.service.encoder.remote import RemoteEncoder
from turnwise.service.errors import EncoderUnavailable
from turnwise.service.observe.metrics import Metrics

BUSY = [httpx.Response(503)] * 3
"""The answers to a call and its two retries."""
TEXT = [RoleText("Hello", Role.AFTER)]

Folder = Callable[[EncoderKind], Path]


@pytest.fixture
def endpoint() -> Iterator[Relay]:
    with relaying() as relay:
        yield relay


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def encoder(
    endpoint: Relay, metrics: Metrics, tiny_encoder_folder: Folder, tmp_path: Path
) -> Iterator[RemoteEncoder]:
    card(str(tiny_encoder_folder(EncoderKind.TRIPLE)), out=tmp_path)
    made = RemoteEncoder(
        tmp_path, endpoint.url, metrics, key=None, timeout=60.0, pauses=(0.0, 0.0), start_pause=0.0
    )
    yield made
    made.close()


def vectors(encoder: UtteranceEncoder, texts: list[str]) -> httpx.Response:
    """The answer of an endpoint with this encoder to texts with their prefixes."""
    rows = encoder.forward(encoder.tokenize(texts)).tolist()
    data = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
    return httpx.Response(200, json={"data": data})


def calls(metrics: Metrics, result: str) -> float | None:
    labels = {"result": result}
    return metrics.registry.get_sample_value("turnwise_encoder_calls_total", labels)


def test_a_replica_waits_for_an_endpoint_that_starts_later(
    encoder: RemoteEncoder,
    endpoint: Relay,
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint.faults.extend(BUSY)
    with pytest.raises(ModelError, match="the remote encoder is unavailable: status 503"):
        encoder.verify()
    facts = read_card(tmp_path).encoder
    assert facts
    probes = [probe.text for probe in facts.probes]
    answer = vectors(tiny_encoder(EncoderKind.TRIPLE), probes)
    endpoint.faults.extend([*BUSY, *BUSY, answer])
    with caplog.at_level(logging.INFO, "turnwise.encoder"):
        encoder.verify(patience=60.0)
    assert len(endpoint.seen) == 10
    waited = [line for line in caplog.messages if line.startswith("waiting for the remote encoder")]
    assert len(waited) == 2


LONG = "good morning " * 1500


@pytest.mark.parametrize("text", [LONG, f"{LONG}good evening?", "a" * 32_000, "Hello"])
@pytest.mark.parametrize("role", [Role.AFTER, Role.SECOND])
def test_an_endpoint_that_keeps_beginnings_reads_what_the_whole_model_reads(
    encoder: RemoteEncoder,
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
    text: str,
    role: Role,
) -> None:
    item = RoleText(text, role, Relation.OTHER)
    whole = tiny_encoder(EncoderKind.TRIPLE)
    (sent,) = encoder.tokenize([item])
    assert whole.tokenize([sent.text]) == whole.tokenize([item]) == [sent.pieces]
    assert len(sent) == len(sent.pieces)
    assert encoder.is_too_long(item) == whole.is_too_long(item)


@pytest.mark.parametrize("file", [CARD, TOKENIZER])
def test_a_folder_of_an_earlier_version_is_to_be_written_again(
    encoder: RemoteEncoder,  # noqa: ARG001 - writes the folder
    tmp_path: Path,
    file: str,
) -> None:
    if file == CARD:
        fields = json.loads((tmp_path / CARD).read_text())
        del fields["encoder"]["max_tokens"]
        (tmp_path / CARD).write_text(json.dumps(fields))
    else:
        (tmp_path / file).unlink()
    with pytest.raises(ModelError, match=f"{file}.*write the folder again with `turnwise card`"):
        RemoteEncoder(tmp_path, "http://127.0.0.1:9", Metrics(), key=None, timeout=1.0)


def test_vectors_that_are_too_many_are_none(
    encoder: RemoteEncoder,
    endpoint: Relay,
    metrics: Metrics,
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
) -> None:
    tokens = encoder.tokenize(TEXT)
    tiny = tiny_encoder(EncoderKind.TRIPLE)
    endpoint.faults.extend(vectors(tiny, ["[AFTER] Hello"] * count) for count in (2, 1))
    with pytest.raises(EncoderUnavailable, match="it returned 2 vectors for 1 text"):
        encoder.forward(tokens)
    assert (calls(metrics, "failed"), calls(metrics, "ok")) == (1, 0)
    assert encoder.forward(tokens) == pytest.approx(tiny.encode(["Hello"], Role.AFTER), abs=1e-5)
    assert calls(metrics, "ok") == 1


def test_a_call_whose_time_is_over_finds_no_encoder(
    encoder: RemoteEncoder,  # noqa: ARG001 - writes the card
    endpoint: Relay,
    tmp_path: Path,
) -> None:
    late = RemoteEncoder(tmp_path, endpoint.url, Metrics(), key=None, timeout=0.0)
    with pytest.raises(EncoderUnavailable):
        late.forward(late.tokenize(TEXT))
    late.close()


def test_a_tier_is_never_called_through_a_proxy(
    encoder: RemoteEncoder,  # noqa: ARG001 - writes the card
    endpoint: Relay,
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    proxied = RemoteEncoder(tmp_path, endpoint.url, Metrics(), key=None, timeout=60.0)
    endpoint.faults.append(vectors(tiny_encoder(EncoderKind.TRIPLE), ["[AFTER] Hello"]))
    assert proxied.forward(proxied.tokenize(TEXT)).shape == (1, proxied.dimension)
    proxied.close()

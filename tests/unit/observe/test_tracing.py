import os
import sys
import threading
from collections.abc import Callable
from subprocess import run
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    INVALID_SPAN,
    NonRecordingSpan,
    SpanContext,
    format_trace_id,
    use_span,
)

from tests.support.relay import relaying
from tests.support.waiting import PATIENCE
from turnwise.models.errors import TurnwiseError
from turnwise.service.api.http.middleware import Observation
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.observe.tracing import (
    end_tracing,
    shared_span,
    telemetry,
    trace_endpoint,
    trace_headers,
)


def app_of(provider: TracerProvider) -> FastAPI:
    config = telemetry(enabled=False)
    app = FastAPI(telemetry={**config, "tracing": True, "tracer_provider": provider})

    @app.get("/sessions/{session_id}")
    async def session(session_id: str) -> str:
        with Timings(Metrics(), "encode").stage("encode"):
            return session_id

    return app


async def get(app: FastAPI) -> None:
    async with AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/sessions/s")).status_code == 200


@pytest.mark.anyio
async def test_the_access_line_and_the_bucket_name_the_trace(
    provider: TracerProvider,
    spans: InMemorySpanExporter,
    log_lines: Callable[[], list[dict[str, Any]]],
) -> None:
    app = app_of(provider)
    metrics = Metrics()
    app.add_middleware(Observation, metrics=metrics)
    await get(app)
    *_, request = spans.get_finished_spans()
    trace_id = format_trace_id(request.context.trace_id)
    assert [line["trace_id"] for line in log_lines()] == [trace_id]
    (family,) = metrics.request_seconds.collect()
    (exemplar,) = [sample.exemplar for sample in family.samples if sample.exemplar]
    assert exemplar.labels == {"trace_id": trace_id}


def test_failures_are_named_by_their_type_and_quote_no_utterances(
    provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    request = provider.get_tracer("test").start_span("request")
    stage = Timings(Metrics(), "encode").stage("encode")
    shared = shared_span("batch", [request])
    with pytest.raises(ValueError, match="secret"), use_span(request), stage, shared:
        raise ValueError("secret")
    batch, encode = spans.get_finished_spans()
    for failed in (batch, encode):
        assert failed.status.is_ok is False
        assert (failed.attributes or {})["error.type"] == "ValueError"
        assert (failed.events, failed.status.description) == ((), None)


def test_a_call_says_that_its_request_is_not_sampled(spans: InMemorySpanExporter) -> None:
    unsampled = NonRecordingSpan(SpanContext(1, 1, is_remote=False))
    with shared_span("batch", [INVALID_SPAN, unsampled]):
        assert trace_headers()["traceparent"].endswith("-00")
    with shared_span("batch", [INVALID_SPAN]):
        assert trace_headers() == {}
    assert spans.get_finished_spans() == ()


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("OTEL_RESOURCE_ATTRIBUTES", "zone=eu", "turnwise"),
        ("OTEL_RESOURCE_ATTRIBUTES", "zone=eu,service.name=shop", "shop"),
        ("OTEL_SERVICE_NAME", "shop", "shop"),
    ],
)
def test_spans_are_sent_to_the_collector_of_the_variables_by_the_service_s_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, name: str
) -> None:
    made: list[TracerProvider] = []
    monkeypatch.setattr(trace, "set_tracer_provider", made.append)  # a process keeps its first
    monkeypatch.setenv(variable, value)
    with relaying() as relay:
        relay.faults.append(httpx.Response(200))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", relay.url)
        assert telemetry(enabled=True)["tracing"]
        (provider,) = made
        provider.get_tracer("test").start_span("turn").end()
        provider.shutdown()
    assert relay.seen == ["POST /v1/traces"]
    assert provider.resource.attributes["service.name"] == name


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, "http://localhost:4318/v1/traces"),
        ({"ENDPOINT": "", "TRACES_ENDPOINT": ""}, "http://localhost:4318/v1/traces"),
        ({"ENDPOINT": "http://collector:1/"}, "http://collector:1/v1/traces"),
        ({"ENDPOINT": "http://a:1", "TRACES_ENDPOINT": "http://b:2/x"}, "http://b:2/x"),
    ],
)
def test_the_url_of_traces_is_that_of_the_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    assert trace_endpoint() == url


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_PROPAGATORS", "b3"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:port"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector/v1/traces"),
    ],
)
def test_a_variable_that_cannot_be_obeyed_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setattr(trace, "set_tracer_provider", lambda _: None)
    monkeypatch.setenv(variable, value)
    with pytest.raises(TurnwiseError, match=rf"{variable}.*{value}"):
        telemetry(enabled=True)


def test_a_key_in_a_malformed_header_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer secret")
    with pytest.raises(TurnwiseError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        telemetry(enabled=True)
    assert "secret" not in str(caught.value)


def test_no_spans_are_sent_without_an_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TracerProvider] = []
    monkeypatch.setattr(trace, "set_tracer_provider", made.append)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with relaying() as relay:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", relay.url)
        telemetry(enabled=True)
        made[0].get_tracer("test").start_span("turn").end()
        made[0].shutdown()
    assert relay.seen == []


def test_propagators_are_not_read_without_tracing() -> None:
    modules = "turnwise.service.app.server, turnwise.service.cli.doctor.examine"
    code = f"import os, {modules}; print(os.environ['OTEL_PROPAGATORS'])"
    environment = os.environ | {"OTEL_PROPAGATORS": "b3"}
    command = [sys.executable, "-c", code]
    ended = run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "b3\n"


def test_the_service_does_not_wait_long_for_an_absent_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()
    sent: list[bool] = []
    provider = SimpleNamespace(shutdown=lambda: sent.append(answers.wait(PATIENCE)))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    end_tracing()
    assert not sent
    answers.set()

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id

from turnwise.models.errors import TurnwiseError
from turnwise.service.api.middleware import Observation
from turnwise.service.observe import tracing
from turnwise.service.observe.logs import JsonFormatter
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.observe.tracing import telemetry


@pytest.fixture
def provider() -> TracerProvider:
    return TracerProvider(shutdown_on_exit=False)


@pytest.fixture
def spans(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def app_of(provider: TracerProvider, *, enabled: bool) -> FastAPI:
    config = telemetry(enabled=False)
    app = FastAPI(telemetry={**config, "tracing": enabled, "tracer_provider": provider})

    @app.get("/sessions/{session_id}")
    async def session(session_id: str) -> str:
        with Timings(Metrics(), "encode").stage("encode"):
            return session_id

    return app


async def get(app: FastAPI) -> None:
    async with AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/sessions/s")).status_code == 200


@pytest.mark.anyio
async def test_the_access_line_names_the_trace(
    provider: TracerProvider, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    app, stream = app_of(provider, enabled=True), io.StringIO()
    app.add_middleware(Observation, metrics=Metrics())
    caplog.set_level(logging.INFO, "turnwise.access")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(text=False))
    access = logging.getLogger("turnwise.access")
    access.addHandler(handler)
    await get(app)
    access.removeHandler(handler)
    *_, request = spans.get_finished_spans()
    assert json.loads(stream.getvalue())["trace_id"] == format_trace_id(request.context.trace_id)


@pytest.mark.anyio
async def test_stage_is_a_child_of_its_request(
    provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    await get(app_of(provider, enabled=True))
    stage, request = spans.get_finished_spans()
    assert (stage.name, request.name) == ("encode", "GET /sessions/{session_id}")
    assert stage.parent
    assert stage.parent.span_id == request.context.span_id
    assert (request.attributes or {})["http.response.status_code"] == 200


@pytest.mark.anyio
async def test_requests_are_not_traced_unless_asked_for(
    provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    await get(app_of(provider, enabled=False))
    assert spans.get_finished_spans() == ()


def test_a_failed_stage_does_not_quote_utterances(
    provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    request = provider.get_tracer("test").start_as_current_span("request")
    stage = Timings(Metrics(), "encode").stage("encode")
    with pytest.raises(ValueError, match="secret"), request, stage:
        raise ValueError("secret")
    span, _ = spans.get_finished_spans()
    assert span.events == ()
    assert "secret" not in (span.status.description or "")


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TurnwiseError, match=r"turnwise\[tracing\]"):
        telemetry(enabled=True)

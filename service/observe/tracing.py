"""OpenTelemetry traces: FastAPI opens a span per request, with a child for each stage.

The API of OpenTelemetry comes with FastAPI and does nothing without a provider. The provider and
its exporter come with the extra `tracing`; `OTEL_*` variables configure them.
"""

import os
from contextlib import AbstractContextManager, nullcontext

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace

from turnwise.models.errors import TurnwiseError

_tracer = trace.get_tracer("turnwise")


def span(name: str) -> AbstractContextManager[object]:
    """Return a span for a part of the current request; nothing if that is not traced."""
    if not trace.get_current_span().is_recording():
        return nullcontext()
    # An error may quote utterances.
    return _tracer.start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    )


def telemetry(*, enabled: bool) -> TelemetryConfig:
    """Return the configuration of FastAPI's telemetry: traces of requests if enabled, only.

    Raises:
        TurnwiseError: Tracing is enabled, but the extra `tracing` is not installed.
    """
    if enabled:
        _export_spans()
    return TelemetryConfig(
        tracing=enabled, metrics=False, logs=False, operation_spans=False, auto_configure=False
    )


def _export_spans() -> None:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise TurnwiseError(
            "TURNWISE_TRACING needs OpenTelemetry: pip install 'turnwise[tracing]'"
        ) from None
    name = os.environ.get("OTEL_SERVICE_NAME", "turnwise")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

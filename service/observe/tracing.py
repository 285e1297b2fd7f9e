"""OpenTelemetry traces: FastAPI spans each request, and each stage of an answer is a child of it.

The API of OpenTelemetry comes with FastAPI, and does nothing until there is a provider; the
provider and its exporter come with the extra `tracing`, and are configured by `OTEL_*`.
"""

import os

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace

from turnwise.models.errors import TurnwiseError

tracer = trace.get_tracer("turnwise")


def telemetry(*, enabled: bool) -> TelemetryConfig:
    """Return what FastAPI is to trace: requests, where that is asked for, and nothing else.

    Raises:
        TurnwiseError: It is asked for, but the extra is not installed.
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

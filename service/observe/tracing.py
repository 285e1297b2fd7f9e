"""OpenTelemetry traces: FastAPI opens a span for each request, and the parts add their own to it.

A request that is not traced costs a look at the current span. The API of OpenTelemetry does
nothing without a provider. `OTEL_*` variables configure the provider and its exporter.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, StatusCode

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

_tracer = trace.get_tracer("turnwise")


def span(name: str, *, calls: str = "") -> AbstractContextManager[Span]:
    """Return a span for a part of the current request; it does nothing if that is not traced.

    Args:
        name: Its name.
        calls: The database or the service that this part calls, if any.
    """
    if not trace.get_current_span().is_recording():
        return nullcontext(trace.INVALID_SPAN)
    return _current_span(name, calls)


@contextmanager
def _current_span(name: str, calls: str) -> Iterator[Span]:
    kind = SpanKind.CLIENT if calls else SpanKind.INTERNAL
    with _tracer.start_as_current_span(
        f"{calls} {name}" if calls else name,
        kind=kind,
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield current
        except Exception as error:
            _fail(current, error)
            raise


@contextmanager
def shared_span(
    name: str, parents: Sequence[Span], attributes: Mapping[str, str | int] | None = None
) -> Iterator[None]:
    """Trace work of this thread that several requests share.

    Each request that is traced gets a span. The span of the first one is current meanwhile; it and
    the others link to each other.

    Args:
        name: Name of the spans.
        parents: The span of each request.
        attributes: Attributes of the spans.
    """
    shares = [
        _tracer.start_span(name, trace.set_span_in_context(parent), attributes=attributes)
        for parent in parents
        if parent.is_recording()
    ]
    if not shares:
        unsampled = next(filter(_is_unsampled, parents), None)
        with trace.use_span(unsampled) if unsampled else nullcontext():
            yield  # a call from here says that the request is not sampled
        return
    first, *others = shares
    for other in others:
        first.add_link(other.get_span_context())
        other.add_link(first.get_span_context())
    try:
        with trace.use_span(first, record_exception=False, set_status_on_exception=False):
            yield
    except Exception as error:
        for share in shares:
            _fail(share, error)
        raise
    finally:
        for share in shares:
            share.end()


def _is_unsampled(parent: Span) -> bool:
    context = parent.get_span_context()
    return context.is_valid and not context.trace_flags.sampled


def past_span(name: str, parent: Span, seconds: float) -> None:
    """Add a span for the seconds until now, if the request of the parent is traced."""
    if parent.is_recording():
        begin = time.time_ns() - int(seconds * 1e9)
        _tracer.start_span(name, trace.set_span_in_context(parent), start_time=begin).end()


def exemplar(of: Span | None = None) -> dict[str, str] | None:
    """Return the labels that lead from a bucket of a histogram to a trace.

    Args:
        of: A span of the request; by default the current one.

    Returns:
        None if the request is not traced.
    """
    context = (of or trace.get_current_span()).get_span_context()
    if not context.trace_flags.sampled:
        return None
    return {"trace_id": trace.format_trace_id(context.trace_id)}


def trace_id() -> str | None:
    """Return the id of the trace that this context belongs to, as trace viewers write it."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None


def trace_headers() -> dict[str, str]:
    """Return the HTTP headers by which another service continues the current trace."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def _fail(failed: Span, error: Exception) -> None:
    """Mark a span as failed by the type of the error, whose message may quote utterances."""
    failed.set_attribute("error.type", type(error).__qualname__)
    failed.set_status(StatusCode.ERROR)


def telemetry(*, enabled: bool) -> "TelemetryConfig":
    """Return the configuration of FastAPI's telemetry: traces of requests if enabled, only."""
    if enabled:
        _export_spans()
    return {
        "tracing": enabled,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
    }


def trace_endpoint() -> str:
    """Return the URL that traces are sent to."""
    if of_traces := os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return of_traces
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    return f"{base.removesuffix('/')}/v1/traces"


def _export_spans() -> None:
    # Imported here because they load slowly, and most services send no traces.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create({"service.name": "turnwise"})
    provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

"""OpenTelemetry traces: FastAPI opens a span for each request, and the parts add their own to it.

A request that is not traced costs a look at the current span. The API of OpenTelemetry does
nothing without a provider. `OTEL_*` variables configure the provider and its exporter.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

# OpenTelemetry reads this variable when it is imported, and an unknown name in it would end the
# process even without tracing. So it is imported without, and tracing reads the variable itself.
_PROPAGATORS = os.environ.pop("OTEL_PROPAGATORS", "")
from opentelemetry import propagate, trace  # noqa: E402
from opentelemetry.propagators.composite import CompositePropagator  # noqa: E402
from opentelemetry.trace import Span, SpanKind, StatusCode  # noqa: E402

if _PROPAGATORS:
    os.environ["OTEL_PROPAGATORS"] = _PROPAGATORS

from turnwise.models.errors import TurnwiseError  # noqa: E402
from turnwise.service.urls import show_url  # noqa: E402

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig
    from opentelemetry.propagators.textmap import TextMapPropagator

_HEADER = re.compile(r"[ \t]*[\w!#$%&'*+.^`|~-]+[ \t]*=[\x20-\x7e\t]*", re.ASCII)
_LAST_SPANS_SECONDS = 1.0
"""Longest wait for a collector when the service stops."""

tracer = trace.get_tracer("turnwise")


def span(name: str, *, calls: str = "") -> AbstractContextManager[Span]:
    """Return a span for a part of the current request; it does nothing if that is not traced.

    Args:
        name: Its name.
        calls: The database or the service that this part calls, if any.
    """
    if not trace.get_current_span().is_recording():
        return nullcontext(trace.INVALID_SPAN)
    return _open_span(name, calls)


@contextmanager
def _open_span(name: str, calls: str) -> Iterator[Span]:
    kind = SpanKind.CLIENT if calls else SpanKind.INTERNAL
    with tracer.start_as_current_span(
        f"{calls} {name}" if calls else name,
        kind=kind,
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield current
        except Exception as error:
            _mark_failed(current, error)
            raise


@contextmanager
def shared_span(
    name: str, parents: Sequence[Span], attributes: Mapping[str, str | int] | None = None
) -> Iterator[None]:
    """Trace work of this thread that several requests share.

    Each traced request gets a span. The first one is the current span during the work. It and each
    of the others link to each other.

    Args:
        name: Name of the spans.
        parents: The span of each request.
        attributes: Attributes of the spans.
    """
    shares = [
        tracer.start_span(name, trace.set_span_in_context(parent), attributes=attributes)
        for parent in parents
        if parent.is_recording()
    ]
    if not shares:
        unsampled = next(filter(_is_unsampled, parents), None)
        with trace.use_span(unsampled) if unsampled else nullcontext():
            yield  # calls of other services then say that the request is not sampled
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
            _mark_failed(share, error)
        raise
    finally:
        for share in shares:
            share.end()


def _is_unsampled(parent: Span) -> bool:
    context = parent.get_span_context()
    return context.is_valid and not context.trace_flags.sampled


def add_past_span(name: str, parent: Span, seconds: float) -> None:
    """Add a span for the seconds until now, if the request of the parent is traced."""
    if parent.is_recording():
        begin = time.time_ns() - int(seconds * 1e9)
        tracer.start_span(name, trace.set_span_in_context(parent), start_time=begin).end()


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


def _mark_failed(failed: Span, error: Exception) -> None:
    """Mark a span as failed with the error's type; its message may quote utterances."""
    failed.set_attribute("error.type", type(error).__qualname__)
    failed.set_status(StatusCode.ERROR)


def telemetry(*, enabled: bool) -> "TelemetryConfig":
    """Return the configuration of FastAPI's telemetry: traces if enabled, and nothing else."""
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
    """Return the URL that traces are sent to.

    Raises:
        TurnwiseError: The variable that names it has no URL of HTTP.
    """
    name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    url = os.environ.get(name)
    if not url:
        name = "OTEL_EXPORTER_OTLP_ENDPOINT"
        base = os.environ.get(name) or "http://localhost:4318"
        url = f"{base.removesuffix('/')}/v1/traces"
    if not _is_http(url):
        shown = show_url(os.environ[name])
        raise TurnwiseError(f"{name}: '{shown}' is not a URL such as http://collector:4318")
    return url


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or the brackets hold no IPv6 address
        return False


def _export_spans() -> None:
    """Begin to send spans as the `OTEL_*` variables say.

    Raises:
        TurnwiseError: A variable has a value that is not supported.
    """
    # Imported here because they load slowly, and most services send no traces.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    _check_variables()
    propagate.set_global_textmap(_read_propagators(os.environ.get("OTEL_PROPAGATORS", "")))
    resource = Resource.create({"service.name": "turnwise"})
    try:
        provider = TracerProvider(
            resource=resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
        )
        if os.environ.get("OTEL_TRACES_EXPORTER") != "none":
            trace_endpoint()  # the exporter would try a wrong one again and again, and log nothing
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except (ValueError, OSError) as error:  # names the variable
        raise TurnwiseError(f"TURNWISE_TRACING: {error}") from None
    trace.set_tracer_provider(provider)


def _check_variables() -> None:
    """Check that the variables ask for an exporter that Turnwise has.

    Raises:
        TurnwiseError: One of them asks for another one, or is malformed.
    """
    supported = {
        "OTEL_TRACES_EXPORTER": ("otlp", "none"),
        "OTEL_EXPORTER_OTLP_PROTOCOL": ("http/protobuf",),
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": ("http/protobuf",),
    }
    for name, values in supported.items():
        if (value := os.environ.get(name)) and value not in values:
            raise TurnwiseError(f"{name}: '{value}' is not supported; use {' or '.join(values)}")
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        headers = filter(str.strip, os.environ.get(name, "").split(","))
        if not all(_HEADER.fullmatch(header) for header in headers):  # the library logs the key
            raise TurnwiseError(f"{name}: must be NAME=VALUE, percent-encoded, between commas")


def _read_propagators(names: str) -> CompositePropagator:
    """Return the propagators with these names, separated by commas.

    Raises:
        TurnwiseError: There is none with such a name.
    """
    propagators: list[TextMapPropagator] = []
    for name in (part.strip() for part in (names or "tracecontext,baggage").split(",")):
        if name.lower() == "none":
            return CompositePropagator([])
        found = entry_points(group="opentelemetry_propagator", name=name)
        if not found:
            raise TurnwiseError(
                f"OTEL_PROPAGATORS: there is no propagator '{name}'; install its package, or use "
                "tracecontext, baggage or none"
            )
        propagators.append(next(iter(found)).load()())
    return CompositePropagator(propagators)


def end_tracing() -> None:
    """Send the last spans, unless the collector takes longer than a second."""
    shutdown = getattr(trace.get_tracer_provider(), "shutdown", None)
    if shutdown is not None:
        last = Thread(target=shutdown, daemon=True)
        last.start()
        last.join(_LAST_SPANS_SECONDS)

"""Structured logs: one JSON object per line, or plain text on a terminal.

Logs do not quote utterances unless they are configured to: messages contain names and numbers, and
an exception, whose text may quote its input, is written with its type and trace only.
"""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from traceback import format_tb

from turnwise.service.observe.tracing import trace_id

request_id: ContextVar[str] = ContextVar("request_id")
"""Id of the HTTP request in this context, for its log lines."""
namespace: ContextVar[str] = ContextVar("namespace")
"""The namespace that this context works for: in log lines, and for its share of the encoder."""

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def configure_logs(level: str, *, text: bool) -> None:
    """Send all loggers to standard error: Turnwise from `level` on, libraries from warnings on.

    The audit log is complete at any level. A terminal gets plain text instead of JSON.

    Args:
        level: Name of the lowest level to log, such as "info".
        text: Whether exceptions are written with their texts, which may quote utterances.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(text) if sys.stderr.isatty() else JsonFormatter(text))
    least = getattr(logging, level.upper())
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING), force=True)
    logging.getLogger("turnwise").setLevel(least)
    logging.getLogger("turnwise.audit").setLevel(logging.INFO)
    logging.captureWarnings(True)


class _Formatter(logging.Formatter):
    def __init__(self, text: bool) -> None:
        super().__init__()
        self._text = text

    def _failure(self, record: logging.LogRecord) -> str | None:
        """Return the traces of the record's exception and its causes, causes first."""
        error = record.exc_info[1] if record.exc_info else None
        parts: list[str] = []
        while error:
            text = f": {error}" if self._text else ""
            name = type(error).__qualname__
            parts.insert(0, "".join([*format_tb(error.__traceback__), f"{name}{text}"]))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n".join(parts) or None


class JsonFormatter(_Formatter):
    """Formats time (UTC), level, logger, message, ids and extra fields as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        extras = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": request_id.get(None),
            "trace_id": trace_id(),
            "namespace": namespace.get(None),
            **extras,
            "exception": self._failure(record),
        }
        fields = {name: value for name, value in event.items() if value is not None}
        return json.dumps(fields, default=str, ensure_ascii=False)


class PlainFormatter(_Formatter):
    """Formats the time of day and the message, and levels above info."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by the lines of an exception's trace."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        loud = record.levelno > logging.INFO
        level = f"{record.levelname.lower()}: " if loud else ""
        return "\n".join(
            filter(None, (f"{time}  {level}{record.getMessage()}", self._failure(record)))
        )

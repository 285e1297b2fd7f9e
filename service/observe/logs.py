"""Structured logs: one JSON object per line, or plain text on a terminal.

Logs do not quote utterances unless they are configured to: messages contain names and numbers. The
text of an exception may quote its input, so only its type and trace are written.
"""

import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from queue import Full, Queue
from threading import Thread
from time import monotonic, sleep
from traceback import format_tb
from typing import TextIO

from turnwise.service.current_request import namespace, request_id
from turnwise.service.observe.tracing import trace_id
from turnwise.service.urls import hide_secrets

_QUEUED_LINES = 10_000
_FLUSH_SECONDS = 1.0

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def configure_logs(level: str, *, text: bool) -> None:
    """Send all loggers to standard error: Turnwise from `level` on, libraries from warnings on.

    The audit log is complete at any level. A terminal gets plain text, and anything else
    JSON from a thread of its own, so that the service continues if nobody reads the log.

    Args:
        level: Name of the lowest level to log, such as "info".
        text: Whether exceptions are written with their texts, which may quote utterances.
    """
    handler: logging.Handler
    if sys.stderr.isatty():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(PlainFormatter(text))
    else:
        handler = QueueingHandler(sys.stderr)
        handler.setFormatter(JsonFormatter(text))
    least = getattr(logging, level.upper())
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING), force=True)
    logging.getLogger("turnwise").setLevel(least)
    logging.getLogger("turnwise.audit").setLevel(logging.INFO)
    logging.captureWarnings(True)


class QueueingHandler(logging.Handler):
    """Writes lines to a stream in a thread; drops and counts those that do not fit its queue."""

    def __init__(self, stream: TextIO, size: int = _QUEUED_LINES) -> None:
        """Start the thread.

        Args:
            stream: The stream to write to. It may block.
            size: Lines that may wait.
        """
        super().__init__()
        self._stream = stream
        self._lines: Queue[str] = Queue(size)
        self._dropped = 0
        Thread(target=self._write_lines, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line. If lines were dropped before it, say first how many."""
        try:
            if self._dropped:
                what = f"{self._dropped} log lines were dropped, because nobody read the log"
                self._lines.put_nowait(self.format(_make_warning(what, dropped=self._dropped)))
                self._dropped = 0
            self._lines.put_nowait(self._format_any(record))
        except Full:
            self._dropped += 1

    def flush(self) -> None:
        """Wait until the lines are written, at most a second."""
        end = monotonic() + _FLUSH_SECONDS
        while self._lines.unfinished_tasks and monotonic() < end:
            sleep(0.001)

    def _format_any(self, record: logging.LogRecord) -> str:
        """Return the line of a record; a warning if the arguments do not fit its message."""
        try:
            return self.format(record)
        except Exception as error:  # a request must not fail because of a library's line
            what = f"a line of {record.name} cannot be formatted: {type(error).__name__}"
            return self.format(_make_warning(what))

    def _write_lines(self) -> None:
        while True:
            line = self._lines.get()
            with suppress(OSError, ValueError):  # a stream that is closed
                self._stream.write(f"{line}\n")
                self._stream.flush()
            self._lines.task_done()


def _make_warning(message: str, **fields: object) -> logging.LogRecord:
    """Return a warning about the log itself."""
    return logging.makeLogRecord(
        {
            "name": "turnwise.log",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": message,
            **fields,
        }
    )


class _Formatter(logging.Formatter):
    def __init__(self, text: bool) -> None:
        super().__init__()
        self._text = text

    def _format_causes(self, record: logging.LogRecord) -> str | None:
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
            "exception": self._format_causes(record),
        }
        fields = {name: value for name, value in event.items() if value is not None}
        return hide_secrets(json.dumps(fields, default=str, ensure_ascii=False))


class PlainFormatter(_Formatter):
    """Formats the time of day and the message, and levels above info."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by the lines of an exception's trace."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        loud = record.levelno > logging.INFO
        level = f"{record.levelname.lower()}: " if loud else ""
        lines = (f"{time}  {level}{record.getMessage()}", self._format_causes(record))
        return hide_secrets("\n".join(filter(None, lines)))

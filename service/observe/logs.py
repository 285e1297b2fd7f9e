"""Structured logs: a JSON object a line, or plain words where a person watches a terminal.

Nothing here quotes what people said unless that is asked for: the parts log names and numbers, and
of an exception, whose text may quote its input, only the type and the place are written.
"""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from traceback import format_tb
from typing import TextIO

request_id: ContextVar[str] = ContextVar("request_id")
"""The request that is being answered, for every line logged on its way."""

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def configure_logs(level: str, *, text: bool, stream: TextIO | None = None) -> None:
    """Send every logger to one stream: ours from `level` on, those of libraries from warnings on.

    Args:
        level: Name of the least level, such as "info".
        text: Whether lines may quote what people said.
        stream: The standard error where none is given; a terminal gets plain words, not JSON.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainFormatter(text) if stream.isatty() else JsonFormatter(text))
    least = getattr(logging, level.upper())
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING), force=True)
    logging.getLogger("turnwise").setLevel(least)
    logging.captureWarnings(True)


class _Formatter(logging.Formatter):
    def __init__(self, text: bool) -> None:
        super().__init__()
        self._text = text

    def _failure(self, record: logging.LogRecord) -> str | None:
        """Return the trace of the record's exception and of what caused it, the causes first."""
        error = record.exc_info[1] if record.exc_info else None
        parts: list[str] = []
        while error:
            said = f": {error}" if self._text else ""
            name = type(error).__qualname__
            parts.insert(0, "".join([*format_tb(error.__traceback__), f"{name}{said}"]))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n".join(parts) or None


class JsonFormatter(_Formatter):
    """Time (UTC), level, logger, message, the request's id and what the line has besides."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        extras = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": request_id.get(None),
            **extras,
            "exception": self._failure(record),
        }
        said = {name: value for name, value in event.items() if value is not None}
        return json.dumps(said, default=str, ensure_ascii=False)


class PlainFormatter(_Formatter):
    """The time of day and the message; the level where it is more than information."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and those of an exception's trace."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        loud = record.levelno > logging.INFO
        level = f"{record.levelname.lower()}: " if loud else ""
        return "\n".join(
            filter(None, (f"{time}  {level}{record.getMessage()}", self._failure(record)))
        )

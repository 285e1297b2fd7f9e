import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest

from turnwise.service.current_request import request_id
from turnwise.service.observe.logs import JsonFormatter, QueueingHandler, configure_logs

SAID = "my booking number is 4417"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    ours = logging.getLogger("turnwise")
    audit = logging.getLogger("turnwise.audit")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before
    audit.setLevel(logging.NOTSET)
    logging.captureWarnings(False)


def configured(level: str = "info", *, text: bool = False) -> io.StringIO:
    stream = io.StringIO()
    with redirect_stderr(stream):
        configure_logs(level, text=text)
    return stream


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    logging.getLogger().handlers[0].flush()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail() -> None:
    try:
        int(SAID)
    except ValueError as error:
        raise RuntimeError("it went wrong") from error


def log_failure() -> None:
    try:
        fail()
    except RuntimeError:
        logging.getLogger("turnwise").exception("failed")


def test_an_event_is_one_line_of_json() -> None:
    stream = configured()
    logging.getLogger("turnwise.part").info("two\nlines of %s", "text", extra={"ms": 1.5})
    (event,) = events(stream)
    assert datetime.fromisoformat(event.pop("time")).utcoffset() == timedelta(0)
    assert event == {
        "level": "info",
        "logger": "turnwise.part",
        "message": "two\nlines of text",
        "ms": 1.5,
    }


def test_the_password_of_a_url_is_not_logged() -> None:
    stream = configured()
    logging.getLogger("redis").warning("%s does not answer", "redis://:secret@redis:6379")
    (event,) = events(stream)
    assert event["message"] == "redis://redis:6379 does not answer"


def test_the_requests_id_stands_in_its_lines() -> None:
    stream = configured()
    token = request_id.set("abc")
    logging.getLogger("turnwise").info("within")
    request_id.reset(token)
    logging.getLogger("turnwise").info("after")
    within, after = events(stream)
    assert within["request_id"] == "abc"
    assert "request_id" not in after


def test_the_level_is_that_of_our_own_lines() -> None:
    stream = configured("debug")
    logging.getLogger("turnwise").debug("ours")
    logging.getLogger("uvicorn.error").info("theirs")
    logging.getLogger("uvicorn.error").warning("their warning")
    assert [event["message"] for event in events(stream)] == ["ours", "their warning"]


def test_a_high_level_holds_for_all_but_the_audit_log() -> None:
    stream = configured("error")
    for name in ("turnwise", "uvicorn.error"):
        logging.getLogger(name).warning("less")
        logging.getLogger(name).error("enough")
    logging.getLogger("turnwise.access").info("less")
    logging.getLogger("turnwise.audit").info("changed")
    assert [event["message"] for event in events(stream)] == ["enough", "enough", "changed"]


def test_an_exception_is_logged_by_types_and_traces_causes_first() -> None:
    stream = configured()
    log_failure()
    (event,) = events(stream)
    told = event["exception"]
    assert told.index("ValueError") < told.index("RuntimeError")
    assert "in fail" in told
    assert SAID not in stream.getvalue()


def test_texts_of_exceptions_are_logged_if_configured() -> None:
    stream = configured(text=True)
    log_failure()
    assert SAID in events(stream)[0]["exception"]


def test_a_terminal_gets_plain_words() -> None:
    stream = Terminal()
    with redirect_stderr(stream):
        configure_logs("info", text=False)
    logging.getLogger("turnwise").info("ready", extra={"port": 1})
    logging.getLogger("turnwise").warning("odd")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("  ready")
    assert second.endswith("  warning: odd")


def test_a_log_that_nobody_reads_stops_nobody_and_dropped_lines_are_counted() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    handler = QueueingHandler(stream, size=10)
    handler.setFormatter(JsonFormatter(text=False))
    logger = logging.Logger("turnwise")
    logger.addHandler(handler)
    for _ in range(100):
        logger.info("x" * 8000)  # more than a pipe holds
    lines: list[dict[str, Any]] = []
    with os.fdopen(reading) as log:
        reader = Thread(target=lambda: lines.extend(map(json.loads, log)))
        reader.start()
        handler.flush()
        logger.info("after")
        handler.flush()
        stream.close()
        reader.join()
    dropped = [line["dropped"] for line in lines if "dropped" in line]
    assert sum(dropped) > 0
    assert len(lines) - len(dropped) - 1 + sum(dropped) == 100
    assert lines[-1]["message"] == "after"


def test_a_line_whose_arguments_do_not_fit_raises_nothing() -> None:
    stream = io.StringIO()
    handler = QueueingHandler(stream)
    handler.setFormatter(JsonFormatter(text=False))
    logger = logging.Logger("library")
    logger.addHandler(handler)
    logger.info("%d", "one")
    handler.flush()
    line = json.loads(stream.getvalue())
    assert line["message"] == "a line of library cannot be formatted: TypeError"

"""Turns that are only previewed."""

import logging
from typing import Any

import pytest
import redis as blocking

from tests.support.messages import DIALOGUE, problem
from tests.support.service import Live, with_and_without_heads
from turnwise.service.sessions.store import SessionKey


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in {"turn", "timings_ms"}}


@with_and_without_heads
def test_a_preview_is_the_answer_that_the_turn_gets(live: Live) -> None:
    live.say("s", DIALOGUE[:2])
    preview = live.turn("s", *DIALOGUE[2], explain=True, commit=False)
    assert preview["turn"] is None
    turn = live.turn("s", *DIALOGUE[2], explain=True)
    assert turn["turn"] == 3
    assert without_times(preview) == without_times(turn)


def test_a_preview_of_a_new_session_creates_none(live: Live) -> None:
    assert live.turn("s", "user", "Hello", commit=False)["candidates"]
    assert problem(live.http.get("/sessions/s")) == (404, "session-not-found")
    with blocking.Redis.from_url(live.redis_url) as redis:
        (everything,) = SessionKey(live.namespace, "s").keys("*")
        assert redis.keys(everything) == []


def test_a_preview_uses_up_no_idempotency_key(live: Live) -> None:
    assert live.ok(live.try_turn("Hello", key="k", commit=False))["turn"] is None
    assert live.ok(live.try_turn("Hello", key="k"))["turn"] == 1
    assert live.ok(live.try_turn("Hello", key="k"))["replayed"]
    assert live.ok(live.try_turn("Hello", key="k", commit=False))["turn"] is None


def test_a_preview_is_neither_counted_nor_a_change_for_the_audit_log(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnwise.audit")
    labels = {"namespace": live.namespace, "pool": "default", "outcome": "answered"}
    counted = live.increase("turnwise_turns_total", **labels)
    live.turn("s", "user", "Hel", commit=False)
    live.turn("s", "user", "Hello")
    assert counted() == 1
    # The line of an earlier request, which filled the pool, may come late.
    audited = [record.message for record in caplog.records if record.name == "turnwise.audit"]
    assert sum("/turn" in line for line in audited) == 1

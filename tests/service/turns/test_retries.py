"""Idempotency-Key, expected_turn, replicas."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis as blocking

from tests.support.messages import problem
from tests.support.redis_keys import session_key
from tests.support.service import Live
from turnwise.service.selection.deadline import deadline
from turnwise.service.sessions.store import SessionStore
from turnwise.service.use_cases import turn


def test_a_retry_gets_the_first_answer_and_changes_nothing(live: Live) -> None:
    first = live.ok(live.try_turn(key="k1"))
    live.turn("s", "bot", "Hi")
    again = live.ok(live.try_turn(key="k1"))
    assert again["replayed"] is True
    same = ("turn", "candidates", "pool", "model")
    assert [again[name] for name in same] == [first[name] for name in same]
    assert live.get("/sessions/s")["turns"] == 2


def test_the_same_key_with_another_body_is_refused(live: Live) -> None:
    live.ok(live.try_turn(key="k1"))
    other = live.try_turn("Good morning", "k1")
    assert problem(other) == (422, "idempotency-mismatch")
    assert live.get("/sessions/s")["turns"] == 1


def test_a_turn_that_is_not_the_expected_one_is_a_conflict(live: Live) -> None:
    live.ok(live.try_turn(expected_turn=1))
    for commits in (True, False):
        late = live.try_turn(expected_turn=1, commit=commits)
        assert problem(late) == (409, "turn-conflict")
    live.ok(live.try_turn(expected_turn=2))


def test_a_key_may_come_again_after_its_turn_was_taken_back(live: Live) -> None:
    earlier = live.ok(live.try_turn(key="k1"))
    live.ok(live.try_turn("Hi", "k2", speaker="bot"))
    live.delete("/sessions/s/turns/last")
    again = live.ok(live.try_turn("Good day", "k2", speaker="bot"))
    assert (again["turn"], again["replayed"]) == (2, False)
    assert live.get("/sessions/s")["transcript"][1]["text"] == "Good day"
    retried = live.ok(live.try_turn(key="k1"))
    assert (retried["replayed"], retried["turn"]) == (True, earlier["turn"])


def test_a_turn_that_is_being_written_is_not_broken_off_by_its_deadline(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[asyncio.Timeout] = []
    commit = SessionStore.commit

    @asynccontextmanager
    async def noted(seconds: float) -> AsyncIterator[asyncio.Timeout]:
        async with deadline(seconds) as limit:
            limits.append(limit)
            yield limit

    async def commit_late(sessions: SessionStore, *args: Any) -> bool:
        landed = await commit(sessions, *args)
        if limits[-1].when() is not None:  # it still applies: let it be over
            limits[-1].reschedule(0.0)
        await asyncio.sleep(0.01)
        return landed

    monkeypatch.setattr(turn, "deadline", noted)
    monkeypatch.setattr(SessionStore, "commit", commit_late)
    assert live.ok(live.try_turn())["turn"] == 1


def test_a_retry_gets_the_answer_of_another_release(live: Live) -> None:
    first = live.ok(live.try_turn(key="k1"))
    answers = session_key(live.namespace, "s", "answers")
    with blocking.Redis.from_url(live.redis_url) as redis:
        name, body, answer = redis.lindex(answers, 0).split(b"\n", 2)
        only_what_was_sent = b'{"speaker":"user","text":"Hello"}'
        assert body.decode() == hashlib.sha256(only_what_was_sent).hexdigest()
        newer = answer.replace(b'{"id":', b'{"news":1,"id":').replace(
            b'"replayed":', b'"news":2,"replayed":'
        )
        redis.lset(answers, 0, b"\n".join([name, body, newer]))
    again = live.ok(live.try_turn(key="k1"))
    assert (again["replayed"], again["candidates"]) == (True, first["candidates"])

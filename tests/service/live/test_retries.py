"""Idempotency-Key, expected_turn, replicas."""

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest

from tests.service.conftest import RedisServer
from tests.service.live.conftest import Launch, Live, problem
from turnwise.service.sessions.store import SessionStore

HELLO = {"speaker": "user", "text": "Hello"}


def post(live: Live, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return live.http.post("/sessions/s/turn", json=body, headers=headers)


def test_a_retry_gets_the_first_answer_and_changes_nothing(live: Live) -> None:
    first = live.ok(post(live, HELLO, "k1"))
    live.turn("s", "bot", "Hi")
    again = live.ok(post(live, HELLO, "k1"))
    assert again["replayed"] is True
    same = ("turn", "candidates", "pool", "model")
    assert [again[name] for name in same] == [first[name] for name in same]
    assert live.get("/sessions/s")["turns"] == 2


def test_the_same_key_with_another_body_is_refused(live: Live) -> None:
    live.ok(post(live, HELLO, "k1"))
    other = post(live, HELLO | {"text": "Good morning"}, "k1")
    assert problem(other) == (422, "idempotency-mismatch")
    assert live.get("/sessions/s")["turns"] == 1


def test_a_key_may_come_again_after_its_turn_was_taken_back(live: Live) -> None:
    earlier = live.ok(post(live, HELLO, "k1"))
    live.ok(post(live, {"speaker": "bot", "text": "Hi"}, "k2"))
    live.ok(live.http.delete("/sessions/s/turns/last"))
    again = live.ok(post(live, {"speaker": "bot", "text": "Good day"}, "k2"))
    assert (again["turn"], again["replayed"]) == (2, False)
    assert live.get("/sessions/s")["transcript"][1]["text"] == "Good day"
    retried = live.ok(post(live, HELLO, "k1"))
    assert (retried["replayed"], retried["turn"]) == (True, earlier["turn"])


def test_a_turn_that_is_being_written_is_not_broken_off_by_its_deadline(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = launch(request_timeout=1.5)
    live.fill()
    live.ok(post(live, HELLO))  # what is slow the first time
    commit = SessionStore.commit

    async def slowly(sessions: SessionStore, *args: Any) -> bool:  # noqa: ANN401 - passed on
        landed = await commit(sessions, *args)
        await asyncio.sleep(1.6)
        return landed

    monkeypatch.setattr(SessionStore, "commit", slowly)
    assert live.ok(post(live, HELLO))["turn"] == 2


def test_a_retry_gets_the_answer_of_another_release(
    launch: Launch, redis_server: RedisServer
) -> None:
    live = launch(redis_url=redis_server.url)
    live.fill()
    first = live.ok(post(live, HELLO, "k1"))
    (key,) = redis_server.command("KEYS", "*:answers")
    name, body, answer = redis_server.command("LINDEX", key, "0").split(b"\n", 2)
    only_what_was_sent = json.dumps(HELLO, separators=(",", ":")).encode()
    assert body.decode() == hashlib.sha256(only_what_was_sent).hexdigest()
    newer = answer.replace(b'{"id":', b'{"news":1,"id":').replace(
        b'"replayed":', b'"news":2,"replayed":'
    )
    redis_server.command("LSET", key, "0", b"\n".join([name, body, newer]).decode())
    again = live.ok(post(live, HELLO, "k1"))
    assert (again["replayed"], again["candidates"]) == (True, first["candidates"])

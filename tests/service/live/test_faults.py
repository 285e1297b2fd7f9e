"""What happens when a part breaks, and that it mends by itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.roles import Kind
from tests.service.conftest import RedisServer
from tests.service.live.conftest import DIALOGUE, REPLIES, Launch, Live, Oracle, eventually

PREFIX = "urn:turnwise:problem:"
CONTEXT = [{"speaker": "user", "text": "Hello"}]


def kind(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix(PREFIX)


def turn(live: Live, text: str = "Hello") -> httpx.Response:
    return live.http.post("/sessions/s/turn", json={"speaker": "user", "text": text})


def test_redis_away_and_back(launch: Launch, redis_server: RedisServer) -> None:
    live = launch(redis_url=redis_server.url, redis_timeout=1.0)
    live.fill()
    live.turn("s", "user", "Hello")
    redis_server.kill()
    away = turn(live)
    assert kind(away) == (503, "state-unavailable")
    assert int(away.headers["Retry-After"]) >= 1
    assert kind(live.http.get("/sessions/s")) == (503, "state-unavailable")
    assert live.http.get("/livez").is_success
    assert live.http.get("/readyz").status_code == 503
    assert live.post("/rank", context=CONTEXT, candidates=REPLIES)["ranking"]
    assert live.post("/rank", context=CONTEXT, pool="default")["ranking"]
    redis_server.start()
    eventually(lambda: live.http.get("/readyz").is_success)
    assert live.turn("s", "user", "Hello again")["turn"] == 1  # this Redis forgets


def test_an_encoder_that_fails_writes_nothing_and_comes_back(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.turn("s", "user", "Hello")

    def broken(_: object) -> Any:  # noqa: ANN401
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(live.encoder, "forward", broken)
        for number in range(5):
            assert kind(turn(live, f"Anyone {number}?")) == (500, "encoder-failed")
        eventually(lambda: live.http.get("/readyz").status_code == 503)
        assert live.http.get("/livez").is_success
    assert live.get("/sessions/s")["turns"] == 1
    assert turn(live, "Is it working?").json()["turn"] == 2
    eventually(lambda: live.http.get("/readyz").is_success)


def test_a_session_of_another_model_is_rebuilt_once_from_its_text(
    launch: Launch, tiny_encoder_folder: Callable[[Kind], Path], oracle: Oracle
) -> None:
    old = launch(model=str(tiny_encoder_folder(Kind.SINGLE)))
    old.fill()
    old.say("s", DIALOGUE[:4])
    new = launch()
    eventually(lambda: new.http.get("/readyz").is_success)
    answer = new.turn("s", *DIALOGUE[4], respond=True, top_k=len(REPLIES), aggregation="mean")
    naive = {text: oracle.score(DIALOGUE[:5], text) for text in REPLIES}
    found = {candidate["text"]: candidate["score"] for candidate in answer["candidates"]}
    assert found == pytest.approx(naive, abs=1e-3)

    def encoded() -> float:
        roles = ("first", "second")
        return sum(
            new.metric("turnwise_encoded_total", role=role, path="critical") for role in roles
        )

    put = {"operation": "put_first", "result": "ok"}
    eventually(lambda: new.metric("turnwise_state_operations_total", **put) == 1)
    before = encoded()
    new.turn("s", *DIALOGUE[5])
    assert encoded() == before + 1


def test_scripts_that_redis_forgot_come_back(launch: Launch, redis_server: RedisServer) -> None:
    live = launch(redis_url=redis_server.url)
    live.fill()
    live.turn("s", "user", "Hello")
    redis_server.command("SCRIPT", "FLUSH")
    assert live.turn("s", "bot", "Hi")["turn"] == 2


def test_a_plain_sentence_encoder_serves_too(
    launch: Launch, tiny_encoder_folder: Callable[[Kind], Path]
) -> None:
    for plain in (Kind.SINGLE, Kind.CURVED):
        live = launch(model=str(tiny_encoder_folder(plain)))
        live.fill(pool=f"pool-{plain}")
        answer = live.say(f"s-{plain}", DIALOGUE[:3], pool=f"pool-{plain}")
        assert len(answer["candidates"]) == 5

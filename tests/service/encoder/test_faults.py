"""What happens when a part breaks, a client leaves or a clock jumps; it mends by itself."""

import asyncio
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import onnxruntime
import pytest
import redis as blocking
import torch

from tests.support.clock import move_clock
from tests.support.messages import DIALOGUE, REPLIES, posts, problem, scores
from tests.support.oracle import Oracle
from tests.support.redis_keys import session_key
from tests.support.service import Held, Launch, Live
from tests.support.talk import Talk
from tests.support.waiting import PATIENCE, eventually
from turnwise.models.roles import EncoderKind
from turnwise.service.sessions.store import SessionStore
from turnwise.service.settings import Limits

CONTEXT = posts([("user", "Hello")])


@pytest.fixture
def live(own: Live) -> Live:
    """Of the test's own, for it breaks."""
    return own


def test_an_encoder_that_fails_writes_nothing_and_comes_back(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.turn("s", "user", "Hello")

    def broken(_: object) -> Any:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(live.encoder, "forward", broken)
        for number in range(5):
            assert problem(live.try_turn(f"Anyone {number}?")) == (500, "encoder-failed")
        eventually(lambda: not live.ready)
        assert live.http.get("/livez").is_success
    assert live.get("/sessions/s")["turns"] == 1
    assert live.try_turn("Is it working?").json()["turn"] == 2
    eventually(lambda: live.ready)


def test_a_session_of_another_model_is_rebuilt_once_from_its_text(
    launch: Launch, model_of: Callable[[EncoderKind], dict[str, Any]], oracle: Oracle
) -> None:
    old = launch(**model_of(EncoderKind.SINGLE))
    old.fill()
    old.say("s", DIALOGUE[:4])
    new = launch()
    eventually(lambda: new.ready)
    written = new.written()
    answer = new.turn("s", *DIALOGUE[4], respond=True, top_k=len(REPLIES), aggregation="mean")
    naive = {text: oracle.score(DIALOGUE[:5], text) for text in REPLIES}
    assert scores(answer) == pytest.approx(naive, abs=1e-3)
    eventually(lambda: written() == 1)
    encoded = new.encoded()
    new.turn("s", *DIALOGUE[5])
    assert encoded() == {"second": 1}


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory."),
    MemoryError(),
    onnxruntime.capi.onnxruntime_pybind11_state.Fail("Failed to allocate memory"),
]


def test_a_batch_for_which_memory_does_not_suffice_is_encoded_one_by_one(
    live: Live, monkeypatch: pytest.MonkeyPatch, oracle: Oracle
) -> None:
    forward = live.encoder.forward
    talk = Talk("s", oracle)
    for number, error in enumerate(OUT_OF_MEMORY):

        def small_batches_only(tokens: Any, error: Exception = error) -> Any:
            if len(tokens) > 1 or len(tokens[0]) > 40:
                raise error
            return forward(tokens)

        monkeypatch.setattr(live.encoder, "forward", small_batches_only)
        failures = live.increase("turnwise_batch_failures_total")
        candidates = [f"{text} {number}" for text in REPLIES]
        ranked = live.post("/rank", context=CONTEXT, candidates=candidates)
        assert len(ranked["ranking"]) == len(REPLIES)
        assert failures() >= 1
        assert problem(live.try_turn("long " * 60)) == (500, "encoder-failed")
        talk.turn(live)
        assert live.ready
    talk.check(live)


def test_an_encoder_that_hangs_is_told_of_and_takes_nothing_with_it(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, oracle: Oracle
) -> None:
    monkeypatch.setattr(Limits, "queue_limit", 4)
    live = launch(request_timeout=1.0)
    live.fill()
    talk = Talk("s", oracle)
    talk.turn(live)
    held = Held(live, monkeypatch)
    try:
        assert problem(talk.post(live, "Hangs.")) == (503, "deadline-exceeded")
        eventually(lambda: live.metric("turnwise_batch_running_seconds") > 0.1)
        with ThreadPoolExecutor(6) as six:
            posted = six.map(
                lambda number: Talk(f"w{number}", oracle).post(live, "Waits."), range(6)
            )
            seen = {problem(answer) for answer in posted}
        assert seen == {(503, "deadline-exceeded"), (429, "overloaded")}
        assert live.metric("turnwise_queue_texts", lane="critical") <= 4
        assert live.get("/sessions/s")["turns"] == 1
        assert live.ready  # it may be a large batch
        monkeypatch.setattr("turnwise.service.encoder.queue.STALLED_SECONDS", 0.1)
        assert live.http.get("/readyz").json()["errors"][0]["loc"] == ["encoder"]
        assert live.http.get("/livez").is_success
        monkeypatch.setattr("turnwise.service.encoder.queue.HUNG_SECONDS", 0.1)
        assert live.http.get("/livez").status_code == 503
    finally:
        held.let_go()
    eventually(lambda: live.ready)
    assert live.http.get("/livez").is_success
    assert live.metric("turnwise_batch_running_seconds") == 0
    talk.turn(live, text="Hangs.")
    talk.check(live)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_encoder_whose_thread_died_needs_a_new_process(
    own: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_thread(_: object) -> None:
        raise SystemExit

    assert own.http.get("/livez").is_success
    monkeypatch.setattr(own.encoder, "forward", end_thread)
    with leaving(own, "Hello"):
        eventually(lambda: own.metric("turnwise_batch_running_seconds") == math.inf)
    assert not own.ready
    assert own.http.get("/livez").status_code == 503


@contextmanager
def leaving(live: Live, text: str, *, session: str = "s", whole: bool = True) -> Iterator[None]:
    """A client that sends a turn, or half of it, and leaves with the end of the block."""
    body = json.dumps(Talk.body(text)).encode()
    head = (
        f"POST /sessions/{session}/turn HTTP/1.1\r\n"
        "Host: localhost\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {text.replace(' ', '-')}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", live.http.base_url.port or 0)) as client:
        client.sendall(head.encode() + (body if whole else body[:9]))
        yield


LEFT = {"route": "/sessions/{session_id}/turn", "status": "499"}


def test_a_client_that_leaves_early_has_said_nothing(
    live: Live, monkeypatch: pytest.MonkeyPatch, oracle: Oracle
) -> None:
    written = live.written()
    talk = Talk("s", oracle)
    left = live.increase("turnwise_requests_total", **LEFT)
    talk.turn(live)
    eventually(lambda: written() == 1)  # so that the device is free
    with leaving(live, "Half of it.", whole=False):
        pass
    held = Held(live, monkeypatch)
    with leaving(live, "On the device."):
        assert held.has.wait(PATIENCE)
        with leaving(live, "In the queue.", session="other"):  # does not wait for the first
            eventually(lambda: live.metric("turnwise_queue_texts", lane="critical") == 1)
    eventually(lambda: left() == 3)
    held.let_go()
    eventually(lambda: live.metric("turnwise_dropped_texts_total", reason="cancelled") == 1)
    assert live.metric("turnwise_queue_texts", lane="critical") == 0
    talk.check(live)
    for text in ("Half of it.", "On the device."):
        talk.turn(live, text=text)
    talk.check(live)


def test_a_client_that_leaves_after_the_commit_has_said_it_once(
    live: Live, monkeypatch: pytest.MonkeyPatch, oracle: Oracle
) -> None:
    talk = Talk("s", oracle)
    talk.turn(live)
    committed = threading.Event()
    commit = SessionStore.commit

    async def committing(self: SessionStore, *arguments: Any) -> bool:
        await commit(self, *arguments)
        committed.set()
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(SessionStore, "commit", committing)
        left = live.increase("turnwise_requests_total", **LEFT)
        with leaving(live, "It was kept."):
            assert committed.wait(PATIENCE)
        eventually(lambda: left() == 1)
    again = Live.ok(talk.post(live, "It was kept."))
    assert again["replayed"]
    talk.said.append((Talk.body("It was kept.")["speaker"], "It was kept."))
    talk.turn(live)
    talk.check(live)


@pytest.mark.parametrize("jump", [-400 * 86_400.0, 400 * 86_400.0], ids=["back", "ahead"])
def test_a_clock_that_jumps_loses_nothing_and_holds_up_nobody(
    live: Live, monkeypatch: pytest.MonkeyPatch, oracle: Oracle, redis_url: str, jump: float
) -> None:
    talk = Talk("s", oracle)
    again = Talk("again", oracle)
    for each in (talk, again):
        each.turn(live)
    move_clock(monkeypatch, jump)
    talk.turn(live)
    assert Live.ok(talk.post(live, Talk.text(1)))["replayed"]
    assert live.http.delete("/sessions/again").is_success
    again.said.clear()
    again.turn(live)  # of the same name as one that is gone
    again.turn(live)
    live.put("/pools/default/candidates", [{"id": "r0", "text": REPLIES[0]}])
    posts = live.get("/sessions/s")["transcript"]
    assert (posts[1]["at"] - posts[0]["at"]) == pytest.approx(jump, abs=600)
    with blocking.Redis.from_url(redis_url) as redis:
        for name in ("meta", "posts", "second"):
            assert 86_000 < redis.ttl(session_key("default", "s", name)) <= 86_400
    assert live.ready
    for each in (talk, again):
        each.check(live)


def test_a_client_that_leaves_what_it_reads_is_noticed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = threading.Event()

    async def find(*_: object, **__: object) -> None:
        reading.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(SessionStore, "find", find)
    left = live.increase(
        "turnwise_requests_total", route="/sessions/{session_id}", method="GET", status="499"
    )
    with socket.create_connection(("127.0.0.1", live.http.base_url.port or 0)) as client:
        client.sendall(b"GET /sessions/s HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reading.wait(PATIENCE)
    eventually(lambda: left() == 1)

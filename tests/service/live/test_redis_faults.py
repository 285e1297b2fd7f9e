"""A Redis that is frozen, full, demoted or without a disk: what is refused, and what is kept."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import httpx
import pytest

from models.roles import Kind
from tests.service.conftest import RedisServer
from tests.service.live.conftest import Launch, Live, eventually

UNLIMITED = -1


@pytest.fixture
def second_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.remove()


def post(live: Live, text: str, key: str) -> httpx.Response:
    body = {"speaker": "user", "text": text}
    return live.http.post("/sessions/s/turn", json=body, headers={"Idempotency-Key": key})


def ready(live: Live) -> bool:
    return live.http.get("/readyz").is_success


def refused(live: Live, key: str) -> None:
    answer = post(live, "Is anybody there?", key)
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:turnwise:problem:state-unavailable"
    assert int(answer.headers["Retry-After"]) >= 1
    unavailable = {"operation": "read", "result": "unavailable"}
    committing = {"operation": "commit", "result": "unavailable"}
    counted = [
        live.metric("turnwise_state_operations_total", **e) for e in (unavailable, committing)
    ]
    assert sum(counted) >= 1


def test_a_frozen_redis_is_away_until_it_thaws(launch: Launch, redis_server: RedisServer) -> None:
    live = launch(redis_url=redis_server.url, redis_timeout=0.5)
    live.fill()
    post(live, "Hello", "first")
    redis_server.signal(signal.SIGSTOP)
    try:
        refused(live, "frozen")
        assert not ready(live)
    finally:
        redis_server.signal(signal.SIGCONT)
    eventually(lambda: ready(live))
    settled = Live.ok(post(live, "Is anybody there?", "frozen"))
    assert settled["turn"] == 2
    assert live.get("/sessions/s")["turns"] == 2


def test_a_full_redis_takes_no_turn_and_loses_none(
    launch: Launch, redis_server: RedisServer
) -> None:
    live = launch(redis_url=redis_server.url)
    live.fill()
    post(live, "Hello", "first")
    redis_server.command("CONFIG", "SET", "maxmemory", "1")
    refused(live, "full")
    assert live.get("/sessions/s")["turns"] == 1
    redis_server.command("CONFIG", "SET", "maxmemory", "0")
    assert Live.ok(post(live, "Is anybody there?", "full"))["turn"] == 2


def test_a_demoted_redis_takes_no_turn_until_it_is_promoted(
    launch: Launch, redis_server: RedisServer
) -> None:
    live = launch(redis_url=redis_server.url)
    live.fill()
    post(live, "Hello", "first")
    redis_server.command("REPLICAOF", "127.0.0.1", "1")
    refused(live, "demoted")
    assert live.get("/sessions/s")["turns"] == 1
    redis_server.command("REPLICAOF", "NO", "ONE")
    assert Live.ok(post(live, "Is anybody there?", "demoted"))["turn"] == 2


def test_a_redis_whose_disk_is_full_takes_no_turn_that_it_could_not_keep(launch: Launch) -> None:
    server = RedisServer("--appendonly", "yes")
    try:
        live = launch(redis_url=server.url)
        live.fill()
        post(live, "Hello", "first")
        server.limit_files(1)
        numbers = count()

        def full() -> bool:  # a write that fails is found out with the next one
            return live.http.put(f"/sessions/new-{next(numbers)}", json={}).status_code == 503

        eventually(full)
        refused(live, "full")
        server.limit_files(UNLIMITED)
        eventually(lambda: post(live, "Is anybody there?", "full").is_success)
        told = [one["text"] for one in live.get("/sessions/s")["transcript"]]
        assert told == ["Hello", "Is anybody there?"]
        server.kill()
        server.start()
        eventually(lambda: ready(live))
        assert live.get("/sessions/s")["turns"] == 2
    finally:
        server.remove()


class Deaf:
    """In front of a Redis: from the command that holds a mark on, its answers are withheld."""

    def __init__(self, server: Path, path: Path, mark: bytes) -> None:
        self.url = f"unix://{path}"
        self._server, self._mark = server, mark
        self.deaf = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            redis = socket.socket(socket.AF_UNIX)
            redis.connect(str(self._server))
            for source, target in ((client, redis), (redis, client)):
                args = (source, target, target is redis)
                threading.Thread(target=self._pass, args=args, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, to_redis: bool) -> None:
        while data := source.recv(1 << 16):
            if to_redis and self._mark in data:
                self.deaf.set()
            if to_redis or not self.deaf.is_set():
                target.sendall(data)
        target.close()


def test_a_service_killed_between_commit_and_answer_has_taken_the_turn_once(
    launch: Launch,
    redis_server: RedisServer,
    tiny_encoder_folder: Callable[[Kind], Path],
    tmp_path: Path,
) -> None:
    other = launch(redis_url=redis_server.url)
    other.fill()
    other.turn("elsewhere", "user", "Hello")  # so that Redis knows the scripts
    deaf = Deaf(redis_server.socket, redis_server.folder / "deaf", b"Is anybody there?")
    variables = {
        "TURNWISE_REDIS_URL": deaf.url,
        "TURNWISE_MODEL": str(tiny_encoder_folder(Kind.TRIPLE)),
        "TURNWISE_DATA_DIR": str(tmp_path),
        "TURNWISE_PORT": "0",
    }
    process = Popen(
        [sys.executable, "-c", "from service.cli import main; main()", "serve"],
        env=os.environ | variables, stdout=DEVNULL, stderr=PIPE, text=True,
    )  # fmt: skip
    try:
        url = _url(process)
        answers: list[Any] = []

        def ask() -> None:
            body = {"speaker": "user", "text": "Is anybody there?"}
            headers = {"Idempotency-Key": "k"}
            try:
                answers.append(httpx.post(f"{url}/sessions/s/turn", json=body, headers=headers))
            except httpx.TransportError as error:
                answers.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert deaf.deaf.wait(30)
        eventually(lambda: other.http.get("/sessions/s").is_success)
        process.kill()
        asking.join(30)
        assert isinstance(answers[0], httpx.TransportError)
        retried = Live.ok(post(other, "Is anybody there?", "k"))
        assert (retried["turn"], retried["replayed"]) == (1, True)
        assert other.get("/sessions/s")["turns"] == 1
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
        deaf.close()


def _url(process: Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if '"ready on ' in line:
            return line.split("ready on ")[1].split('"')[0]
    raise AssertionError("the service did not start")

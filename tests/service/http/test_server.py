"""`turnwise serve` as a process: what it says, how it stops, what it leaves."""

import json
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from time import monotonic
from typing import Any

import httpx
import pytest

from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.roles import EncoderKind
from turnwise.service.app import server
from turnwise.service.app.server import run
from turnwise.service.settings import Settings

SAID = "Is the garden open?"
RUN = "from turnwise.service.cli.main import main; main()"


class Process:
    """A service with a private Redis, and the events that it logs."""

    def __init__(
        self, command: list[str], folder: Path, model: Path, exported: Path, **settings: str
    ) -> None:
        replies = folder / "replies.jsonl"
        replies.write_text('{"id": "a", "text": "Good day!"}\n{"id": "b", "text": "Bye."}\n')
        data = folder / "data"
        data.mkdir()
        (data / "models").symlink_to(exported)
        variables = {
            "TURNWISE_MODEL": str(model),
            "TURNWISE_DATA_DIR": str(data),
            "TURNWISE_DEFAULT_POOL": str(replies),
            "TMPDIR": str(folder),
        }
        self.events: list[dict[str, Any]] = []
        self.popen = Popen(
            [*command, "serve", "--port", "0"],
            env=os.environ | variables | settings,
            stderr=PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, message: str) -> dict[str, Any]:
        """Read events up to one with this message."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.events.append(json.loads(line))
            if re.search(message, self.events[-1]["message"]):
                return self.events[-1]
        raise AssertionError(f"it ended before it said '{message}': {self.events}")

    def ended(self) -> int:
        """Read what it says to the end, and return its exit status."""
        assert self.popen.stderr is not None
        self.events += map(json.loads, self.popen.stderr)
        return self.popen.wait()


Start = Callable[..., Process]


@pytest.fixture
def start(
    tmp_path: Path,
    tiny_encoder_folder: Callable[[EncoderKind], Path],
    served_encoder: UtteranceEncoder,  # noqa: ARG001 - it is exported, so that they need not
    onnx_cache: Path,
    warm_commands: Path,
) -> Iterator[Start]:
    """Start services, forked off a process that has the libraries loaded unless they are cold."""
    started: list[Process] = []

    def begin(*, cold: bool = False, **settings: str) -> Process:
        command = [sys.executable, "-c", RUN] if cold else [str(warm_commands / "turnwise")]
        model = tiny_encoder_folder(EncoderKind.TRIPLE)
        started.append(Process(command, tmp_path, model, onnx_cache, **settings))
        return started[-1]

    yield begin
    for process in started:
        process.popen.kill()
        process.popen.communicate()


@contextmanager
def request_under_way(url: httpx.URL) -> Iterator[Callable[..., str]]:
    """Begin to post a turn; what is given sends the rest, or "", and returns all of the answer."""
    body = json.dumps({"speaker": "user", "text": SAID})
    head = (
        f"POST /sessions/s/turn HTTP/1.1\r\nhost: {url.host}\r\ncontent-length: {len(body)}\r\n"
        "content-type: application/json\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((url.host, url.port or 0)) as client:
        client.sendall(head.encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 100")

        def finish(body: str = body) -> str:
            client.sendall(body.encode())
            return b"".join(iter(lambda: client.recv(65536), b"")).decode()

        yield finish


def left_behind(tmp_path: Path) -> list[Path]:
    """Folders of the private Redis's socket: it removes its own when it stops."""
    return list(tmp_path.glob("turnwise-*"))


def test_it_serves_from_nothing_answers_what_is_under_way_at_ctrl_c_and_leaves_nothing(
    start: Start, tmp_path: Path, with_graph: Path
) -> None:
    model = with_graph  # so that it loads no torch
    process = start(cold=True, TURNWISE_MODEL=str(model))
    url = httpx.URL(process.until("^ready on")["url"])
    said = [event["message"] for event in process.events]
    assert re.search("private Redis started", said[0])
    assert any(f"model {model.name} loaded" in message for message in said)
    assert len(left_behind(tmp_path)) == 1
    with request_under_way(url) as finish:
        os.killpg(process.popen.pid, signal.SIGINT)  # as a terminal does
        process.until("^stopping")
        process.popen.terminate()  # comes on top where a supervisor sends its own
        answer = finish()
    assert answer.startswith("HTTP/1.1 200")
    assert "Good day!" in answer
    assert "\r\nserver:" not in answer.lower()
    assert process.ended() == 0
    assert process.events[-1]["message"] == "stopped"
    assert not any(event["level"] in {"warning", "error"} for event in process.events)
    assert SAID not in json.dumps(process.events)
    assert left_behind(tmp_path) == []


def test_a_request_unfinished_at_the_end_of_the_drain_gets_503(start: Start) -> None:
    process = start(TURNWISE_DRAIN_TIMEOUT="0.1")
    url = httpx.URL(process.until("^ready on")["url"])
    with request_under_way(url) as finish:
        process.popen.terminate()
        answer = finish("")
    assert answer.startswith("HTTP/1.1 503")
    assert "retry-after: 5" in answer
    assert '"urn:turnwise:problem:draining"' in answer
    assert process.ended() == 0
    assert not any("Exception" in event["message"] for event in process.events)


def test_it_ends_soon_after_it_stopped_if_the_collector_of_traces_never_answers(
    start: Start,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        process = start(
            TURNWISE_TRACING="true",
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_EXPORTER_OTLP_TIMEOUT=str(2 * PATIENCE),
        )
        url = process.until("^ready on")["url"]
        assert httpx.get(f"{url}/livez").is_success
        process.popen.terminate()
        process.until("^stopped")
        stopped = monotonic()
        assert process.ended() == 0
        assert monotonic() < stopped + PATIENCE


def test_a_redis_that_rejects_writes_does_not_make_the_end_an_error(
    start: Start, redis_server: RedisServer
) -> None:
    process = start(TURNWISE_REDIS_URL=redis_server.url)
    url = process.until("^ready on")["url"]
    assert httpx.put(f"{url}/pools/p", json={}).is_success  # a request names it: it is noted
    redis_server.command("CONFIG", "SET", "min-replicas-to-write", "1")
    process.popen.terminate()
    assert process.ended() == 0
    assert not any(event["level"] == "error" for event in process.events)


def test_sigterm_while_it_starts_ends_it(start: Start, tmp_path: Path) -> None:
    process = start(TURNWISE_SHORT_LIST="10")
    process.until("private Redis started")
    assert process.events[0]["message"] == (
        "ignored variables that are no longer settings: TURNWISE_SHORT_LIST"
    )
    process.popen.terminate()
    assert process.ended() == 0
    assert not any("ready" in event["message"] for event in process.events)
    eventually(lambda: not left_behind(tmp_path))  # a watchdog may do it, after the process


def test_a_taken_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TurnwiseError, match=f"cannot listen on 127.0.0.1 port {port}: "):
            run(Settings(port=port, data_dir=tmp_path / "data"))
    assert not (tmp_path / "data").exists()


HEADERS = ["content-type: application/json", "authorization: Bearer KEY"]


@pytest.mark.parametrize("keyed", [True, False])
def test_at_a_terminal_it_shows_a_request_to_try(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, keyed: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    settings = Settings(api_keys_file=Path("keys.json") if keyed else None)
    server.announce("http://127.0.0.1:1", settings, ("/rank", '{"text": "Hello"}'))
    command, _, rest = capsys.readouterr().err.partition("  curl ")[2].partition("\n\n")
    url, *options = shlex.split(command.replace("\\\n", ""))  # as a shell joins lines
    assert url == "http://127.0.0.1:1/rank"
    assert options[0::2] == ["-H"] * (1 + keyed) + ["-d"]
    assert options[1::2] == [*HEADERS[: 1 + keyed], '{"text": "Hello"}']
    assert rest.startswith("Documentation of the API: http://127.0.0.1:1/docs\n")

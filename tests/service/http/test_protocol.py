"""The bounds of a connection, over real sockets, with a small ASGI application behind them."""

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.support.waiting import PATIENCE, eventually
from turnwise.service.api.http.protocol import BoundedProtocol

SMALL = 65_536
"""Bytes of the sockets' buffers, so that bytes which are sent were also read."""
HEAD = b"Host: localhost\r\n\r\n"
GET = b"GET / HTTP/1.1\r\n" + HEAD
LAST = b"GET / HTTP/1.1\r\nConnection: close\r\n" + HEAD


@dataclass
class App:
    """Answers `/` at once, `/held` when it may, and `/short` with less than it promises."""

    may_answer: threading.Event = field(default_factory=threading.Event)
    begun: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        leaves = asyncio.ensure_future(receive())  # as `Cancellation` watches the client
        if scope["path"] == "/held":
            await asyncio.to_thread(self.may_answer.wait, PATIENCE)
        leaves.cancel()
        length = {"/chunked": [], "/short": [(b"content-length", b"9")]}
        headers = length.get(scope["path"], [(b"content-length", b"4")])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"do", "more_body": True})
        await send({"type": "http.response.body", "body": b"ne"})


@dataclass
class Served:
    app: App
    server: uvicorn.Server
    thread: threading.Thread
    address: tuple[str, int]

    def connect(self, *sent: bytes) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        client.settimeout(PATIENCE)
        client.connect(self.address)
        for some in sent:
            client.sendall(some)
        return client

    def exchange(self, *sent: bytes) -> bytes:
        """Return all that the server sends before it closes the connection."""
        with self.connect(*sent) as client:
            return read_all(client)


@pytest.fixture(params=["asyncio", "uvloop"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    app = App()
    config = uvicorn.Config(
        app, http=BoundedProtocol, loop=request.param, ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield Served(app, server, thread, listener.getsockname())
    app.may_answer.set()
    server.should_exit = True
    thread.join(PATIENCE)
    assert not thread.is_alive()


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(SMALL), b""))


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", answers)]


def test_an_endless_pipeline_is_read_as_it_is_answered(served: Served) -> None:
    sent = 0
    with served.connect() as client:

        def send_without_end() -> None:
            nonlocal sent
            try:
                while True:
                    sent += client.send(GET * 1000)
            except OSError:
                pass

        sender = threading.Thread(target=send_without_end)
        sender.start()
        answers = 0
        while answers < 500:
            answers += client.recv(SMALL).count(b"HTTP/1.1 200")
        waiting = sent - answers * len(GET)
        client.shutdown(socket.SHUT_RDWR)
        sender.join(PATIENCE)
    assert waiting < 40 * SMALL  # the sockets' buffers, and one read of the server


def test_requests_behind_a_held_one_wait_and_are_answered_in_order(served: Served) -> None:
    with served.connect(b"GET /held HTTP/1.1\r\n" + HEAD + GET * 20 + LAST) as client:
        eventually(lambda: served.app.begun == ["/held"])
        served.app.may_answer.set()
        assert statuses(read_all(client)) == [200] * 22
    assert served.app.begun == ["/held", *["/"] * 21]


def test_a_body_larger_than_the_buffer_arrives_as_it_is_read(served: Served) -> None:
    body = b"x\r\n\r\n" * 200_000
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n" % len(body) + HEAD
    assert statuses(served.exchange(head + body + LAST)) == [200, 200]


def test_an_answer_shorter_than_its_length_closes_the_connection(served: Served) -> None:
    assert statuses(served.exchange(b"GET /short HTTP/1.1\r\n" + HEAD + GET)) == [200]


def test_the_answer_in_progress_is_finished_at_the_stop(served: Served) -> None:
    with served.connect(GET) as idle, served.connect(b"GET /held HTTP/1.1\r\n" + HEAD) as client:
        eventually(lambda: "/held" in served.app.begun)
        assert idle.recv(SMALL)
        served.server.should_exit = True
        assert read_all(idle).endswith((b"", b"done"))
        served.app.may_answer.set()
        answer = read_all(client)
    assert statuses(answer) == [200]
    assert b"connection: close" in answer
    served.thread.join(PATIENCE)
    assert not served.thread.is_alive()


def test_a_malformed_request_is_answered_after_those_before_it(served: Served) -> None:
    answers = served.exchange(GET + GET + b"\x16\x03\x01\r\n\r\n")
    assert statuses(answers) == [200, 200, 400]
    assert b"connection: close" in answers.lower()


def test_an_answer_without_a_length_is_chunked(served: Served) -> None:
    request = b"GET /chunked HTTP/1.1\r\nConnection: close\r\n" + HEAD
    assert served.exchange(request).endswith(b"\r\n\r\n2\r\ndo\r\n2\r\nne\r\n0\r\n\r\n")


def test_http_1_0_gets_no_chunks_and_is_closed(served: Served) -> None:
    answer = served.exchange(b"GET /chunked HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\ndone")
    assert b"chunked" not in answer


def test_head_gets_the_headers_alone(served: Served) -> None:
    answers = served.exchange(b"HEAD / HTTP/1.1\r\n" + HEAD + LAST)
    assert statuses(answers) == [200, 200]
    assert answers.count(b"done") == 1

"""Requests that no client library would send: raw bytes on a socket."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.parser import BytesHeaderParser
from http.client import HTTPResponse
from typing import Any, NamedTuple

import pytest

from tests.support.service import Live
from tests.support.waiting import PATIENCE, eventually
from turnwise.service.api.http import middleware, protocol
from turnwise.service.settings import Limits

BODY = b'{"speaker":"user","text":"Hello"}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
JSON = "Content-Type: application/json"
CLOSE = "Connection: close"
LENGTH = f"Content-Length: {len(BODY)}"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json", self
        document: dict[str, Any] = json.loads(self.body)
        assert document["status"] == self.status
        return document


@contextmanager
def connected(live: Live, *sent: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", live.http.base_url.port or 0), 30) as client:
        for some in sent:
            client.sendall(some)
        yield client


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: localhost", *headers, "", ""]).encode("latin-1")


def post(*headers: str, path: str = "/sessions/s/turn") -> bytes:
    return head(f"POST {path} HTTP/1.1", JSON, CLOSE, *headers)


def answers(client: socket.socket) -> list[Answer]:
    """Read all answers, until the server hangs up."""
    rest = b"".join(iter(lambda: client.recv(65536), b""))
    found = []
    while rest:
        top, _, rest = rest.partition(b"\r\n\r\n")
        line, _, fields = top.partition(b"\r\n")
        headers = {
            name.lower(): value for name, value in BytesHeaderParser().parsebytes(fields).items()
        }
        length = int(headers["content-length"])
        found.append(Answer(int(line.split()[1]), headers, rest[:length]))
        rest = rest[length:]
    return found


def answer(live: Live, *sent: bytes) -> Answer:
    with connected(live, *sent) as client:
        (only,) = answers(client)
    return only


MALFORMED = {  # one of a kind: the parser has tests of its own
    "two lengths": post(LENGTH, "Content-Length: 5") + BODY,
    "length and chunks": post("Content-Length: 5", "Transfer-Encoding: chunked") + CHUNKED,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "raw UTF-8 in the path": head("GET /sessions/\xc3\xa9 HTTP/1.1"),
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_http_is_told_so_and_hung_up_on(live: Live, sent: bytes) -> None:
    refused = answer(live, sent)
    assert refused.status == 400
    assert refused.problem()["type"].endswith(":malformed-request")
    assert refused.problem()["errors"][0]["loc"] == ["request"]
    assert refused.headers["connection"] == "close"
    assert live.http.get("/sessions/s").status_code == 404


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://elsewhere/livez", 200),
        ("//livez", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/console/%2e%2e/app.py", 404),
        ("/sessions/..%2fs", 404),
        ("/sessions/..", 422),
        ("/sessions/%c0%af", 422),
        ("/sessions/s%0d%0aX-A:b", 422),
        ("/sessions/s%7d%7bx", 404),
        ("/sessions/s/scores?ids=a&pool=..%2f", 422),
    ],
)
def test_a_target_leads_to_what_it_names_or_nowhere(live: Live, target: str, status: int) -> None:
    live.turn("s", "user", "Hello")
    found = answer(live, head(f"GET {target} HTTP/1.1", CLOSE))
    assert found.status == status
    if status == 422:
        assert found.problem()["errors"][0]["loc"][0] in {"path", "query"}
    elif status == 404:
        assert found.problem()["title"]


TOO_MUCH = protocol.HEAD_BYTES + 1
ENDLESS = {
    "header": b"GET /livez HTTP/1.1\r\nX: ",
    "headers": head("GET /livez HTTP/1.1", *(f"X{n}: yyyyyyyy" for n in range(10_000))),
    "path": b"GET /",
}


def check_too_large(client: socket.socket) -> None:
    (found,) = answers(client)
    assert found.status == 431
    assert found.problem()["errors"][0]["loc"] == ["header"]


def test_a_head_that_ends_may_be_too_large_as_well(live: Live) -> None:
    whole = head("GET /livez HTTP/1.1", "X: " + "y" * protocol.HEAD_BYTES)
    with connected(live, whole[: protocol.HEAD_BYTES]) as client:
        client.sendall(whole[protocol.HEAD_BYTES :])
        check_too_large(client)


@pytest.mark.parametrize("begun", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_head_has_an_end(live: Live, begun: bytes) -> None:
    # Not a byte more: where some are left unread, closing resets the connection.
    with connected(live, begun.ljust(TOO_MUCH, b"y")[:TOO_MUCH]) as client:
        check_too_large(client)


def test_what_frames_a_chunk_has_an_end(live: Live) -> None:
    began = post("Transfer-Encoding: chunked", "Expect: 100-continue")
    with connected(live, began) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 100")
        client.sendall(b"1;".ljust(TOO_MUCH, b"y"))
        check_too_large(client)


def test_who_goes_on_with_an_endless_trailer_is_hung_up_on(live: Live) -> None:
    began = post("Transfer-Encoding: chunked") + b"1\r\n \r\n0\r\nX: "
    with connected(live, began) as client:
        for _ in range(8):
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(b"y" * TOO_MUCH)
        with suppress(ConnectionResetError):  # by which the answer may be lost
            check_too_large(client)


def test_a_trailer_is_no_header(live: Live) -> None:
    trailing = CHUNKED[:-2] + b"Idempotency-Key: not one\r\nX-Request-ID: x\r\n\r\n"
    found = answer(live, post("Transfer-Encoding: chunked", path="/rank"), trailing)
    assert found.status == 422
    assert found.problem()["errors"][0]["loc"][0] == "body"
    assert found.headers["x-request-id"] != "x"


def test_pipelined_requests_are_answered_in_order_and_garbage_behind_them_is_not_run(
    live: Live,
) -> None:
    turn = head("POST /sessions/s/turn HTTP/1.1", JSON, LENGTH) + BODY
    with connected(live, turn * 3 + post(LENGTH) + BODY) as client:
        found = answers(client)
    assert [json.loads(each.body)["turn"] for each in found] == [1, 2, 3, 4]
    with connected(live, post(LENGTH) + BODY + b"POST /sessions/s/turn HT") as client:
        assert [each.status for each in answers(client)] == [200]
    assert live.get("/sessions/s")["turns"] == 5


def test_a_client_that_shuts_its_side_before_the_end_changes_nothing(live: Live) -> None:
    with connected(live, post("Content-Length: 100"), BODY) as client:
        client.shutdown(socket.SHUT_WR)
        assert answers(client) == []
    assert live.http.get("/sessions/s").status_code == 404


def test_a_body_without_an_end_is_cut_at_the_limit(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "max_body_bytes", 10_000)
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    with connected(live, head("POST /rank HTTP/1.1", JSON, "Transfer-Encoding: chunked")) as client:
        client.sendall(chunk * 3)
        assert b" 413 " in client.recv(100)
    assert answer(live, post("Content-Length: 10001")).status == 413


@pytest.mark.parametrize(
    "sent",
    [
        post("Authorization: Bearer wrong", LENGTH) + BODY[:5],  # and never the rest
        post("Authorization: Bearer wrong", "Content-Length: 99999999999"),
        post("Authorization: Bearer wrong", "Transfer-Encoding: chunked") + b"4\r\n{{{{\r\n",
    ],
    ids=["never ends", "huge", "malformed"],
)
def test_a_wrong_key_is_answered_before_the_body(live: Live, sent: bytes) -> None:
    refused = answer(live, sent)
    assert refused.status == 401
    assert refused.problem()["type"].endswith(":unauthenticated")


def test_who_never_ends_a_head_is_hung_up_on(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    for sent in (b"", b"GET /livez HT", head("GET /livez HTTP/1.1")[:-2]):
        with connected(live, sent) as client:
            assert answers(client) == []
    monkeypatch.setattr(protocol, "HEAD_SECONDS", PATIENCE)
    with connected(live, head("GET /livez HTTP/1.1")) as client:
        with HTTPResponse(client) as response:  # head and body may come one after the other
            response.begin()
            assert (response.status, json.loads(response.read())) == (200, {"alive": True})
        monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
        client.sendall(b"\r\n")  # blank lines between requests are no request
        assert answers(client) == []


def test_an_old_connection_closes_after_an_answer_that_says_so(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = head("GET /livez HTTP/1.1")
    with connected(live, asked, head("GET /livez HTTP/1.1", CLOSE)) as client:
        assert ["connection" in each.headers for each in answers(client)] == [False, True]
    monkeypatch.setattr(protocol, "CONNECTION_SECONDS", 0.0)
    with connected(live, asked + asked) as client:
        (only,) = answers(client)  # the client sends the second request on another connection
    assert (only.status, only.headers["connection"]) == (200, "close")
    assert [live.get("/livez") for _ in range(3)] == [{"alive": True}] * 3


def test_many_that_drip_their_bodies_are_cut_and_keep_nobody_waiting(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = live.increase("turnwise_requests_total", method="POST", route="/rank", status="408")
    began = [head("POST /rank HTTP/1.1", JSON, "Content-Length: 500"), b"  "]
    drips = [connected(live, *began) for _ in range(50)]
    clients = [drip.__enter__() for drip in drips]
    assert live.turn("s", "user", "Hello")["turn"] == 1
    with monkeypatch.context() as over:  # the time of all that drip, and of nobody else
        over.setattr(middleware, "BODY_SECONDS", 0.0)
        for client, drip in zip(clients, drips, strict=True):
            client.sendall(b" ")
            assert b" 408 " in client.recv(65536)
            drip.__exit__(None, None, None)
    for _ in range(2):
        assert live.turn("s", "user", "Hello again")
    eventually(lambda: cut() == 50)


def test_who_asks_for_another_protocol_is_answered_in_this_one(live: Live) -> None:
    upgrade = ["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"]
    kept = head(
        "POST /sessions/s/turn HTTP/1.1",
        JSON,
        LENGTH,
        "Connection: Upgrade, HTTP2-Settings",
        *upgrade,
    )
    last = head(
        "POST /sessions/s/turn HTTP/1.1",
        JSON,
        "Transfer-Encoding: chunked",
        "Connection: close, Upgrade, HTTP2-Settings",
        *upgrade,
    )
    for pieces in ([kept + BODY + last + CHUNKED], [kept, BODY[:9], BODY[9:], last, CHUNKED]):
        with connected(live, *pieces) as client:
            assert [each.status for each in answers(client)] == [200, 200]
    assert live.get("/sessions/s")["turns"] == 4
    assert answer(live, head("CONNECT elsewhere:80 HTTP/1.1", CLOSE)).status == 400


def test_a_url_may_not_take_the_whole_head(live: Live) -> None:
    with connected(live, head(f"GET /{'y' * protocol.URL_BYTES} HTTP/1.1")) as client:
        check_too_large(client)


def test_a_plain_encoding_may_be_named(live: Live) -> None:
    assert answer(live, post("Content-Encoding: Identity", LENGTH), BODY).status == 200
    assert answer(live, post("Transfer-Encoding: Chunked"), CHUNKED).status == 200


def test_a_head_may_be_long(live: Live) -> None:
    assert answer(live, head("GET /livez HTTP/1.1", CLOSE, f"X: {'y' * 60_000}")).status == 200

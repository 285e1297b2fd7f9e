import asyncio
import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.unit.api.conftest import Connect, Limit, Parts, request_scope
from turnwise.service.api.http import middleware
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

pytestmark = pytest.mark.anyio

TURN = {"speaker": "user", "text": "a secret utterance"}


async def test_sane_request_id_is_echoed(client: httpx.AsyncClient) -> None:
    response = await client.get("/livez", headers={"X-Request-ID": "trace-1.2~3"})
    assert response.headers["x-request-id"] == "trace-1.2~3"


async def test_other_request_ids_are_replaced_by_new_ones(client: httpx.AsyncClient) -> None:
    given = ["", "a b", 'x"y', "x" * 129, "ü"]
    answered = set[str]()
    for name in given:
        headers = {b"X-Request-ID": name.encode("latin-1")}
        answered.add((await client.get("/livez", headers=headers)).headers["x-request-id"])
    assert len(answered - {*given}) == len(given)


async def test_access_is_logged_without_text(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "turnwise.access"):
        await client.post("/sessions/private/turn", json=TURN)
        await client.get("/livez")
    (line,) = [record for record in caplog.records if record.name == "turnwise.access"]
    told = vars(line)
    assert (told["method"], told["route"]) == ("POST", "/sessions/{session_id}/turn")
    assert told["status"] == 200
    assert told["ms"] > 0
    assert "secret" not in line.getMessage()


async def test_an_unexpected_error_is_logged_and_hidden(
    client: httpx.AsyncClient, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    parts.outcomes["turn"] = RuntimeError("internals")
    response = await client.post("/sessions/s/turn", json=TURN, headers={"X-Request-ID": "abc"})
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"] == "abc"
    assert "internals" not in response.text
    assert "a request failed" in caplog.messages
    metrics = (await client.get("/metrics")).text
    assert 'route="/sessions/{session_id}/turn",status="500"} 1.0' in metrics


@pytest.mark.parametrize("error", [RuntimeError("internals"), asyncio.CancelledError()])
async def test_an_answer_that_has_begun_gets_no_problem_after_it(error: BaseException) -> None:
    metrics = Metrics()
    sent = list[Message]()

    async def breaks_off(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(type(error)):  # so that the server closes the connection
        await middleware.Observation(breaks_off, metrics)(
            request_scope("GET", "/pools"), receive, send
        )
    assert [message["type"] for message in sent] == ["http.response.start"]
    labels = {"method": "GET", "route": "other", "status": "200"}
    assert metrics.registry.get_sample_value("turnwise_requests_total", labels) == 1


@pytest.mark.parametrize(("chunks", "read"), [(3, 3), (100, 11)])
async def test_a_body_in_another_encoding_is_read_up_to_a_limit_before_it_is_rejected(
    client: httpx.AsyncClient, limit: Limit, chunks: int, read: int
) -> None:
    limit(max_body_bytes=1000)
    taken: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        for number in range(chunks):
            taken.append(number)
            yield b"x" * 100

    headers = {"Content-Encoding": "gzip", "Content-Type": "application/x-ndjson"}
    response = await client.put("/pools/p/candidates", content=body(), headers=headers)
    assert response.status_code == 415
    assert response.json()["errors"][0]["loc"] == ["header", "content-encoding"]
    assert len(taken) == read


class Work:
    """A turn that takes for ever."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, *_: object) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def test_a_request_that_takes_too_long_as_a_whole_is_dropped(
    parts: Parts, client_of: Connect
) -> None:
    parts.rank = work = Work()
    body = {"context": [{"speaker": "user", "text": "Hello"}], "candidates": ["Hi"]}
    async with client_of(request_timeout=0.05) as client:
        response = await client.post("/rank", json=body)
    assert (response.status_code, response.json()["type"]) == (
        503,
        "urn:turnwise:problem:deadline-exceeded",
    )
    assert work.ended.is_set()


async def test_the_time_of_a_body_is_that_of_reading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    clock = loop.time
    got: list[Message] = []

    async def late(_: Scope, receive: Receive, __: Send) -> None:
        spent = 2 * middleware.BODY_SECONDS  # as where a pool is read first
        monkeypatch.setattr(loop, "time", lambda: clock() + spent)
        got.append(await receive())

    async def receive() -> Message:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"{}"}

    async def send(_: Message) -> None: ...

    scope = request_scope("POST", "/rank", content_type="application/json")
    await middleware.BodyLimit(late, Settings())(scope, receive, send)
    assert [message["body"] for message in got] == [b"{}"]

import asyncio
import gzip
import json
import logging
import threading
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.support.waiting import PATIENCE
from tests.unit.api.conftest import Connect, Limit, Parts, connect, make_app, request_scope
from turnwise.service.api.http import uploads
from turnwise.service.api.http.uploads import EncodingProgress
from turnwise.service.errors import PoolNotFound
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory import free_memory

pytestmark = pytest.mark.anyio

CANDIDATES = [
    {"id": "a", "text": " Good day. ", "metadata": {"intent": "greeting", "rank": 1.5}},
    {"text": "Goodbye."},
]
READ = [
    Candidate.of("Good day.", "a", {"intent": "greeting", "rank": 1.5}),
    Candidate.of("Goodbye."),
]
NDJSON = {"Content-Type": "application/x-ndjson"}
LINES = {"Accept": "application/x-ndjson"}


def lines_of(*items: object) -> bytes:
    return b"\n".join(json.dumps(item).encode() for item in items)


async def upload(client: httpx.AsyncClient, lines: bytes) -> httpx.Response:
    return await client.put("/pools/p/candidates", content=lines, headers=NDJSON)


async def test_a_file_may_begin_with_a_byte_order_mark(
    client: httpx.AsyncClient, parts: Parts
) -> None:
    await upload(client, BOM_UTF8 + lines_of(*CANDIDATES))
    array = BOM_UTF8 + json.dumps(CANDIDATES).encode()
    headers = {"Content-Type": "application/json"}
    await client.put("/pools/p/candidates", content=array, headers=headers)
    assert [call for call in parts.calls if call[0] == "upsert"] == [
        ("upsert", "default", "p", READ)
    ] * 2


async def test_lines_may_be_cut_anywhere(client: httpx.AsyncClient, parts: Parts) -> None:
    async def bytewise() -> AsyncIterator[bytes]:
        for byte in lines_of(*CANDIDATES) + b"\r\n\n":
            yield bytes([byte])

    response = await client.put("/pools/p/candidates", content=bytewise(), headers=NDJSON)
    assert response.status_code == 200
    assert parts.calls[-1] == ("upsert", "default", "p", READ)


@pytest.mark.parametrize(
    ("query", "media", "content"),
    [
        ({"file": "a.jsonl"}, None, lines_of({"answer": "Good day.", "kind": "talk"})),
        ({"file": "a.csv.gz"}, None, gzip.compress(b"answer;kind\nGood day.;talk\n", mtime=0)),
        ({}, "text/csv; charset=utf-8", b"answer,kind\nGood day.,talk\n"),
        ({}, "text/csv; charset=utf-16-le", "answer,kind\nGood day.,talk\n".encode("utf-16-le")),
        (
            {"file": "a.csv", "encoding": "utf-16-le", "text_column": "answer"},
            "application/octet-stream",
            "answer,kind\nGood day.,talk\n".encode("utf-16-le"),
        ),
        (
            {"file": "a.csv", "group_column": "", "metadata_columns": "kind"},
            None,
            b"answer,kind,group\nGood day.,talk,1\n",
        ),
    ],
)
async def test_a_file_is_read_as_the_command_reads_it(
    client: httpx.AsyncClient,
    parts: Parts,
    query: dict[str, str],
    media: str | None,
    content: bytes,
) -> None:
    headers = {"Content-Type": media} if media else {}
    response = await client.put(
        "/pools/p/candidates", content=content, params=query, headers=headers
    )
    assert response.json()["notes"] == ['text from "answer", metadata from "kind"']
    read = [Candidate.of("Good day.", metadata={"kind": "talk"})]
    assert parts.calls[-1] == ("upsert", "default", "p", read)


@pytest.mark.parametrize(("size", "cut", "status"), [(2 << 20, None, 413), (9, -1, 422)])
async def test_a_compressed_file_is_read_within_the_limit_of_uploads(
    client_of: Connect, parts: Parts, size: int, cut: int | None, status: int
) -> None:
    content = gzip.compress(b"\n" * size)[:cut]
    async with client_of(max_upload_bytes=1 << 20) as client:
        response = await client.put("/pools/p/candidates?file=a.csv.gz", content=content)
    assert response.status_code == status
    assert "upsert" not in [call[0] for call in parts.calls]


async def test_a_file_that_cannot_be_read_is_an_error_that_names_the_line(
    client: httpx.AsyncClient, parts: Parts
) -> None:
    content = b"text,kind\nGood day.,talk\nBye.\n"
    response = await client.put("/pools/p/candidates?file=a.csv", content=content)
    assert response.status_code == 422
    assert response.json()["detail"].startswith("body: a.csv, line 3: 1 cell")
    assert "upsert" not in [call[0] for call in parts.calls]


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"Antwort\nGuten Tag.\n", "or name it with text_column="),
        ("answer\nSchön.\n".encode("cp1252"), "or name it with encoding="),
    ],
)
async def test_an_error_of_a_file_names_the_parameter_that_helps(
    client: httpx.AsyncClient, content: bytes, advice: str
) -> None:
    response = await client.put("/pools/p/candidates?file=a.csv", content=content)
    assert response.status_code == 422
    assert response.json()["errors"][0]["msg"].endswith(advice)


@pytest.mark.parametrize(
    ("candidate", "loc"),
    [
        ({"id": "a"}, ["text"]),
        ({"text": "  "}, ["text"]),
        ({"text": "x" * 11}, ["text"]),
        ({"text": "x", "id": "a\nb"}, ["id"]),
        ({"text": "x", "metadata": ["no object"]}, ["metadata"]),
        ({"text": "x", "metadata": {"long": "y" * 20}}, ["metadata"]),
        ({"text": "x", "body": "ü" * 8}, ["body"]),
        ({"text": "x", "body": ""}, ["body"]),
        ({"text": "x", "other": 1}, ["other"]),
        ("no object", []),
    ],
)
async def test_bad_candidate_is_named_by_its_place(
    client: httpx.AsyncClient, parts: Parts, limit: Limit, candidate: object, loc: list[str]
) -> None:
    items = [{"text": "fine"}, candidate]
    limit(max_text_chars=10, max_metadata_bytes=20, max_candidate_body_bytes=15)
    as_lines = await upload(client, lines_of(*items))
    as_array = await client.put("/pools/p/candidates", json=items)
    for response in (as_lines, as_array):
        assert response.status_code == 422
        assert [error["loc"] for error in response.json()["errors"]] == [["body", 1, *loc]]
    assert "upsert" not in [call[0] for call in parts.calls]


async def test_after_outside_of_the_metadata_is_told_where_it_belongs(
    client: httpx.AsyncClient,
) -> None:
    response = await upload(client, lines_of({"text": "At nine.", "after": "day"}))
    assert response.json()["detail"] == (
        "body.0.after: there is no such field, but metadata.after is one; nothing was changed"
    )
    response = await upload(client, lines_of({"text": "", "after": "day"}))
    assert [error["loc"][2] for error in response.json()["errors"]] == ["text", "after"]
    response = await client.patch("/pools/p/candidates/a", json={"after": "day"})
    assert response.json()["detail"] == (
        "body.after: there is no such field, but metadata.after is one"
    )


@pytest.mark.parametrize(
    ("line", "loc"),
    [
        (b'{"text": NaN}', ["body", 1]),
        (b'{"text": "x", "metadata": {"n": 1e999}}', ["body", 1, "metadata"]),
        (
            b'{"text": "x", "metadata": {"a": ' + b"[" * 100 + b"]" * 100 + b"}}",
            ["body", 1, "metadata"],
        ),
        (b'{"text": "\\ud800"}', ["body", 1]),
        (b'{"text": "x", "metadata": {"deep": ' + b"[" * 300 + b"]" * 300 + b"}}", ["body", 1]),
        (b"\xff\xfe", ["body", 1]),
    ],
)
async def test_line_that_is_not_json_is_named(
    client: httpx.AsyncClient, line: bytes, loc: list[object]
) -> None:
    response = await upload(client, b'{"text": "fine"}\n' + line)
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == loc


async def test_a_line_behind_one_that_is_not_json_is_named_by_its_own_number(
    client: httpx.AsyncClient,
) -> None:
    response = await upload(client, b'{"text": "fine"}\n{no\n{"text": 7}\n')
    assert [error["loc"] for error in response.json()["errors"]] == [
        ["body", 1],
        ["body", 2, "text"],
    ]


async def test_reading_ends_after_many_bad_lines(client: httpx.AsyncClient) -> None:
    response = await upload(client, b"{}\n" * 10_000)
    assert len(response.json()["errors"]) == 20


async def test_endless_line_is_refused(client: httpx.AsyncClient, limit: Limit) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    limit(max_body_bytes=1000)
    response = await client.put("/pools/p/candidates", content=chunks(), headers=NDJSON)
    assert response.status_code == 422
    assert "1000 bytes" in response.json()["detail"]


async def test_object_is_no_array(client: httpx.AsyncClient) -> None:
    response = await client.put("/pools/p/candidates", json={"text": "x"})
    assert response.json()["errors"] == [
        {"loc": ["body"], "msg": "should be an array of candidates"}
    ]


async def test_nothing_is_read_for_an_unknown_pool(client: httpx.AsyncClient, parts: Parts) -> None:
    parts.outcomes["info"] = PoolNotFound("there is no pool 'p'")
    response = await upload(client, b"not even json")
    assert response.status_code == 404


async def test_progress_comes_line_by_line(client: httpx.AsyncClient) -> None:
    response = await client.put("/pools/p/candidates", json=CANDIDATES, headers=LINES)
    assert response.headers["content-type"] == "application/x-ndjson"
    first, second, last = map(json.loads, response.text.splitlines())
    assert first == {"encoded": 1, "total": 2}
    assert second == {"encoded": 2, "total": 2}
    assert last == {"version": 4, "upserted": 2, "unchanged": 0, "size": 4, "warnings": []}


async def test_progress_hides_unexpected_errors(client: httpx.AsyncClient, parts: Parts) -> None:
    parts.outcomes["upsert"] = RuntimeError("secret")
    response = await client.put("/pools/p/candidates", json=CANDIDATES, headers=LINES)
    assert json.loads(response.text.splitlines()[-1])["status"] == 500
    assert "secret" not in response.text


async def test_bad_upload_fails_before_the_stream(client: httpx.AsyncClient) -> None:
    response = await client.put("/pools/p/candidates", json=[{}], headers=LINES)
    assert response.status_code == 422


@pytest.mark.parametrize("accept", ["*/*", "application/x-ndjson"])
async def test_client_that_leaves_cancels_the_upload_which_has_not_succeeded(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, accept: str
) -> None:
    caplog.set_level(logging.INFO, "turnwise.audit")
    began = asyncio.Event()
    ended = asyncio.Event()

    async def upsert(
        _namespace: str, _name: str, _candidates: object, progress: EncodingProgress | None
    ) -> None:
        if progress:
            progress(1, 2)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(parts, "upsert", upsert)
    app = make_app(parts)
    messages = iter([{"type": "http.request", "body": lines_of(*CANDIDATES), "more_body": False}])

    async def receive() -> dict[str, Any]:
        if message := next(messages, None):
            return message
        await began.wait()
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        pass

    scope = request_scope(
        "PUT", "/pools/p/candidates", content_type="application/x-ndjson", accept=accept
    )
    async with asyncio.timeout(PATIENCE):
        await app(scope, receive, send)
        await ended.wait()
    audited = [vars(record) for record in caplog.records if record.name == "turnwise.audit"]
    assert [line["status"] for line in audited] == [499]


async def test_upload_may_be_larger_than_other_bodies(parts: Parts, limit: Limit) -> None:
    limit(max_body_bytes=100)
    app = make_app(parts, max_upload_bytes=1000)
    many = [{"text": f"candidate {place}"} for place in range(10)]
    async with connect(app) as client:
        assert (await client.put("/pools/p/candidates", json=many)).status_code == 200
        response = await client.put("/pools/p/candidates", json=many * 10)
    assert response.status_code == 413


async def test_an_array_has_a_limit_of_its_own_and_names_the_way_around_it(
    client: httpx.AsyncClient,
) -> None:
    array = json.dumps(CANDIDATES).ljust(32 << 20)
    statuses = []
    for body in (array, array + " "):
        headers = {"Content-Type": "application/json"}
        answer = await client.put("/pools/p/candidates", content=body, headers=headers)
        statuses.append(answer.status_code)
    assert statuses == [200, 413]
    assert answer.json()["type"] == "urn:turnwise:problem:body-too-large"
    assert "as lines of application/x-ndjson" in answer.json()["detail"]
    assert (await upload(client, lines_of(*CANDIDATES * 9))).status_code == 200


@pytest.mark.parametrize(("most", "status"), [(2, 200), (1, 409)])
async def test_an_upload_has_no_more_candidates_than_a_pool(
    parts: Parts, client_of: Connect, most: int, status: int
) -> None:
    async with client_of(max_pool_size=most) as client:
        answers = [
            await client.put("/pools/p/candidates", json=CANDIDATES),
            await upload(client, lines_of(*CANDIDATES)),
        ]
    assert [answer.status_code for answer in answers] == [status] * 2
    assert ("pool-full" in answers[0].text) == (status == 409)
    assert [call[0] for call in parts.calls].count("upsert") == 2 * (status == 200)


@pytest.mark.parametrize("path", ["/sessions/candidates", "/pools/candidates"])
async def test_nothing_else_may_be_larger(
    client: httpx.AsyncClient, limit: Limit, path: str
) -> None:
    limit(max_body_bytes=100)
    assert (await client.put(path, json={"description": "x" * 100})).status_code == 413


async def test_an_upload_that_does_not_fit_into_memory_is_rejected_with_the_sizes(
    client: httpx.AsyncClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_memory, "available_memory", lambda: float(free_memory.SPARE))
    for body, kind in (
        (lines_of(*CANDIDATES), NDJSON),
        (b"[]", {"Content-Type": "application/json"}),
    ):
        answer = await client.put("/pools/p/candidates", content=body, headers=kind)
        assert (answer.status_code, answer.headers["content-type"]) == (
            507,
            "application/problem+json",
        )
        assert answer.json()["type"] == "urn:turnwise:problem:not-enough-memory"
        assert "needs 1 MB of memory, but 0 MB are free" in answer.json()["detail"]
    assert parts.calls[-1][0] == "info"


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json"])
async def test_a_thread_reads_the_candidates(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    threads = set[int]()
    parse = uploads.parse_json

    def watched(data: bytes) -> object:
        threads.add(threading.get_ident())
        return parse(data)

    monkeypatch.setattr(uploads, "parse_json", watched)
    body = json.dumps(CANDIDATES[0])
    content = f"[{body}]" if kind == "application/json" else f"{body}\n{body}"
    await client.put("/pools/p/candidates", content=content, headers={"Content-Type": kind})
    assert threads
    assert threading.get_ident() not in threads

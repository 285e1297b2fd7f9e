"""What a client with a key may try: values, names, texts, and what is another tenant's."""

import io
import json
import logging
import re
from itertools import takewhile
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis as blocking

from tests.support.redis_keys import session_key
from tests.support.redis_server import RedisServer
from tests.support.service import Launch, Live, api_key
from tests.support.waiting import eventually
from turnwise.service.observe.logs import JsonFormatter

TURN = {"speaker": "user", "text": "Hello"}
PLAN: dict[str, Any] = {"goals": [{"id": "a", "text": "x"}, {"text": "y"}], "top": 2}
UPLOAD = [{"id": "a", "text": "x", "metadata": {"k": [1, None, "ü"]}}, {"text": "y"}]
JSON = {"content-type": "application/json"}


def check_refusal(response: httpx.Response, case: object) -> list[dict[str, Any]]:
    """Nothing but a problem that names what is at fault."""
    assert response.status_code in {409, 422}, (case, response.text)
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    errors: list[dict[str, Any]] = problem.get("errors", [])
    assert errors or response.status_code == 409, case
    return errors


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/sessions/s/turn", b'{"speaker": "user", "text": "a", "text": "b"}', "text"),
        ("/rank", b'{"context": [], "candidates": [{"id": "a", "id": "b"}]}', "id"),
    ],
)
def test_a_key_may_not_come_twice_in_an_object(
    live: Live, path: str, body: bytes, key: str
) -> None:
    (error,) = check_refusal(live.http.post(path, content=body, headers=JSON), key)
    assert f'duplicate key "{key}"' in error["msg"]
    assert live.http.get("/sessions/s").status_code == 404


TEXTS = {
    "NUL": "a\0b",
    "only NUL": "\0",
    "bidi": "\u202eabc\u2066x",
    "combining": "a" + "\u0301" * 1900,
    "no space": "x" * 2000,
    "ZWJ": "👨‍👩‍👧‍👦🏳️‍🌈",
    "noncharacters": "\ufffe\uffff\U0010ffff\ufdd0",
    "BOM": "\ufeffa\ufeff",
    "NFC": "é",
    "NFD": "e\u0301",
    "terminal": "\x1b[31mred\x1b]0;t\x07",
    "separators": "a\u2028b\u2029c\x85d\r\ne",
    "zero width": "\u200b",
    "role tokens": "[CLS] [B1] [E] [BEFORE] [AFTER] [PAD]",
    "markup": "<script>alert(1)</script>",
    "Lua": "']]..redis.call('FLUSHALL')..[['",
    "RESP": "x\r\n*1\r\n$8\r\nFLUSHALL",
}
IDS = {name: text[:100] for name, text in TEXTS.items() if text[:100].isprintable()} | {
    "path": "../a/b?c#d%2f",
    "hash tag": "}{a",
    "glob": "*[a]?",
    "blank": " ",
    "dots": "...",
    "up": "../..",
}


def test_texts_come_back_as_they_were_byte_for_byte(live: Live) -> None:
    upload = [
        {"id": f"c{n}", "text": text, "metadata": {text[:200]: text[:500]}}
        for n, text in enumerate(TEXTS.values())
    ]
    live.make_pool("p", upload)
    found = live.post("/pools/p/search", text="x", top_k=100)["candidates"]
    kept = {each["id"]: each for each in found}
    for n, (name, text) in enumerate(TEXTS.items()):
        body = {"speaker": text[:64].strip(), "text": text, "pool": "p"}
        live.ok(live.http.post(f"/sessions/s{n}/turn", json=body))
        (post,) = live.get(f"/sessions/s{n}")["transcript"]
        assert (post["text"], post["speaker"]) == (text, body["speaker"]), name
        assert kept[f"c{n}"]["text"] == text, name
        assert kept[f"c{n}"]["metadata"] == {text[:200]: text[:500]}, name


def test_ids_of_candidates_are_any_line_of_text(live: Live) -> None:
    upload = [{"id": each, "text": "x"} for each in IDS.values()]
    live.make_pool("p", upload)
    found = live.post("/pools/p/search", text="x", top_k=100)["candidates"]
    assert sorted(each["id"] for each in found) == sorted(IDS.values())
    for each in IDS.values():
        target = f"/pools/p/candidates/{quote(each, safe='')}"
        url = httpx.URL(str(live.http.base_url), raw_path=target.encode())
        assert live.http.delete(url).is_success, each
    for bad in ("", ".", "..", "a\0", "a\n", "\x1b[31m", "\x7f", "x" * 129):
        response = live.http.put("/pools/p/candidates", json=[{"id": bad, "text": "x"}])
        assert check_refusal(response, bad)[0]["loc"] == ["body", 0, "id"]


LEAVING = [
    "a:b",
    "{a}",
    "a}:x{",
    "*",
    "..",
    ".",
    "a/b",
    "../b",
    "a\n",
    "a b",
    "a\0",
    "é",
    "",
    "-",
    "_a",
    "x" * 129,
    "\u202ea",
    "%00",
]


@pytest.fixture
def tenants(launch: Launch) -> Live:
    """A service where `ann` has a session and a pool, and `bob` nothing."""
    live = launch(api_keys=[api_key("ann"), api_key("bob")])
    become(live, "ann")
    live.fill(pool="default")
    live.fill(pool="secret")
    headers = {"Idempotency-Key": "k"}
    written = live.written()
    live.ok(live.http.post("/sessions/hers/turn", json=TURN, headers=headers))
    eventually(lambda: written() == 1)
    become(live, "bob")
    return live


def become(live: Live, name: str) -> None:
    live.http.headers["authorization"] = f"Bearer {name}"


def test_pools_whose_names_would_leave_their_namespace_are_refused(
    tenants: Live,
    _shared_server: RedisServer,  # noqa: PT019 - the one behind `launch`
) -> None:
    before = set(_shared_server.command("KEYS", "*"))
    for name in LEAVING:
        for path, body in [
            ("/rank", {"context": [TURN], "pool": name}),
            ("/sessions/s/turn", {**TURN, "pool": name}),
        ]:
            refusal = check_refusal(tenants.http.post(path, json=body), name)
            assert refusal[0]["loc"][1] == "pool"
        if name not in {"", ".", ".."}:  # these are another path
            response = tenants.http.put(f"/pools/{quote(name, safe='')}", json={})
            assert check_refusal(response, name)[0]["loc"][0] == "path", name
    # Of her own turn, written when the encoder is idle.
    late = {session_key("ann", "hers", "first").encode()}
    assert set(_shared_server.command("KEYS", "*")) - before <= late
    for name in ("ann", "bob/x", "*", "ann}", "", "..", "ann\tbob"):
        refused = tenants.http.get("/pools", headers={"Turnwise-Namespace": name})
        assert refused.status_code == 403, name


def test_no_id_of_a_session_leaves_its_namespace(
    tenants: Live,
    _shared_server: RedisServer,  # noqa: PT019
) -> None:
    refused = set()
    for name in LEAVING:
        response = tenants.http.post("/rank", json={"session_id": name, "candidates": ["x"]})
        if response.status_code == 422:
            assert check_refusal(response, name)[0]["loc"][1] == "session_id"
            refused.add(name)
            continue
        body = {**TURN, "respond": False}
        turn = tenants.http.post(f"/sessions/{quote(name, safe='')}/turn", json=body)
        assert turn.json()["session_id"] == name
    assert refused == {"", ".", "..", "a\n", "a\0", "\u202ea"}
    sessions = _shared_server.command("KEYS", "tw:session:*:meta")
    of_bob = [key.decode() for key in sessions if b"{bob/" in key]
    assert len(of_bob) == len(LEAVING) - len(refused)
    assert all(re.fullmatch(r"tw:session:\{bob/[\w.~%-]+\}:meta", key) for key in of_bob)


def test_nobody_finds_what_is_anothers_nor_that_it_is_there(
    tenants: Live,
    _shared_server: RedisServer,  # noqa: PT019
) -> None:
    def tried(session: str, pool: str) -> list[Any]:
        http = tenants.http
        calls = [
            http.get(f"/sessions/{session}"),
            http.delete(f"/sessions/{session}"),
            http.delete(f"/sessions/{session}/turns/last"),
            http.get(f"/sessions/{session}/scores", params={"ids": "r1"}),
            http.post("/rank", json={"session_id": session, "candidates": ["x"]}),
            http.post("/plan", json={**PLAN, "session_id": session}),
            http.get(f"/pools/{pool}"),
            http.delete(f"/pools/{pool}"),
            http.put(f"/pools/{pool}/candidates", json=UPLOAD),
            http.delete(f"/pools/{pool}/candidates/r1"),
            http.post(f"/pools/{pool}/search", json={"text": "x"}),
            http.post("/rank", json={"context": [TURN], "pool": pool}),
        ]
        return [
            (each.status_code, each.json()["detail"].replace(session, "S").replace(pool, "P"))
            for each in calls
        ]

    with (
        blocking.Redis(unix_socket_path=str(_shared_server.socket)) as client,
        client.monitor() as monitor,
    ):
        there = tried("hers", "secret")
        nowhere = tried("none", "hidden")
        _shared_server.command("ECHO", "the end")
        commands = (each["command"] for each in monitor.listen())
        seen = list(takewhile(lambda command: "the end" not in command, commands))
    assert there == nowhere
    assert {status for status, _ in there} == {404}
    assert any("tw:session:{bob/hers}" in command for command in seen)
    assert [command for command in seen if "{ann/hers}" in command] == []
    assert tenants.get("/pools") == {"pools": []}


def test_a_key_of_idempotency_is_the_tenants_own(tenants: Live) -> None:
    tenants.fill()
    for name, replayed in [("bob", False), ("ann", True)]:
        become(tenants, name)
        headers = {"Idempotency-Key": "k"}
        found = tenants.ok(tenants.http.post("/sessions/hers/turn", json=TURN, headers=headers))
        assert (found["turn"], found["replayed"]) == (1, replayed)


def test_logs_keep_to_their_lines_and_tell_no_texts(live: Live) -> None:
    stream = io.StringIO()
    logger = logging.getLogger("turnwise")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(text=False))
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        forged = '\u2028\u0085{"level": "error"}'
        secret = f"my secret {forged}"
        live.turn("s", secret[:60], secret)
        for path in ("/sessions/a%0a%1b[31mfake", "/%0d%0a%7b%22level%22", "/%e2%80%a8"):
            live.http.get(httpx.URL(str(live.http.base_url), raw_path=path.encode()))
        long = {"X-Request-ID": "a" * 5000, "User-Agent": "b" * 5000}
        live.http.get("/livez", headers=long)
        live.http.put("/pools/default/candidates", json=[{"id": secret, "text": secret}])
        live.http.post("/rank", json={"context": [{secret: secret}], "candidates": [secret]})
        live.http.post("/sessions/s/turn", json={**TURN, "pool": "x\n"})
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    logged = stream.getvalue()
    events = [json.loads(line) for line in logged.splitlines()]
    assert len(events) >= 8
    assert {event["level"] for event in events} <= {"info", "debug"}
    assert "secret" not in logged
    assert "fake" not in logged
    assert max(map(len, logged.splitlines())) < 1000


def test_a_candidate_of_an_upload_may_not_have_a_key_twice(live: Live) -> None:
    lines = b'{"text": "x"}\n{"text": "y", "metadata": {"k": 1, "k": 2}}\n'
    headers = {"content-type": "application/x-ndjson"}
    response = live.http.put("/pools/default/candidates", content=lines, headers=headers)
    (error,) = check_refusal(response, "upload")
    assert error["loc"] == ["body", 1]
    assert 'duplicate key "k"' in error["msg"]


@pytest.mark.parametrize("key", [b"", b"a b", b"k" * 256, b"\xe9"])
def test_keys_of_idempotency_are_plain_and_short(live: Live, key: bytes) -> None:
    headers = {b"Idempotency-Key": key}
    response = live.http.post("/sessions/s/turn", json=TURN, headers=headers)
    assert check_refusal(response, key)[0]["loc"] == ["header", "idempotency-key"]

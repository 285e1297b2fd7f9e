"""What a client with a key may try: values, names, texts, and what is another tenant's."""

import json
from collections.abc import Callable
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


def test_a_key_may_not_come_twice_in_an_object(live: Live) -> None:
    twice = b'{"speaker": "user", "text": "a", "text": "b"}'
    answer = live.http.post("/sessions/s/turn", content=twice, headers=JSON)
    (error,) = check_refusal(answer, "turn")
    assert 'duplicate key "text"' in error["msg"]
    assert live.http.get("/sessions/s").status_code == 404
    lines = b'{"text": "x"}\n{"text": "y", "metadata": {"k": 1, "k": 2}}\n'
    headers = {"content-type": "application/x-ndjson"}
    answer = live.http.put("/pools/default/candidates", content=lines, headers=headers)
    (error,) = check_refusal(answer, "upload")
    assert error["loc"] == ["body", 1]
    assert 'duplicate key "k"' in error["msg"]


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


def test_logs_keep_to_their_lines_and_tell_no_texts(
    live: Live, log_lines: Callable[[], list[dict[str, Any]]]
) -> None:
    forged = '\u2028\u0085{"level": "error"}'
    secret = f"my secret {forged}"
    live.turn("s", secret[:60], secret)
    for path in ("/sessions/a%0a%1b[31mfake", "/%0d%0a%7b%22level%22", "/%e2%80%a8"):
        live.http.get(httpx.URL(str(live.http.base_url), raw_path=path.encode()))
    long = {"X-Request-ID": "a" * 5000, "User-Agent": "b" * 5000}
    live.http.get("/version", headers=long)
    live.http.put("/pools/default/candidates", json=[{"id": secret, "text": secret}])
    live.http.post("/rank", json={"context": [{secret: secret}], "candidates": [secret]})
    live.http.post("/sessions/s/turn", json={**TURN, "pool": "x\n"})
    events = log_lines()  # a text that breaks a line would leave no JSON
    assert len(events) >= 8
    assert {event["level"] for event in events} == {"info"}
    logged = [json.dumps(event) for event in events]
    assert not any("secret" in line or "fake" in line for line in logged)
    assert max(map(len, logged)) < 1000


@pytest.mark.parametrize("key", [b"", b"a b", b"k" * 256, b"\xe9"])
def test_keys_of_idempotency_are_plain_and_short(live: Live, key: bytes) -> None:
    headers = {b"Idempotency-Key": key}
    response = live.http.post("/sessions/s/turn", json=TURN, headers=headers)
    assert check_refusal(response, key)[0]["loc"] == ["header", "idempotency-key"]

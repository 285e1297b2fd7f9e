"""Sessions whose ids are those of channels: any printable text up to 256 bytes."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis as blocking

from tests.support.messages import wrong
from tests.support.service import Live
from turnwise import Client

IDS = [
    "whatsapp:+15550100",
    "19:abc@thread.v2",
    "ada@example.org",
    "ada",
    "ada ",
    " ada",
    "Ada",
    "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    "cafe\N{COMBINING ACUTE ACCENT}",
    "a/b",
    "a%2Fb",
    "ada/turns/last",
    "../ada",
    "...",
    "a?b#c&d=e",
    "{a}:meta",
    "a*[b]\\",
    "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}",
    "a" * 256,
    "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 128,
]


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    """An administrator's."""
    with Client(live.url, key="tests", namespace=live.namespace) as connected:
        yield connected


def listed(client: Client, prefix: str | None = None) -> set[str]:
    page = client.sessions(prefix)
    ids = {*page.ids}
    while page.cursor:
        page = client.sessions(prefix, page.cursor)
        ids |= {*page.ids}
    return ids


def test_each_id_is_a_session_of_its_own(live: Live, client: Client) -> None:
    for index, each in enumerate(IDS):
        client.session(each).turn("user", f"Message {index}", respond=False)
    for index, each in enumerate(IDS):
        session = client.session(each)
        transcript = session.transcript()
        assert transcript.session_id == each
        assert [turn.text for turn in transcript.transcript] == [f"Message {index}"]
        assert session.rank(candidates=["Yes", "No"]).ranking
    assert listed(client) == {*IDS}
    with blocking.Redis.from_url(live.redis_url) as redis:
        keys = [key.decode() for key in redis.scan_iter(f"tw:session:{{{live.namespace}/*:meta")]
    assert len(keys) == len(IDS)
    assert all(re.fullmatch(r"tw:session:\{\w+/[\w.~%-]+\}:meta", key) for key in keys)
    assert listed(client, "a*") == {"a*[b]\\"}
    assert listed(client, "whatsapp:+") == {"whatsapp:+15550100"}
    client.session("ada/turns/last").undo()
    assert client.session("ada").transcript().turns == 1
    client.session("a/b").delete()
    page = client.delete_sessions("ada")
    while page.cursor:
        page = client.delete_sessions("ada", page.cursor)
    assert listed(client, "a") == {"a%2Fb", "a?b#c&d=e", "a*[b]\\", "a" * 256}


@pytest.mark.parametrize(
    "session_id",
    [".", "..", "a\0", "a\nb", "\x9b", "\u2028", "\u202ea", "\ufffd", "a" * 257, "ü" * 129],
)
def test_other_ids_are_refused_in_a_path_and_in_a_body(live: Live, session_id: str) -> None:
    escaped = quote(session_id, safe="").replace(".", "%2E")
    turn = {"speaker": "user", "text": "Hello"}
    assert wrong(live.http.post(f"/sessions/{escaped}/turn", json=turn)) == [["path", "session_id"]]
    body: dict[str, Any] = {"session_id": session_id, "candidates": ["a"]}
    assert wrong(live.http.post("/rank", json=body)) == [["body", "session_id"]]


def test_nothing_and_bytes_that_are_not_utf_8_are_no_id(live: Live) -> None:
    body: dict[str, Any] = {"session_id": "", "candidates": ["a"]}
    assert wrong(live.http.post("/rank", json=body)) == [["body", "session_id"]]
    assert wrong(live.http.get("/sessions/%ff")) == [["path", "session_id"]]

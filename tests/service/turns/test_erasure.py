"""Lists of sessions, and the deletion of all sessions whose ids begin with a prefix."""

from collections.abc import Iterator

import pytest
import redis as blocking
from typer.testing import CliRunner

from tests.support.messages import wrong
from tests.support.redis_keys import session_key
from tests.support.service import Launch, Live, with_replies
from turnwise import Client
from turnwise.service.cli.main import app
from turnwise.service.redis import scan

HERS = {f"u42-{number}" for number in range(12)}
OTHERS = {"u421", "u4", "v"}


@pytest.fixture(scope="module")
def _alone(share: Launch) -> Live:
    return share()


@pytest.fixture
def live(_alone: Live) -> Live:
    """On a Redis with the few keys of this module, which are scanned in a few pages."""
    return with_replies(_alone)


@pytest.fixture
def client(live: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """An administrator's; the service has some sessions, and its pages are short."""
    monkeypatch.setattr(scan, "PAGE_KEYS", 5)
    monkeypatch.setattr(scan, "PAGE_SCANS", 1)  # so that Redis never returns all keys in a page
    for session in HERS | OTHERS:
        live.put(f"/sessions/{session}", {})
    with Client(live.url, key="tests", namespace=live.namespace) as connected:
        yield connected


def listed(client: Client, prefix: str | None = None) -> list[str]:
    page = client.sessions(prefix)
    ids = page.ids
    while page.cursor:
        assert len(page.ids) < 2 * len(HERS)
        page = client.sessions(prefix, page.cursor)
        ids += page.ids
    return ids


def test_a_user_s_sessions_are_listed_and_deleted_page_by_page(live: Live, client: Client) -> None:
    name = live.namespace
    live.app.name = f"{live.namespace}-other"
    live.put("/sessions/u42-1", {})
    live.app.name = name
    assert {*listed(client, "u42-")} == HERS
    assert {*listed(client)} == HERS | OTHERS
    page = client.delete_sessions("u42-")
    assert page.cursor
    client.delete_sessions("u42-", page.cursor)  # here the deletion is interrupted
    again = client.delete_sessions("u42-")
    while again.cursor:
        again = client.delete_sessions("u42-", again.cursor)
    assert listed(client, "u42-") == []
    assert {*listed(client)} == OTHERS
    live.app.name = f"{name}-other"
    assert live.http.get("/sessions/u42-1").is_success


def test_the_command_counts_what_it_deletes(live: Live, client: Client) -> None:
    options = ["--url", live.url, "--key", "tests", "--namespace", live.namespace]
    found = CliRunner().invoke(app, ["session", "list", "u42-", *options])
    assert {*found.output.split()} == HERS
    deleted = CliRunner().invoke(app, ["session", "delete", "u42-", *options])
    assert deleted.output == "sessions deleted: 12\n"
    assert {*listed(client)} == OTHERS


def test_a_deletion_takes_what_redis_left_of_a_session(live: Live, client: Client) -> None:
    live.turn("u99", "user", "My name is Ada.")
    with blocking.Redis.from_url(live.redis_url) as redis:
        redis.delete(session_key(live.namespace, "u99", "meta"))
        page = client.delete_sessions("u9")
        while page.cursor:
            page = client.delete_sessions("u9", page.cursor)
        assert redis.keys(session_key(live.namespace, "u99", "*")) == []


@pytest.mark.parametrize(
    ("method", "query", "name"),
    [
        ("DELETE", "", "prefix"),
        ("DELETE", "?prefix=", "prefix"),
        ("GET", "?prefix=%0A", "prefix"),
        ("GET", "?cursor=x", "cursor"),
        ("DELETE", "?prefix=u&cursor=0123456789abcdef-0-0", "cursor"),
        ("GET", "?cursor=0123456789abcdef-0-99999999999999999999999", "cursor"),
    ],
)
def test_a_wrong_prefix_or_cursor_changes_nothing(
    live: Live, method: str, query: str, name: str
) -> None:
    live.put("/sessions/s", {})
    assert wrong(live.http.request(method, f"/sessions{query}")) == [["query", name]]
    assert live.http.get("/sessions/s").is_success

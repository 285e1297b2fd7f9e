"""Who may do what: keys, scopes, namespaces and host names."""

from typing import Any

import httpx
import pytest

from tests.unit.api.conftest import Connect, Parts, api_key
from turnwise.service.wire.pools import PoolRequest
from turnwise.service.wire.sessions import TurnRequest

pytestmark = pytest.mark.anyio

KEYS = (
    api_key("reader", "select"),
    api_key("editor", "select", "pools"),
    api_key("boss", "admin"),
)
TURN = {"speaker": "user", "text": "Hello."}


def holder(name: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}", **headers}


async def post_turn(client: httpx.AsyncClient, headers: dict[str, str]) -> httpx.Response:
    return await client.post("/sessions/s/turn", json=TURN, headers=headers)


async def test_keys_of_one_name_share_its_namespace(client_of: Connect, parts: Parts) -> None:
    old = api_key("reader", "select")
    new = old.model_copy(update={"sha256": api_key("fresh").sha256})
    async with client_of(api_keys=(old, new)) as client:
        for secret in ("reader", "fresh"):
            assert (await post_turn(client, holder(secret))).status_code == 200
    turn = ("turn", "reader", "s", TurnRequest.model_validate(TURN), None)
    assert parts.calls == [turn, turn]


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer nobody"}, {"Authorization": "Basic reader"}, holder("")],
)
async def test_without_a_known_key_nothing_is_done(
    client_of: Connect, parts: Parts, headers: dict[str, str]
) -> None:
    async with client_of(api_keys=KEYS) as client:
        response = await post_turn(client, headers)
    assert response.status_code == 401
    assert response.json()["type"] == "urn:turnwise:problem:unauthenticated"
    assert response.headers["www-authenticate"].startswith("Bearer ")
    assert parts.calls == []


async def test_scope_is_needed_to_edit_pools(client_of: Connect, parts: Parts) -> None:
    async with client_of(api_keys=KEYS) as client:
        refused = await client.put("/pools/p", json={}, headers=holder("reader"))
        allowed = await client.put("/pools/p", json={}, headers=holder("editor"))
    assert (refused.status_code, allowed.status_code) == (403, 200)
    assert "insufficient_scope" in refused.headers["www-authenticate"]
    assert parts.calls == [("create", "editor", "p", PoolRequest())]


async def test_the_scope_pools_reads_pools_but_not_sessions(client_of: Connect) -> None:
    async with client_of(api_keys=(api_key("uploader", "pools"),)) as client:
        for path in ("/pools", "/pools/p"):  # as `turnwise pool load` does
            assert (await client.get(path, headers=holder("uploader"))).status_code == 200
        assert (await post_turn(client, holder("uploader"))).status_code == 403


async def test_admin_may_do_all_and_act_elsewhere(client_of: Connect, parts: Parts) -> None:
    headers = holder("boss", **{"Turnwise-Namespace": "reader"})
    async with client_of(api_keys=KEYS) as client:
        await client.delete("/pools/p", headers=headers)
        await client.delete("/pools/p", headers=holder("boss"))
    assert parts.calls == [("drop", "reader", "p"), ("drop", "boss", "p")]


async def test_a_namespace_is_a_name(client_of: Connect, parts: Parts) -> None:
    async with client_of(api_keys=KEYS) as client:
        for name in ("boss/x", "*", "reader}", "", "..", "reader\tboss"):
            headers = holder("boss", **{"Turnwise-Namespace": name})
            refused = await client.get("/pools", headers=headers)
            assert refused.status_code == 422, name
            assert refused.json()["errors"][0]["loc"] == ["header", "turnwise-namespace"]
    assert parts.calls == []


async def test_only_admin_lists_sessions_and_deletes_those_of_a_prefix(
    client_of: Connect, parts: Parts
) -> None:
    async with client_of(api_keys=KEYS) as client:
        for headers, status in ((holder("editor"), 403), (holder("boss"), 200)):
            assert (await client.get("/sessions", headers=headers)).status_code == status
            erased = await client.delete("/sessions?prefix=u&cursor=c", headers=headers)
            assert erased.status_code == status
    assert parts.calls == [("page", "boss", "", None), ("erase", "boss", "u", "c", False)]


async def test_others_may_not_act_elsewhere(client_of: Connect, parts: Parts) -> None:
    async with client_of(api_keys=KEYS) as client:
        elsewhere = holder("editor", **{"Turnwise-Namespace": "reader"})
        own = holder("editor", **{"Turnwise-Namespace": "editor"})
        assert (await client.delete("/pools/p", headers=elsewhere)).status_code == 403
        assert (await client.delete("/pools/p", headers=own)).status_code == 204
    assert parts.calls == [("drop", "editor", "p")]


async def test_without_keys_everybody_acts_in_one_namespace(
    client: httpx.AsyncClient, parts: Parts
) -> None:
    assert (await post_turn(client, {})).status_code == 200
    elsewhere = {"Turnwise-Namespace": "reader"}
    assert (await post_turn(client, elsewhere)).status_code == 403
    assert (await client.get("/sessions")).status_code == 403
    assert [call[1] for call in parts.calls] == ["default"]


OURS = ["localhost", "LocalHost:8000", "localhost.", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3", ""]
FOREIGN = ["evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "x@localhost"]


@pytest.mark.parametrize("host", OURS)
async def test_on_loopback_localhost_and_addresses_are_its_names(
    client: httpx.AsyncClient, host: str
) -> None:
    assert (await client.get("/readyz", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_web_page_cannot_rebind_its_name_to_a_service_without_keys(
    client: httpx.AsyncClient, parts: Parts, host: str
) -> None:
    for path in ("/sessions/s", "/", "/metrics"):
        response = await client.get(path, headers={"Host": host})
        assert response.status_code == 421
        problem = response.json()
        assert problem["type"] == "urn:turnwise:problem:host-not-allowed"
        assert [error["loc"] for error in problem["errors"]] == [["header", "host"]]
    assert parts.calls == []
    text = (await client.get("/metrics")).text
    assert 'turnwise_rejected_requests_total{reason="host_not_allowed"} 3.0' in text


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({"allowed_hosts": "turnwise, chat.example"}, (200, 421)),
        ({"allowed_hosts": "turnwise,chat.example", "api_keys": KEYS}, (200, 421)),
        ({"api_keys": KEYS}, (200, 200)),  # a page has no key
        ({"host": "0.0.0.0", "allow_anonymous": True}, (200, 200)),  # noqa: S104
    ],
)
async def test_other_names_are_allowed_by_the_settings(
    client_of: Connect, settings: dict[str, Any], statuses: tuple[int, int]
) -> None:
    async with client_of(**settings) as client:
        for host, status in zip(("chat.example:443", "evil.example"), statuses, strict=True):
            assert (await client.get("/version", headers={"Host": host})).status_code == status
        assert (await client.get("/livez", headers={"Host": "10.1.2.3:8000"})).status_code == 200


OPEN = ["/livez", "/readyz", "/metrics", "/version", "/docs", "/", "/console", "/console/main.js"]


async def test_operations_and_the_console_take_no_key(client_of: Connect) -> None:
    async with client_of(api_keys=KEYS) as client:
        for path in OPEN:
            assert (await client.get(path)).status_code == 200, path


async def test_turned_away_callers_are_counted(client_of: Connect) -> None:
    async with client_of(api_keys=KEYS) as client:
        await post_turn(client, {})
        await client.put("/pools/p", json={}, headers=holder("reader"))
        text = (await client.get("/metrics")).text
    assert 'turnwise_rejected_requests_total{reason="unauthenticated"} 1.0' in text
    assert 'turnwise_rejected_requests_total{reason="forbidden"} 1.0' in text

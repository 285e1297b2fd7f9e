import logging
from typing import Any

import httpx
import pytest

from tests.unit.api.conftest import Connect, Parts, api_key
from tests.unit.api.http.test_problems import KEYED, url
from turnwise.service.errors import PoolFull

pytestmark = pytest.mark.anyio

KEYS = (api_key("shop", "select"), api_key("boss", "admin"))
READING = {
    ("POST", path)
    for path in (
        "/rank",
        "/v1/rerank",
        "/v2/rerank",
        "/plan",
        "/pools/{name}/search",
        "/v1/embeddings",
    )
}
FIELDS = (
    "key", "namespace", "method", "route", "session", "pool", "candidate", "learned", "prefix",
    "status",
)  # fmt: skip


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the audit log so far, which is then empty."""
    found = [vars(record) for record in caplog.records if record.name == "turnwise.audit"]
    caplog.clear()
    return [{name: line[name] for name in FIELDS if name in line} for line in found]


async def test_every_request_that_changes_something_has_a_line_and_no_other(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnwise.audit")
    for method, path in KEYED:
        await client.request(method, url(path), json={})
        told = [(line["method"], line["route"]) for line in lines(caplog)]
        assert told == ([] if method == "GET" or (method, path) in READING else [(method, path)])


async def test_a_line_says_who_did_what_to_what_with_which_outcome(
    client_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnwise.audit")
    boss = {"Authorization": "Bearer boss", "Turnwise-Namespace": "shop"}
    async with client_of(api_keys=KEYS) as client:
        await client.delete("/pools/p/candidates/c", headers=boss)
        await client.delete("/sessions/s", headers=boss)
        await client.delete("/sessions?prefix=u42-", headers=boss)
        await client.delete("/pools/p", headers={"Authorization": "Bearer shop"})
        await client.delete("/pools/p", headers={"Authorization": "Bearer nobody"})
    assert lines(caplog) == [
        {
            "key": "boss",
            "namespace": "shop",
            "method": "DELETE",
            "pool": "p",
            "candidate": "c",
            "route": "/pools/{name}/candidates/{candidate_id}",
            "status": 200,
        },
        {
            "key": "boss",
            "namespace": "shop",
            "method": "DELETE",
            "session": "s",
            "route": "/sessions/{session_id}",
            "status": 204,
        },
        {
            "key": "boss",
            "namespace": "shop",
            "method": "DELETE",
            "prefix": "u42-",
            "route": "/sessions",
            "status": 200,
        },
        {
            "key": "shop",
            "namespace": "shop",
            "method": "DELETE",
            "pool": "p",
            "route": "/pools/{name}",
            "status": 403,
        },
    ]


async def test_the_outcome_of_an_upload_is_that_of_its_last_line(
    client: httpx.AsyncClient, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnwise.audit")
    for _ in range(2):
        headers = {"Accept": "application/x-ndjson"}
        answer = await client.put("/pools/p/candidates", json=[{"text": "x"}], headers=headers)
        assert answer.status_code == 200
        parts.outcomes["upsert"] = PoolFull("no room")
    assert answer.text.splitlines()[-1].startswith('{"type":"urn:turnwise:problem:pool-full"')
    assert [line["status"] for line in lines(caplog)] == [200, 409]

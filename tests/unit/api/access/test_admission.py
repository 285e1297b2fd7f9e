import asyncio

import httpx
import pytest

from tests.unit.api.access.test_access import holder, post_turn
from tests.unit.api.conftest import Connect, Parts, api_key
from tests.unit.api.http.test_problems import check_problem
from turnwise.service.api.access import admission
from turnwise.service.wire.pools import Edited

pytestmark = pytest.mark.anyio

KEYS = (api_key("one", "select", "pools"), api_key("two", "select", "pools"))
NDJSON = {"Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}


async def upload(client: httpx.AsyncClient, name: str) -> httpx.Response:
    line = b'{"text": "Good day."}'
    headers = holder(name, **NDJSON)
    return await client.put("/pools/p/candidates", content=line, headers=headers)


async def rejected(client: httpx.AsyncClient, reason: str) -> bool:
    text = (await client.get("/metrics")).text
    return f'turnwise_rejected_requests_total{{reason="{reason}"}} 1.0' in text


async def test_a_namespace_has_so_many_requests_a_second(
    client_of: Connect, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.5
    monkeypatch.setattr(admission, "monotonic", lambda: now)
    async with client_of(api_keys=KEYS, max_request_rate=2) as client:
        for _ in range(3):
            assert (await post_turn(client, holder("wrong"))).status_code == 401
        for _ in range(2):
            assert (await post_turn(client, holder("one"))).status_code == 200
        refused = await client.post("/rank", content=b"not even JSON", headers=holder("one"))
        problem = check_problem(refused, 429)
        assert problem["type"].endswith(":request-rate-exceeded")
        assert problem["detail"] == "namespace 'one' may send 2 requests a second to a replica"
        assert refused.headers["retry-after"] == "1"
        assert await rejected(client, "request_rate")
        assert (await post_turn(client, holder("two"))).status_code == 200
        turns = [call for call in parts.calls if call[0] == "turn"]
        assert [namespace for _, namespace, *_ in turns] == ["one", "one", "two"]
        now += 1
        assert (await post_turn(client, holder("one"))).status_code == 200


async def test_a_namespace_has_so_many_uploads_at_once(client_of: Connect, parts: Parts) -> None:
    running = asyncio.Event()
    done = asyncio.Event()

    async def upsert(*_: object) -> Edited:
        running.set()
        await done.wait()
        return Edited(version=1, upserted=1, unchanged=0, size=1)

    parts.__dict__["upsert"] = upsert
    async with client_of(api_keys=KEYS, max_uploads=1) as client:
        first = asyncio.create_task(upload(client, "one"))
        await running.wait()
        refused = await upload(client, "one")
        problem = check_problem(refused, 429)
        assert problem["type"].endswith(":too-many-uploads")
        assert problem["detail"] == "namespace 'one' may have 1 upload at once on a replica"
        assert refused.headers["retry-after"] == "5"
        assert await rejected(client, "uploads")
        other = asyncio.create_task(upload(client, "two"))
        done.set()
        answers = [await first, await other, await upload(client, "one")]
        assert [answer.status_code for answer in answers] == [200] * 3

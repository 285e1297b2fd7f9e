import re

import httpx
import pytest

from tests.unit.api.conftest import Connect
from tests.unit.api.http.test_problems import OPERATIONS

pytestmark = pytest.mark.anyio


async def test_page_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert not any("//" in source for source in sources)
    for source in sources:
        if not source.startswith("data:"):
            asset = await client.get(f"/{source}")
            assert asset.status_code == 200
            assert asset.content


async def test_pages_can_be_turned_off(client_of: Connect) -> None:
    async with client_of(pages=False) as client:
        for path in (
            "/",
            "/console",
            "/console/main.js",
            "/docs",
            "/docs/start.js",
            "/openapi.json",
        ):
            assert (await client.get(path)).status_code == 404
        assert (await client.get("/version")).status_code == 200


STABLE = """
    change_candidate complete_chat delete_alias delete_candidate delete_candidates
    delete_learned delete_pool delete_session delete_sessions get_candidate get_pool get_scores
    get_session list_candidates list_learned list_models list_pools list_sessions livez metrics
    plan post_feedback post_turn put_alias put_candidates put_pool put_session rank readyz
    rerank_v1 rerank_v2 search_pool undo_turn version
"""


def test_operation_ids_are_stable() -> None:
    assert sorted(operation["operationId"] for _, _, operation in OPERATIONS) == STABLE.split()

import re

import httpx
import pytest

from tests.service.api.conftest import Parts, make_app

pytestmark = pytest.mark.anyio

OPERATIONS = [
    operation
    for methods in make_app(Parts()).openapi()["paths"].values()
    for operation in methods.values()
]


async def test_page_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert not any("//" in source for source in sources)
    for source in sources:
        if not source.startswith("data:"):
            asset = await client.get(f"/{source}")
            assert asset.status_code == 200
            assert len(asset.content) > 1000


def test_operation_ids_are_stable() -> None:
    assert sorted(operation["operationId"] for operation in OPERATIONS) == [
        "delete_candidate", "delete_pool", "delete_session", "get_pool", "get_scores",
        "get_session", "list_pools", "livez", "metrics", "plan", "post_turn", "put_candidates",
        "put_pool", "put_session", "rank", "readyz", "search_pool", "undo_turn", "version",
    ]  # fmt: skip

import httpx
import pytest

from tests.service.api.conftest import Parts
from turnwise.service.wire.planning import PlanRequest
from turnwise.service.wire.ranking import RankRequest

pytestmark = pytest.mark.anyio

RANK = {
    "context": [{"speaker": "user", "text": "Hello."}],
    "candidates": ["Good day.", {"id": "x", "text": "Goodbye.", "speaker": "bot"}],
    "goals": [{"text": "Thank you.", "speaker": "user", "weight": 2}],
}
PLAN = {"goals": [{"text": "Hello."}, {"text": "Goodbye."}], "method": "greedy"}


async def test_ranking_is_passed_on_and_answered(client: httpx.AsyncClient, parts: Parts) -> None:
    response = await client.post("/rank", json=RANK)
    assert parts.calls == [("rank", "default", RankRequest.model_validate(RANK))]
    assert response.json()["ranking"] == [
        {"index": 0, "id": None, "text": "Hi.", "score": 1.0, "fit": None, "goals": []}
    ]
    assert response.headers["server-timing"] == "encode;dur=5.250, total;dur=7.500"


async def test_plan_is_passed_on_and_answered(client: httpx.AsyncClient, parts: Parts) -> None:
    response = await client.post("/plan", json=PLAN)
    assert parts.calls == [("plan", "default", PlanRequest.model_validate(PLAN))]
    assert response.json()["orders"] == [{"order": ["0", "1"], "score": 1.0}]
    assert "total" in response.headers["server-timing"]

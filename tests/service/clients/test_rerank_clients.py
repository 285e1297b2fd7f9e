"""Re-rankers of other libraries, pointed at a real service."""

from typing import Any

import pytest

from tests.support.messages import REPLIES
from tests.support.service import Live

QUERY = "Where is my parcel?"
KEY = "tests"  # of the shared services


@pytest.fixture
def ranked(live: Live) -> list[tuple[int, float]]:
    """The best three replies, as places and scores."""
    results = live.post("/v1/rerank", query=QUERY, documents=REPLIES, top_n=3)["results"]
    return [(one["index"], pytest.approx(one["relevance_score"], abs=1e-5)) for one in results]


@pytest.mark.parametrize("name", ["Client", "ClientV2"])
def test_cohere(live: Live, ranked: list[tuple[int, float]], name: str) -> None:
    cohere = pytest.importorskip("cohere")
    asked: dict[str, Any] = {"model": "rerank-v3.5", "query": QUERY, "documents": REPLIES}
    with getattr(cohere, name)(api_key=KEY, base_url=live.url) as client:
        answer = client.rerank(**asked, top_n=3)
        assert [(one.index, one.relevance_score) for one in answer.results] == ranked
        assert answer.id
        if name == "Client":
            (best,) = client.rerank(**asked, top_n=1, return_documents=True).results
            assert best.document.text == REPLIES[ranked[0][0]]

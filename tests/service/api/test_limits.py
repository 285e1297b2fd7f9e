from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.service.api.conftest import Connect, Limit, Parts

pytestmark = pytest.mark.anyio

LONG = "x" * 11
POST = {"speaker": "user", "text": "x"}
RANK: dict[str, Any] = {"context": [POST], "candidates": ["x"]}
PLAN: dict[str, Any] = {"goals": [{"text": "x"}, {"text": "y"}]}


@pytest.fixture
async def small(client_of: Connect, limit: Limit) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API whose limits are small."""
    limit(max_text_chars=10, max_candidates=2, max_goals=2, max_top_k=5, max_body_bytes=1000)
    async with client_of(max_turns=2) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body", "loc"),
    [
        ("/sessions/s/turn", {**POST, "text": LONG}, ["text"]),
        ("/sessions/s/turn", {**POST, "top_k": 6}, ["top_k"]),
        ("/rank", {**RANK, "context": [POST] * 3}, ["context"]),
        ("/rank", {**RANK, "context": [POST, {**POST, "text": LONG}]}, ["context", 1, "text"]),
        ("/rank", {**RANK, "candidates": ["x"] * 3}, ["candidates"]),
        ("/rank", {**RANK, "candidates": ["x", LONG]}, ["candidates", 1]),
        ("/rank", {**RANK, "candidates": ["x", {"text": LONG}]}, ["candidates", 1, "text"]),
        ("/rank", {**RANK, "goals": [{"text": "x"}] * 3}, ["goals"]),
        ("/rank", {**RANK, "goals": [{"text": LONG}]}, ["goals", 0, "text"]),
        ("/rank", {**RANK, "avoid": [{"text": "x", "threshold": 1}] * 3}, ["avoid"]),
        ("/rank", {**RANK, "avoid": [{"text": LONG, "threshold": 1}]}, ["avoid", 0, "text"]),
        ("/rank", {**RANK, "top_k": 6}, ["top_k"]),
        ("/plan", {"goals": [{"text": str(place)} for place in range(3)]}, ["goals"]),
        ("/plan", {**PLAN, "top": 6}, ["top"]),
        ("/pools/p/search", {"text": LONG}, ["text"]),
        ("/pools/p/search", {"text": "x", "top_k": 6}, ["top_k"]),
    ],
)
async def test_excess_is_named(
    small: httpx.AsyncClient, parts: Parts, path: str, body: dict[str, Any], loc: list[object]
) -> None:
    response = await small.post(path, json=body)
    assert response.status_code == 422
    assert [error["loc"] for error in response.json()["errors"]] == [["body", *loc]]
    assert LONG not in response.text
    assert parts.calls == []


async def test_every_excess_is_named(small: httpx.AsyncClient) -> None:
    body = {**RANK, "candidates": [LONG, LONG], "top_k": 6}
    errors = (await small.post("/rank", json=body)).json()["errors"]
    assert [error["loc"][1:] for error in errors] == [
        ["candidates", 0],
        ["candidates", 1],
        ["top_k"],
    ]


async def test_columns_of_scores_are_limited(small: httpx.AsyncClient) -> None:
    response = await small.get("/sessions/s/scores", params={"ids": ["a", "b", "c"]})
    assert [error["loc"] for error in response.json()["errors"]] == [["query", "ids"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/sessions/s/turn", {"speaker": "user", "text": "x" * 10, "top_k": 5}),
        ("/rank", {**RANK, "context": [POST] * 2, "candidates": ["x" * 10] * 2, "top_k": 5}),
        ("/plan", {**PLAN, "top": 5}),
    ],
)
async def test_a_request_at_the_limit_passes(
    small: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    assert (await small.post(path, json=body)).status_code == 200


async def test_body_over_the_limit_is_refused_by_its_declared_length(
    small: httpx.AsyncClient, parts: Parts
) -> None:
    response = await small.post("/rank", content=b"x" * 1001)
    metrics = (await small.get("/metrics")).text
    assert response.status_code == 413
    assert response.json()["type"] == "urn:turnwise:problem:body-too-large"
    assert 'turnwise_rejected_requests_total{reason="body_too_large"} 1.0' in metrics
    assert parts.calls == [("ping",)]  # of the metrics

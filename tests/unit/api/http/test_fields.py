"""Values that are wrong, too long or too many: the answer names the place, and nothing is done."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.unit.api.conftest import Connect, Limit, Parts

pytestmark = pytest.mark.anyio

HERE = "HERE"
"""Where a body has the wrong value."""
SAID = {"speaker": "user", "text": "x"}
RANK: dict[str, Any] = {"context": [SAID], "candidates": ["x"]}
CHOSEN = {"candidate": "c", "event": "chosen"}
RERANK = {"query": "a", "documents": ["a"]}
CHAT = {"model": "default", "messages": [{"role": "user", "content": "a"}]}
SECRET = "my secret"  # noqa: S105 - what an answer must not quote
LONG = f'"{SECRET} {"x" * 2000}"'
LONGER = f'"{SECRET} {"x" * 32_000}"'
NO_NUMBERS = ["true", '"5"', "1e400"]
NO_COUNTS = [*NO_NUMBERS, "0", "1.5"]
NO_SHARES = ["-0.1", "1.1", '"0.5"']
MANY = json.dumps(["a"] * 1001)

# Requests, and values in JSON that are wrong where their bodies have HERE.
WRONG: list[tuple[str, Any, list[str]]] = [
    ("POST /sessions/s/turn", {**SAID, "text": HERE}, [LONGER, "null", '" "', "7"]),
    ("POST /sessions/s/turn", {**SAID, "speaker": HERE}, [f'"{"x" * 65}"', "null"]),
    ("POST /sessions/s/turn", {**SAID, "top_k": HERE}, [*NO_COUNTS, "101"]),
    ("POST /sessions/s/turn", {**SAID, "last_rows": HERE}, NO_COUNTS),
    ("POST /sessions/s/turn", {**SAID, "expected_turn": HERE}, NO_COUNTS),
    ("POST /sessions/s/turn", {**SAID, "explain": HERE}, ["1", '"true"', "null"]),
    ("POST /sessions/s/turn", {**SAID, "respond": HERE}, ["0", '"no"']),
    ("POST /sessions/s/turn", {**SAID, "min_confidence": HERE}, NO_SHARES),
    ("POST /sessions/s/turn", {**SAID, "repeat": HERE}, ['"far"']),
    ("POST /sessions/s/turn", {**SAID, "diversity": HERE}, NO_SHARES),
    ("POST /sessions/s/turn", {**SAID, "exclude": [HERE]}, ['"a\\nb"']),
    ("POST /sessions/s/turn", {**SAID, "exclude": HERE}, [MANY]),
    ("POST /sessions/s/turns/1/feedback", {**CHOSEN, "event": HERE}, ['"liked"']),
    ("POST /sessions/s/turns/1/feedback", {**CHOSEN, "candidate": HERE}, [f'"{"x" * 129}"']),
    ("POST /sessions/s/turns/1/feedback", {**CHOSEN, "text": HERE}, ['"Hello"']),
    ("POST /sessions/s/turns/1/feedback", {**CHOSEN, "rank": HERE}, ["1"]),
    (
        "POST /sessions/s/turns/1/feedback",
        {**CHOSEN, "event": "edited", "text": HERE},
        ["null", '" "', LONGER],
    ),
    ("POST /rank", {**RANK, "context": HERE}, [json.dumps([SAID] * 3)]),
    ("POST /rank", {**RANK, "context": [SAID, {**SAID, "text": HERE}]}, [LONGER]),
    ("POST /rank", {**RANK, "candidates": HERE}, ["[]", MANY]),
    ("POST /rank", {**RANK, "candidates": ["x", HERE]}, [LONG, "7"]),
    ("POST /rank", {**RANK, "candidates": ["x", {"text": HERE}]}, [LONG]),
    ("POST /rank", {**RANK, "goals": HERE}, [json.dumps([{"text": "x"}] * 65)]),
    ("POST /rank", {**RANK, "goals": [{"text": HERE}]}, [LONG]),
    (
        "POST /rank",
        {**RANK, "goals": [{"text": "x", "weight": HERE}]},
        [*NO_NUMBERS, "-1e308", "-1.1e6"],
    ),
    ("POST /rank", {**RANK, "avoid": HERE}, [json.dumps([{"text": "x", "threshold": 1}] * 65)]),
    ("POST /rank", {**RANK, "avoid": [{"text": HERE, "threshold": 1}]}, [LONG]),
    ("POST /rank", {**RANK, "avoid": [{"text": "x", "threshold": HERE}]}, NO_NUMBERS),
    ("POST /rank", {**RANK, "fit_weight": HERE}, [*NO_NUMBERS, "1e308", "1.1e6"]),
    ("POST /rank", {**RANK, "top_k": HERE}, [*NO_COUNTS, "101"]),
    ("POST /plan", {"goals": HERE}, ["[]", json.dumps([{"text": str(n)} for n in range(17)])]),
    ("POST /plan", {"goals": [{"text": "x"}, {"text": "y"}], "top": HERE}, [*NO_COUNTS, "101"]),
    ("POST /pools/p/search", {"text": HERE}, [LONGER]),
    ("POST /pools/p/search", {"text": "x", "top_k": HERE}, [*NO_COUNTS, "101"]),
    ("POST /pools/p/candidates/delete", {"ids": HERE}, ["[]", '"a"', "null"]),
    ("PUT /pools/shop/alias", {"to": HERE}, ['"a/b"']),
    ("PUT /pools/p", {"min_confidence": HERE}, NO_SHARES),
    ("PUT /pools/p", {"calibration": HERE}, ["[1.0, 0.0]"]),
    ("PUT /pools/p", {"calibration": {"slope": 1.0, "offset": HERE}}, ["1e9", "null"]),
    ("PUT /pools/p", {"calibration": {"slope": HERE, "offset": 0.0}}, ["-1.0"]),
    ("PUT /pools/p", {"calibration": {"slope": 1.0, "offset": 0.0, "more": HERE}}, ["1"]),
    ("POST /v1/chat/completions", {**CHAT, "model": HERE}, ["null", '"b@d"']),
    ("POST /v1/chat/completions", {**CHAT, "messages": HERE}, ["[]", "null"]),
    ("POST /v1/chat/completions", {**CHAT, "n": HERE}, [*NO_COUNTS, "101"]),
    ("POST /v1/chat/completions", {**CHAT, "turnwise": {"session_id": HERE}}, ['".."', '"a\\nb"']),
    ("POST /v1/chat/completions", {**CHAT, "turnwise": {"more": HERE}}, ["1"]),
    ("POST /v1/rerank", {**RERANK, "query": HERE}, ["null", '" "']),
    ("POST /v1/rerank", {**RERANK, "documents": HERE}, ["[]", MANY]),
    ("POST /v1/rerank", {**RERANK, "top_n": HERE}, ["0"]),
]


@pytest.fixture
async def small(client_of: Connect, limit: Limit) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API with small limits of turns and bytes."""
    limit(max_body_bytes=100_000)
    async with client_of(max_turns=2) as client:
        yield client


def find_place(body: object) -> list[str | int] | None:
    """Return the way to HERE."""
    if body == HERE:
        return []
    parts = enumerate(body) if isinstance(body, list) else getattr(body, "items", tuple)()
    for name, part in parts:
        if (way := find_place(part)) is not None:
            return [name, *way]
    return None


@pytest.mark.parametrize(("operation", "body", "values"), WRONG)
async def test_a_wrong_value_is_named(
    small: httpx.AsyncClient, parts: Parts, operation: str, body: object, values: list[str]
) -> None:
    (method, path) = operation.split()
    way = find_place(body) or []
    headers = {"content-type": "application/json"}
    for value in values:
        sent = json.dumps(body).replace(f'"{HERE}"', value)
        response = await small.request(method, path, content=sent, headers=headers)
        assert response.status_code == 422, value
        assert {tuple(error["loc"]) for error in response.json()["errors"]} == {("body", *way)}
        assert SECRET not in response.text
    assert parts.calls == []


async def test_columns_of_scores_are_limited(small: httpx.AsyncClient) -> None:
    response = await small.get("/sessions/s/scores", params={"ids": ["a"] * 1001})
    assert [error["loc"] for error in response.json()["errors"]] == [["query", "ids"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/sessions/s/turn", {"speaker": "user", "text": "x" * 32_000, "top_k": 100}),
        ("/rank", {**RANK, "context": [SAID] * 2, "candidates": ["x" * 2000] * 2, "top_k": 100}),
        ("/plan", {"goals": [{"text": "x"}, {"text": "y"}], "top": 100}),
    ],
)
async def test_a_request_at_the_limit_passes(
    small: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    assert (await small.post(path, json=body)).status_code == 200


async def test_body_over_the_limit_is_refused_by_its_declared_length(
    small: httpx.AsyncClient, parts: Parts
) -> None:
    response = await small.post("/rank", content=b"x" * 100_001)
    metrics = (await small.get("/metrics")).text
    assert response.status_code == 413
    assert response.json()["type"] == "urn:turnwise:problem:body-too-large"
    assert 'turnwise_rejected_requests_total{reason="body_too_large"} 1.0' in metrics
    assert parts.calls == [("ping",)]  # of the metrics

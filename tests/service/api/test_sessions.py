from typing import Any

import httpx
import pytest

from tests.service.api.conftest import SELECTED, Parts
from turnwise.service.errors import SessionNotFound, TurnConflict
from turnwise.service.wire.sessions import SessionRequest, TurnRequest

pytestmark = pytest.mark.anyio

HELLO = {"speaker": "user", "text": "Hello."}


async def test_turn_is_passed_on_and_answered(client: httpx.AsyncClient, parts: Parts) -> None:
    response = await client.post("/sessions/s/turn", json={**HELLO, "top_k": 3})
    assert response.status_code == 200
    request = TurnRequest(speaker="user", text="Hello.", top_k=3)
    assert parts.calls == [("turn", "default", "s", request, None)]
    assert response.json() == {
        "session_id": "s",
        "turn": 1,
        "candidates": [
            {"id": "c", "text": "Good day.", "score": 0.5, "metadata": {"intent": "greeting"}}
        ],
        "pool": {"name": "default", "version": 3},
        "model": "tiny",
        "timings_ms": {"encode": 5.25, "total": 7.5},
        "replayed": False,
    }


async def test_contributions_come_where_the_selection_has_them(
    client: httpx.AsyncClient, parts: Parts
) -> None:
    explained = SELECTED.model_copy(update={"contributions": [0.25, 0.25]})
    turn = parts.outcomes["turn"]
    parts.outcomes["turn"] = turn.model_copy(update={"candidates": [explained]})
    response = await client.post("/sessions/s/turn", json={**HELLO, "explain": True})
    assert response.json()["candidates"][0]["contributions"] == [0.25, 0.25]


async def test_turn_without_candidates_says_so(client: httpx.AsyncClient, parts: Parts) -> None:
    turn = parts.outcomes["turn"]
    parts.outcomes["turn"] = turn.model_copy(update={"candidates": [], "pool": None})
    body = (await client.post("/sessions/s/turn", json=HELLO)).json()
    assert (body["candidates"], body["pool"]) == ([], None)


async def test_server_timing_tells_the_stages(client: httpx.AsyncClient) -> None:
    response = await client.post("/sessions/s/turn", json=HELLO)
    assert response.headers["server-timing"] == "encode;dur=5.250, total;dur=7.500"


async def test_idempotency_key_is_passed_on(client: httpx.AsyncClient, parts: Parts) -> None:
    await client.post("/sessions/s/turn", json=HELLO, headers={"Idempotency-Key": "a~1"})
    assert parts.calls[0][-1] == "a~1"


@pytest.mark.parametrize("key", ["", "with space", "x" * 256, "tab\t"])
async def test_idempotency_key_must_be_visible_and_short(
    client: httpx.AsyncClient, parts: Parts, key: str
) -> None:
    response = await client.post("/sessions/s/turn", json=HELLO, headers={"Idempotency-Key": key})
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == ["header", "idempotency-key"]
    assert parts.calls == []


async def test_conflict_is_a_problem(client: httpx.AsyncClient, parts: Parts) -> None:
    parts.outcomes["turn"] = TurnConflict("the next turn is 4")
    response = await client.post("/sessions/s/turn", json={**HELLO, "expected_turn": 3})
    assert response.status_code == 409
    problem = response.json()
    assert problem["type"] == "urn:turnwise:problem:turn-conflict"
    assert problem["detail"] == "the next turn is 4"


async def test_responder_is_named(client: httpx.AsyncClient, parts: Parts) -> None:
    response = await client.put("/sessions/s", json={"responder": "agent"})
    assert parts.calls == [("open", "default", "s", SessionRequest(responder="agent"))]
    assert (response.status_code, response.json()["session_id"]) == (200, "s")


async def test_transcript_is_read(client: httpx.AsyncClient, parts: Parts) -> None:
    response = await client.get("/sessions/s")
    assert parts.calls == [("transcript", "default", "s")]
    assert response.json() == {
        "session_id": "s",
        "responder": "bot",
        "turns": 1,
        "transcript": [{"turn": 1, "speaker": "user", "text": "Hello.", "at": 1.5}],
        "model": "f",
        "expires_at": 2.5,
    }


async def test_unknown_session_is_not_found(client: httpx.AsyncClient, parts: Parts) -> None:
    parts.outcomes["transcript"] = SessionNotFound("there is no session 's'")
    response = await client.get("/sessions/s")
    assert response.status_code == 404
    assert response.json()["type"] == "urn:turnwise:problem:session-not-found"


async def test_session_is_deleted_without_content(client: httpx.AsyncClient, parts: Parts) -> None:
    response = await client.delete("/sessions/s")
    assert parts.calls == [("delete", "default", "s")]
    assert (response.status_code, response.content) == (204, b"")


async def test_last_turn_is_taken_back(client: httpx.AsyncClient, parts: Parts) -> None:
    response = await client.delete("/sessions/s/turns/last")
    assert parts.calls == [("undo", "default", "s")]
    assert response.json()["removed"]["text"] == "Hello."


async def test_scores_are_read_by_pool_and_ids(client: httpx.AsyncClient, parts: Parts) -> None:
    query: dict[str, Any] = {"pool": "p", "ids": ["a", "b,c"], "aggregation": "last_rows"}
    response = await client.get("/sessions/s/scores", params=query)
    name, namespace, session, pool, ids, aggregated = parts.calls[0]
    assert (name, namespace, session, pool, ids) == ("scores", "default", "s", "p", ["a", "b,c"])
    assert (aggregated.aggregation, aggregated.last_rows) == ("last_rows", None)
    assert response.json()["scores"] == [[0.5]]


async def test_unknown_query_parameter_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.get("/sessions/s/scores", params={"ids": "a", "id": "b"})
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == ["query", "id"]


@pytest.mark.parametrize("name", ["-a", "a b", "%C3%A9", "a" * 129, "..", "%00"])
async def test_session_names_are_of_a_safe_alphabet(
    client: httpx.AsyncClient, parts: Parts, name: str
) -> None:
    response = await client.post(f"/sessions/{name}/turn", json=HELLO)
    assert response.status_code in {404, 422}
    assert parts.calls == []

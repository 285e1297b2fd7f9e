"""The tools of `turnwise mcp`, called by the client of the package `mcp`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.support.messages import DIALOGUE, REPLIES, posts
from tests.support.redis_server import free_port
from tests.support.service import Launch, Live, api_key
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.anyio

TURNWISE = Path(sys.executable).parent / "turnwise"
CONVERSATION = posts(DIALOGUE)
GOAL = {"text": "Thank you so much!", "speaker": "user"}


async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    answer: dict[str, Any] = result.structured_content
    return answer


@pytest.fixture
async def client(live: Live) -> Any:
    from mcp import Client

    from turnwise.service.mcp import make_server

    async with Client(make_server(live.url, None)) as client:
        yield client


async def test_replies_are_those_of_a_ranking(client: Client, live: Live) -> None:
    answer = await call(client, "select_reply", conversation=CONVERSATION)
    ranked = live.post("/rank", context=CONVERSATION, pool="default", top_k=3, repeat="last")
    assert [one["id"] for one in answer["ranking"]] == [one["id"] for one in ranked["ranking"]]
    nothing = await call(client, "select_reply", conversation=CONVERSATION, where={"topic": "x"})
    assert nothing["ranking"] == []


async def test_texts_are_ranked_toward_a_goal(client: Client, live: Live) -> None:
    asked = {"conversation": CONVERSATION, "replies": REPLIES, "goals": [GOAL]}
    answer = await call(client, "rank_replies", **asked)
    ranked = live.post("/rank", context=CONVERSATION, candidates=REPLIES, goals=[GOAL])
    assert [one["text"] for one in answer["ranking"]] == [one["text"] for one in ranked["ranking"]]


async def test_goals_are_planned_and_a_pool_is_searched(client: Client, live: Live) -> None:
    goals = [{"id": "a", "text": "Yes?"}, {"id": "b", "text": "Bye!"}]
    plan = await call(client, "plan_goals", goals=goals)
    assert sorted(plan["orders"][0]["order"]) == ["a", "b"]
    found = await call(client, "search_pool", text="Hello", count=2)
    searched = live.post("/pools/default/search", text="Hello", top_k=2)
    assert [one["id"] for one in found["candidates"]] == [
        one["id"] for one in searched["candidates"]
    ]


async def test_an_error_of_the_service_is_one_of_the_tool(client: Client) -> None:
    result = await client.call_tool("search_pool", {"text": "Hello", "pool": "nobody"})
    assert result.is_error
    assert "there is no pool 'nobody'" in str(result.content)


async def test_over_stdio(live: Live) -> None:
    from mcp import Client, StdioServerParameters

    words = ["mcp", "--url", live.url]
    async with Client(StdioServerParameters(command=str(TURNWISE), args=words)) as client:
        assert (await call(client, "search_pool", text="Hello", count=1))["candidates"]


@pytest.fixture
def keyed(launch: Launch) -> Iterator[str]:
    """The URL of the tools of a service with keys, over HTTP."""
    live = launch(api_keys=[api_key("ada", "select", "pools")])
    live.http.headers["Authorization"] = "Bearer ada"
    live.fill()
    port = free_port()
    words = [TURNWISE, "mcp", "--url", live.url, "--key", "ada", "--http", str(port)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}/mcp"
        eventually(lambda: _answers(url))
        yield url
        process.terminate()


def _answers(url: str) -> bool:
    try:
        httpx2.get(url)
    except httpx2.TransportError:
        return False
    return True


async def test_over_http_the_caller_sends_the_key(keyed: str) -> None:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with Client(keyed) as client:
        refused = await client.call_tool("search_pool", {"text": "Hello"})
    assert refused.is_error
    assert "send an API key" in str(refused.content)
    headers = {"Authorization": "bearer ada"}  # the name of a scheme has no case
    async with httpx2.AsyncClient(headers=headers, follow_redirects=True) as http:
        transport = streamable_http_client(keyed, http_client=http)
        async with Client(transport) as client:
            assert (await call(client, "search_pool", text="Hello", count=1))["candidates"]

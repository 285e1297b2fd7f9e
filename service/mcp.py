"""The tools of `turnwise mcp`: what an agent can ask of a running service (Model Context Protocol).

Each tool is a call of the Python client. It imports the package `mcp`, of the extra of that name.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from turnwise.service.client import (
    AsyncClient,
    Avoided,
    ClientError,
    GivenTurn,
    Goal,
    PlanAnswer,
    PlanGoal,
    RankAnswer,
)
from turnwise.service.client.operations import RankOptions
from turnwise.service.wire.fields import MAX_CANDIDATES, Message, Text, TopK
from turnwise.service.wire.filters import Where
from turnwise.service.wire.planning import MAX_PLANNED_GOALS, Method
from turnwise.service.wire.pools import SearchAnswer

_BEARER = re.compile("^bearer +", re.IGNORECASE)

INSTRUCTIONS = """
Turnwise selects replies that people wrote and approved; it generates no text. Use select_reply for
the next reply of a conversation, search_pool to look something up, rank_replies to choose among
texts of your own, also toward a goal several turns ahead, and plan_goals to order several goals.
The speaker who replies is "bot" or "assistant", the other one "user".
"""

Conversation = Annotated[
    list[GivenTurn], Field(min_length=1, description="What was said so far, oldest turn first.")
]
Pool = Annotated[str, Field(description="Name of a pool of approved replies.")]
Filter = Annotated[
    Where | None, Field(description='Only replies whose metadata match, as {"topic": "hotel"}.')
]
Count = Annotated[TopK, Field(description="Number of replies to return.")]


class Tools:
    """The tools, as methods."""

    def __init__(self, url: str, key: str | None) -> None:
        """Take the URL of the service, and the API key for transports without headers."""
        self._url = url
        self._key = key

    async def select_reply(
        self,
        context: Context,
        conversation: Conversation,
        pool: Pool = "default",
        count: Count = 3,
        where: Filter = None,
    ) -> RankAnswer:
        """Choose the approved replies that best continue a conversation, best first.

        The `confidence`, from 0 to 1, says how probable it is that the first one is right. Below
        0.5 do not use it without a check. Null: it is not known.
        """
        options = RankOptions(pool=pool, top_k=count, repeat="last")
        if where:
            options["where"] = where
        async with self._client(context) as client:
            return await client.rank(conversation, **options)

    async def rank_replies(
        self,
        context: Context,
        conversation: Conversation,
        replies: Annotated[
            list[Text], Field(min_length=1, max_length=MAX_CANDIDATES, description="To rank.")
        ],
        goals: Annotated[
            list[Goal], Field(description="Utterances that the replies should lead to, if any.")
        ] = [],  # noqa: B006 - nothing changes it
        avoid: Annotated[
            list[Avoided], Field(description="Utterances that no reply may lead to, if any.")
        ] = [],  # noqa: B006 - nothing changes it
    ) -> RankAnswer:
        """Rank texts of your own as the next reply of a conversation, best first.

        With goals, the ranking is by how near each reply brings the conversation to them.
        """
        async with self._client(context) as client:
            return await client.rank(conversation, candidates=replies, goals=goals, avoid=avoid)

    async def plan_goals(
        self,
        context: Context,
        goals: Annotated[list[PlanGoal], Field(min_length=2, max_length=MAX_PLANNED_GOALS)],
        conversation: Annotated[
            list[GivenTurn], Field(description="What was said so far, if anything.")
        ] = [],  # noqa: B006 - nothing changes it
        method: Method = "chain",
    ) -> PlanAnswer:
        """Put goals into the order in which a conversation can reach them most naturally."""
        async with self._client(context) as client:
            return await client.plan(goals, conversation, method=method)

    async def search_pool(
        self,
        context: Context,
        text: Annotated[Message, Field(description="What somebody says.")],
        pool: Pool = "default",
        count: Count = 5,
        where: Filter = None,
    ) -> SearchAnswer:
        """Find the approved replies that best follow one text, best first."""
        async with self._client(context) as client:
            return await client.pool(pool).search(text, count, where)

    @asynccontextmanager
    async def _client(self, context: Context) -> AsyncIterator[AsyncClient]:
        """Yield a client with the API key of the caller, which over HTTP is that of its request.

        Raises:
            ToolError: A call failed; the agent reads why.
        """
        key = self._key
        if context.headers is not None:
            key = _BEARER.sub("", context.headers.get("authorization", "")) or None
        try:
            async with AsyncClient(self._url, key=key) as client:
                yield client
        except ClientError as error:
            raise ToolError(str(error)) from error


def make_server(url: str, key: str | None) -> MCPServer:
    """Return the server for a running service.

    Args:
        url: URL of the service.
        key: API key over stdio. Over HTTP the callers send theirs.
    """
    server = MCPServer(
        "turnwise", instructions=INSTRUCTIONS, version=version("turnwise"), log_level="WARNING"
    )
    tools = Tools(url, key)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (tools.select_reply, tools.rank_replies, tools.plan_goals, tools.search_pool):
        server.add_tool(tool, annotations=reads)
    return server

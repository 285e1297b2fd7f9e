"""Talks to a pool through LiveKit: prints the reply to each line of the user, as JSON.

python livekit_talk.py URL KEY '[{"text": "Hello", "options": {}}]'
"""

import asyncio
import json
import sys

from livekit.agents.llm import ChatContext
from livekit.plugins import openai


async def talk(url: str, key: str, lines: str) -> None:
    """Stream a reply to each line, and keep it in the context."""
    said = ChatContext()
    for line in json.loads(lines):
        extra = {"turnwise": line["options"]}
        model = openai.LLM(
            model="default", base_url=f"{url}/v1", api_key=key, extra_body=extra, max_retries=0
        )
        said.add_message(role="user", content=line["text"])
        reply = ""
        async with model.chat(chat_ctx=said) as stream:
            async for chunk in stream:
                reply += (chunk.delta and chunk.delta.content) or ""
        said.add_message(role="assistant", content=reply)
        print(json.dumps(reply))  # noqa: T201 - the test reads it
        await model.aclose()


asyncio.run(talk(*sys.argv[1:]))

"""The bare server of `overhead.py`: python -m benchmarks.overhead_bare PORT REDIS_URL."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from redis.asyncio import Redis
from starlette.types import Receive, Scope, Send

from turnwise import service

_D = 384
_SCRIPTS = Path(service.__file__).parent / "sessions" / "scripts"
_CANDIDATES = [
    {"id": f"reply-{n}", "text": "Your parcel is on its way.", "score": 0.5, "metadata": {}}
    for n in range(5)
]


class Bare:
    def __init__(self, redis: Redis) -> None:
        self._read = redis.register_script((_SCRIPTS / "read_session.lua").read_text())
        self._commit = redis.register_script((_SCRIPTS / "commit_session.lua").read_text())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        content = b"{}"
        if scope["method"] == "POST":
            content = json.dumps(
                await self._turn(scope["path"], json.loads(message["body"]))
            ).encode()
        headers = [(b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _turn(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Read and commit with the arguments of `SessionStore` for a plain turn."""
        of = f"tw:bare:{{{path}}}:"
        lists = [of + part for part in ("meta", "posts", "first", "second", "answers")]
        others = [of + "other_first", of + "other_second"]
        read = await self._read(keys=lists, args=["f", 4 * _D, 2, 0, "", *others])
        version = read[0][0] or b""
        turn = body["turn"]
        vector = bytes(2 * _D)
        rows = np.zeros((1 + min(turn + 1, 2), _D), np.float32).tobytes()
        offer = json.dumps(["default", "model", *(each["id"] for each in _CANDIDATES)])
        # The names are those of `commit_session.lua`.
        written = int(version) + 1 if version else ""
        head = [version, written, 1, "bot", "f", 3600]  # read to seconds_to_live
        answer = ["", 8, 1 << 18]  # none to keep
        vectors = ["", rows, f"1:{turn + 1}", 0]  # mine to unchanged
        first = min(turn, 1)  # the [B1] vector of the turn before
        kept_and_appended = [turn, 1, max(turn - 1, 0), first, turn, 1]
        offered = ["", offer, 16, ""]  # where to slots
        post = json.dumps([body["speaker"], body["text"], 0.0])
        items = [post, *([vector] * first), vector]
        args = [*head, *answer, *vectors, *kept_and_appended, *offered, *items]
        await self._commit(keys=[*lists, of + "feedback"], args=args)
        return {"turn": turn, "candidates": _CANDIDATES, "timings_ms": {"encode": 0, "retrieve": 0}}


if __name__ == "__main__":
    port, redis_url = sys.argv[1:]
    app = Bare(Redis.from_url(redis_url))
    uvicorn.run(app, port=int(port), log_level="warning", access_log=False, lifespan="off")

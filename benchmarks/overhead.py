"""Measures what a turn over HTTP takes beyond encoding and search, against a bare server.

The bare server is uvicorn with a plain ASGI function and redis-py. For each request it makes the
same two round trips, with the same scripts and values of the same size, and parses and writes the
same JSON. It validates, computes, logs and measures nothing. Turns of both alternate.

    python -m benchmarks.overhead [--turns 300] [--out FILE]
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from benchmarks.pools import REPLIES, sayings
from benchmarks.record import ROOT, Rows, arguments, percentile, run
from benchmarks.serving import Connection, answering, free_port, served

_WARM_UP = 20
_TURNS = 10
"""Turns of a session."""
_PAUSE = 0.08


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--turns", type=int, default=300)
    run(parser, {"turns": 5}, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    with served(REPLIES) as service, serve_bare(service.redis_url) as port:
        asyncio.run(alternate(service.port, port, options.turns, rows))
    return rows


async def alternate(service: int, bare_port: int, turns: int, rows: Rows) -> None:
    one = await Connection.open(service)
    other = await Connection.open(bare_port)
    beyond = list[float]()
    state = list[float]()
    floor = list[float]()
    for number, text in enumerate(islice(sayings(), turns + _WARM_UP)):
        speaker = "user" if number % 2 == 0 else "bot"
        body = {"speaker": speaker, "text": text, "respond": True}
        path = f"/sessions/overhead-{number // _TURNS}/turn"
        total, answer = await _timed(one, path, body)
        await asyncio.sleep(_PAUSE)
        bare_total, _ = await _timed(other, path, {**body, "turn": number % _TURNS})
        await asyncio.sleep(_PAUSE)
        if number >= _WARM_UP:
            stages = answer["timings_ms"]
            beyond.append(total - stages["encode"] - stages["retrieve"])
            state.append(stages["state"])
            floor.append(bare_total)
    for what, values in (
        ("service, neither encoding nor search", beyond),
        ("service, Redis", state),
        ("bare server", floor),
    ):
        rows.add(what=what, p50_ms=percentile(values, 0.5), p95_ms=percentile(values, 0.95))


async def _timed(connection: Connection, path: str, body: object) -> tuple[float, dict[str, Any]]:
    begin = time.perf_counter()
    answer = await connection.post(path, body)
    return (time.perf_counter() - begin) * 1e3, answer


@contextmanager
def serve_bare(redis_url: str) -> Iterator[int]:
    """Run the bare server until the block ends; yield its port."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.overhead_bare", str(port), redis_url]
    process = subprocess.Popen(command, cwd=ROOT)  # noqa: S603 - our own command
    with answering(port, process):
        yield port


if __name__ == "__main__":
    main()

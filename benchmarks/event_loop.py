"""Measures the event loop's longest pauses while a pool is filled, indexed, searched and folded.

    OMP_NUM_THREADS=1 python -m benchmarks.event_loop [--sizes N ...] [--out FILE]

A task sleeps for a millisecond, again and again: a pause is the time that it oversleeps. The first
row is an idle loop of the same run. The vectors are made, so that nobody has to encode a million
texts. Candidates come as the body of an upload, in a Redis of its own.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import uvloop
from pydantic_core import to_json
from starlette.requests import Request

from benchmarks.record import Rows, arguments, percentile, run
from turnwise.models.arrays import Float32
from turnwise.service.api.http.uploads import read_candidates
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import FollowedPools, PoolKey
from turnwise.service.pools.memory import upkeep
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.redis.connection import connect
from turnwise.service.redis.private import PrivateRedis
from turnwise.service.settings import Limits
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.pools import NDJSON, PoolRequest

TICK = 0.001
LINES = 500
SEEDS = 500


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--seconds", type=float, default=5.0, help="of an idle loop, of searches")
    run(parser, {"sizes": [2000], "seconds": 0.2}, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    gc.collect()
    gc.freeze()  # as the service does before it serves
    for size in options.sizes:
        uvloop.run(measure_size(size, options.seconds, rows))
    return rows


class MadeVectors:
    """Stands in for an encoder: unit vectors around some seeds, and sums of seeds as queries."""

    name = fingerprint = "made"
    dimension = 384

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._seeds = self._random.standard_normal((SEEDS, self.dimension), np.float32)

    async def candidates(self, texts: Sequence[str]) -> Float32:
        return await asyncio.to_thread(self._near, len(texts))

    async def sample_queries(self, _: Sequence[str]) -> Float32:
        return np.sum([self._near(64) for _ in range(4)], axis=0)

    def _near(self, number: int) -> Float32:
        near = self._seeds[self._random.integers(SEEDS, size=number)]
        near = near + 0.5 * self._random.standard_normal(near.shape, np.float32)
        return np.asarray(near / np.linalg.norm(near, axis=1, keepdims=True))


async def measure_size(size: int, seconds: float, rows: Rows) -> None:
    async with running() as (pools, followed, encoder):

        async def timed(phase: str, work: Awaitable[Any]) -> None:
            watching = asyncio.create_task(pauses())
            await asyncio.sleep(0)
            begin = time.perf_counter()
            await work
            took = time.perf_counter() - begin
            watching.cancel()
            found = await watching
            rows.add(
                candidates=size,
                phase=phase,
                seconds=took,
                p99_ms=1e3 * percentile(found, 0.99),
                longest_ms=1e3 * max(found),
            )

        await timed("idle", asyncio.sleep(seconds))
        await pools.create("n", "p", PoolRequest())
        await timed("add", add(pools, size, followed.memory))
        pool: Any = followed.here(PoolKey("n", "p"))
        workers = followed._workers
        await timed("index", upkeep.build_index(pool, workers, followed.files))
        await timed("search", search(pools, encoder, seconds))
        await pools.upsert("n", "p", [pool.contents.candidates()[0]])
        await pools.remove("n", "p", pool.contents.candidates()[0].id)
        await timed("fold", upkeep.fold(pool, workers))


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Pools, FollowedPools, MadeVectors]]:
    """Run pools that are folded and indexed only when the benchmark says so."""
    upkeep._TAIL_SECONDS = 0.0
    upkeep.log_is_long = lambda _: True
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        private = await stack.enter_async_context(PrivateRedis(folder / "redis"))
        redis = await stack.enter_async_context(connect(private.url, cluster=False, timeout=60.0))
        encoder = MadeVectors()
        metrics = Metrics()
        followed = FollowedPools(
            redis,
            {"default": encoder},
            metrics,
            exact_limit=1 << 40,
            search_threads=1,
            max_pool_size=1 << 40,
            index_folder=folder / "indexes",
        )
        await followed.start()
        stack.push_async_callback(followed.close)
        yield Pools(followed, metrics), followed, encoder


async def pauses() -> list[float]:
    """Return the seconds by which each sleep was too long, when cancelled."""
    found = []
    while True:
        begin = time.perf_counter()
        try:
            await asyncio.sleep(TICK)
        except asyncio.CancelledError:
            return [*found, max(0.0, time.perf_counter() - begin - TICK)]
        found.append(time.perf_counter() - begin - TICK)


async def add(pools: Pools, size: int, memory: Memory) -> None:
    """Upload candidates as a client would."""
    headers = [(b"content-type", NDJSON.encode())]
    bodies = lines(size)

    async def receive() -> dict[str, object]:
        body = await asyncio.to_thread(next, bodies, b"")
        return {"type": "http.request", "body": body, "more_body": bool(body)}

    request = Request({"type": "http", "headers": headers}, receive)
    await pools.upsert("n", "p", await read_candidates(request, Limits(), memory))


def lines(size: int) -> Iterator[bytes]:
    for start in range(0, size, LINES):
        numbers = range(start, min(start + LINES, size))
        yield b"".join(
            to_json({"id": str(n), "text": f"Reply number {n}.", "metadata": {"page": n}}) + b"\n"
            for n in numbers
        )


async def search(pools: Pools, encoder: MadeVectors, seconds: float) -> None:
    end, queries = time.monotonic() + seconds, await encoder.sample_queries([])
    while time.monotonic() < end:
        for query in queries:
            await (await pools.view("n", "p")).search(query, 10)
            await asyncio.sleep(0)  # searches of small pools are over at once


if __name__ == "__main__":
    main()

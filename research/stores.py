"""Compares searches in a pool: in memory, in Milvus, and in PostgreSQL with pgvector.

    python -m research.stores [--sizes 100000 1000000] [--at-once 1 16] [--out FILE]

One process searches each system (`benchmarks/engines.py`), as a replica would. `memory_mb` is what
loading the pool added to the processes of the system. A system that is not installed is left out.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from itertools import count

import numpy as np

from benchmarks.engines import QUERIES, TOP, Loaded, Pool, Search, memory_mb, milvus, pgvector
from benchmarks.pools import plain_encoder, queries_like
from benchmarks.record import Rows, arguments, percentile, run
from turnwise.models.arrays import Float32
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.flat import one_thread
from turnwise.service.pools.memory.ivf import build_ivf
from turnwise.service.pools.memory.local_view import LocalView
from turnwise.service.pools.memory.segment import Lookups, Segment
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.settings import Settings
from turnwise.service.wire.pools import PoolSettings

SYSTEMS = ("local", "milvus", "pgvector")
_EXACT = Settings.model_fields["exact_limit"].default


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=10, help="seconds of a measurement")
    run(parser, {"sizes": [1000], "seconds": 0.5}, measure)


def measure(options: argparse.Namespace) -> Rows:
    one_thread()
    encoder = plain_encoder()
    rows = Rows()
    systems = dict(zip(SYSTEMS, (local, milvus, pgvector), strict=True))
    chosen_by, measured_by = np.split(queries_like(encoder, QUERIES), 2)
    for size in options.sizes:
        before = memory_mb(os.getpid())
        pool = Pool.generate(encoder, size, chosen_by, measured_by)
        for name in options.systems:
            try:
                asyncio.run(measure_system(systems[name](pool, before), pool, options, rows))
            except ModuleNotFoundError as error:
                print(f"{name} is left out: no package '{error.name}'", file=sys.stderr)
    return rows


async def measure_system(
    loaded: AsyncIterator[Loaded], pool: Pool, options: argparse.Namespace, rows: Rows
) -> None:
    """Add a row for each number of searches at once."""
    async for system in loaded:
        width = await pool.width(system.search) if system.has_width else 0
        recall = await pool.recall(pool.measured_by, system.search, width)
        for at_once in options.at_once:
            took, seconds = await search_at_once(
                system.search, pool, width, at_once, options.seconds
            )
            rows.add(
                candidates=len(pool.candidates),
                system=system.name,
                at_once=at_once,
                searches_per_second=len(took) / seconds,
                p50_ms=percentile(took, 0.5),
                p99_ms=percentile(took, 0.99),
                recall_at_10=recall,
                width=width or None,
                load_seconds=system.load_seconds,
                memory_mb=system.memory_mb,
            )


async def search_at_once(
    search: Search, pool: Pool, width: int, at_once: int, seconds: float
) -> tuple[list[float], float]:
    """Search for some seconds, `at_once` searches at a time.

    Returns:
        The milliseconds of each search, and the seconds of the whole.
    """
    took = list[float]()
    numbers = count()
    begin = time.perf_counter()

    async def searching() -> None:
        while (sent := time.perf_counter()) < begin + seconds:
            await search(pool.measured_by[next(numbers) % len(pool.measured_by)], width)
            took.append((time.perf_counter() - sent) * 1e3)

    await asyncio.gather(*(searching() for _ in range(at_once)))
    return took, time.perf_counter() - begin


async def local(pool: Pool, before: float) -> AsyncIterator[Loaded]:
    """Yield the pool in this process, with an approximate index from the same size as a replica."""
    begin = time.perf_counter()
    approximate = len(pool.candidates) > _EXACT
    base = build_ivf(pool.flat, pool.chosen_by) if approximate else pool.flat
    seconds = time.perf_counter() - begin
    nothing = Contents.empty(pool.vectors.shape[1])
    candidates = tuple(pool.candidates)
    contents = Contents(Segment(candidates, Lookups.of(candidates), base), nothing.overlay)
    workers = Workers(1, Metrics())
    view = LocalView("p", 1, "default", PoolSettings(), contents, workers, Metrics())

    async def search(query: Float32, _: int) -> list[str]:
        return [hit.candidate.id for hit in await view.search(query, TOP)]

    name = f"memory, {'approximate' if approximate else 'exact'}"
    yield Loaded(name, search, seconds, memory_mb(os.getpid()) - before, has_width=False)
    workers.close()


if __name__ == "__main__":
    main()

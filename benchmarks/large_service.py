"""Measures a service with a large pool: starts, memory, turns, edits, a fold, search threads.

    python -m benchmarks.large_service [--sizes N ...] [--threads N ...] [--out FILE]

The vectors are made (`pools.py`). A start ends when the service is ready and has its index: the
first start trains it, a restart reads it. One client posts turns, with pauses between them, before
and during a fold. Then 32 sessions post turns at once, and 32 clients search at once for a text
that the cache of vectors knows, so that only the search limits them; both with each number of
search threads.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from shutil import rmtree

from benchmarks.load import many_clients
from benchmarks.pools import SEEDS, sayings
from benchmarks.record import Rows, arguments, percentile, run
from benchmarks.serving import Connection, Served, made, served

_THREADS = """
from turnwise.service.pools.memory import workers
_executor = workers.ThreadPoolExecutor
def _more(threads, name, *start):
    return _executor({threads} if name == "pool-search" else threads, name, *start)
workers.ThreadPoolExecutor = _more
"""
_EDITS = 20
_FOLDS = f"""
from turnwise.service.pools.memory import upkeep
upkeep._MIN_ENTRIES, upkeep._ENTRY_SHARE, upkeep._TAIL_SECONDS = {_EDITS}, 1 << 40, 1.0
"""
_PAUSE = 0.03
_CLIENTS = 32


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 2_000_000])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--turns", type=int, default=300, help="of one client")
    parser.add_argument("--each", type=int, default=40, help="turns of each of 32 sessions")
    parser.add_argument("--folder", type=Path, help="keeps the pools for the next run")
    toy = {"sizes": [2000], "threads": [2], "turns": 5, "each": 2}
    run(parser, toy, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for size in options.sizes:
            rmtree(made(size, folder) / "indexes", ignore_errors=True)
            begin = time.monotonic()
            with served(size, folder, _FOLDS) as service:
                rows.add(candidates=size, what="first start", **after_start(service, begin))
                asyncio.run(one_client(service, size, options.turns, rows))
            begin = time.monotonic()
            with served(size, folder) as service:
                rows.add(candidates=size, what="restart", **after_start(service, begin))
            for threads in options.threads:
                with served(size, folder, _THREADS.format(threads=threads)) as service:
                    many = many_clients(service.port, _CLIENTS, options.each, 1000 * next(SEEDS))
                    load = asyncio.run(many)
                    searches = asyncio.run(searches_per_second(service.port, options.each))
                rows.add(
                    candidates=size,
                    what=f"{threads} search threads, {_CLIENTS} at once",
                    turns_per_second=load.turns_per_second,
                    turn_p99_ms=load.p99_ms,
                    searches_per_second=searches,
                )
    return rows


def after_start(service: Served, begin: float) -> dict[str, float]:
    """Return the seconds of a start, and the memory of the service and its Redis after it."""
    return {
        "seconds": time.monotonic() - begin,
        "gigabytes": service.process.resident / 1e9,
        "most_gigabytes": service.process.most_resident / 1e9,
        "redis_gigabytes": service.redis_process.resident / 1e9,
    }


async def one_client(service: Served, size: int, number: int, rows: Rows) -> None:
    """Measure turns, then edits until their log is folded, and turns during the fold."""
    posting = turns(await Connection.open(service.port), next(SEEDS))
    rows.add(
        candidates=size, what="turns", **figures([await anext(posting) for _ in range(number)])
    )
    base, edits = folded(service), list[float]()
    editor = await Connection.open(service.port)  # the service closes those that are idle
    for place in range(_EDITS + 1):
        begin = time.perf_counter()
        edit = [{"id": str(place), "text": f"Edit {place}."}]  # no more candidates than the limit
        status, answer = await editor.request("PUT", "/pools/default/candidates", edit)
        edits.append(1e3 * (time.perf_counter() - begin))
        if status != 200:
            raise SystemExit(f"the service said {answer.decode()}")
    rows.add(candidates=size, what="edits", **figures(edits))
    begin, during = time.monotonic(), list[float]()
    while folded(service) == base:
        during.append(await anext(posting))
    rows.add(
        candidates=size,
        what="turns during a fold",
        **figures(during),
        seconds=time.monotonic() - begin,
        most_gigabytes=service.process.most_resident / 1e9,
    )


def folded(service: Served) -> bytes | None:
    """Return how many edits of the pool were folded."""
    (meta,) = service.redis.scan_iter("tw:pool:*:meta", 1000)
    base: bytes | None = service.redis.hget(meta, "base")
    return base


async def turns(connection: Connection, seed: int) -> AsyncIterator[float]:
    """Post turns with pauses between them, without end; yield the milliseconds of each."""
    for number, text in enumerate(sayings(seed)):
        body = {"speaker": ("user", "bot")[number % 2], "text": text, "respond": True}
        begin = time.perf_counter()
        await connection.post(f"/sessions/one-{seed}-{number // 10}/turn", body)
        yield 1e3 * (time.perf_counter() - begin)
        await asyncio.sleep(_PAUSE)


def figures(milliseconds: Sequence[float]) -> dict[str, float]:
    return {
        "p50_ms": percentile(milliseconds, 0.5),
        "p99_ms": percentile(milliseconds, 0.99),
        "longest_ms": max(milliseconds),
    }


async def searches_per_second(port: int, each: int) -> float:
    """Return how many searches many clients get in a second, all for one text."""

    async def search(count: int) -> None:
        connection = await Connection.open(port)
        for _ in range(count):
            await connection.post("/pools/default/search", {"text": "Is breakfast included?"})

    await asyncio.gather(*(search(1) for _ in range(_CLIENTS)))
    begin = time.perf_counter()
    await asyncio.gather(*(search(each) for _ in range(_CLIENTS)))
    return _CLIENTS * each / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()

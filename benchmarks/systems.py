"""Compares turns over HTTP with a large pool: Turnwise, and what a team would assemble without it.

    python -m benchmarks.systems [--infinity VENV/bin/infinity_emb] [--sizes 100000] [--out FILE]

The systems have the same candidates and vectors (`pools.py`): Turnwise with the pool in memory,
Turnwise with the pool in Milvus, and a handler of FastAPI (`assembled.py`) with Infinity for the
embeddings and PostgreSQL with pgvector. The handler encodes the last ten utterances as one text,
so it does not select what Turnwise selects; the recall is that of each index for running queries,
as the system has measured it. `memory_mb` is that of all processes of the system, and
`load_seconds` what it takes until the pool is searched by its index. Infinity (`pip install
'infinity-emb[server,torch]==0.0.78'` in an environment of its own) is named by `--infinity`; a
system that is not installed is left out.

A million candidates take long, so run one system at a time, with `--systems`. FILE keeps the rows
of earlier runs of the same commit, except those of the same system, size and clients. If a system
fails, the others run all the same, and the exit status is 1.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import httpx
import numpy as np

from benchmarks.engines import (
    QUERIES,
    Pool,
    memory_mb,
    milvus_client,
    milvus_server,
    pgvector,
    wait_for_index,
)
from benchmarks.load import many_clients
from benchmarks.part import Part, all_say, infinity
from benchmarks.pools import plain_encoder, queries_like, write_parts
from benchmarks.record import ROOT, Rows, arguments, phase, run
from benchmarks.serving import Served, free_port, import_pool, served
from turnwise.service.pools.stores.rows import name_examples
from turnwise.service.pools.stores.store import PREFIX
from turnwise.service.settings import Settings

SYSTEMS = ("memory", "milvus", "assembled")
_SEEDS = count(1000, 1000)
"""No session of one system goes on in the next, and no text is known there."""
_RECALL_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class System:
    """A system that serves turns on a port."""

    name: str
    port: int
    recall: float | None
    width: int | None
    load_seconds: float
    memory_mb: Callable[[], float]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--turns", type=int, default=320, help="turns of a measurement")
    parser.add_argument("--infinity", type=Path, help="the program infinity_emb")
    failed = list[str]()
    toy = {"sizes": [1000], "turns": 32}
    joined_by = ("candidates", "system", "at_once")
    run(parser, toy, lambda options: measure(options, failed), joined_by=joined_by)
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of one system with a pool of some size.

    Attributes:
        size: Number of candidates.
        folder: Keeps the data of the system, and logs.
        parts: The pool, as `turnwise pool import` reads it.
    """

    size: int
    folder: Path
    parts: Path
    options: argparse.Namespace
    rows: Rows

    @property
    def data(self) -> Path:
        """The data folder that `served` takes for a pool of this size."""
        return self.folder / f"pool-{self.size}"


def measure(options: argparse.Namespace, failed: list[str]) -> Rows:
    rows = Rows()
    systems = dict(
        zip(SYSTEMS, (measure_in_memory, measure_in_milvus, measure_assembled), strict=True)
    )
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="systems-") as temporary:
            parts = Path(temporary) / "parts"
            with phase(f"{size:,} candidates: made"):
                write_parts(size, parts)
            for name in options.systems:
                folder = Path(temporary) / name
                folder.mkdir()
                try:
                    with phase(f"{name}, {size:,} candidates"):
                        systems[name](Trial(size, folder, parts, options, rows))
                except ModuleNotFoundError as error:
                    print(f"{name} is left out: no package '{error.name}'", file=sys.stderr)
                except (Exception, SystemExit):
                    traceback.print_exc()
                    failed.append(f"{name} with {size:,} candidates")
    return rows


def measure_in_memory(trial: Trial) -> None:
    with ExitStack() as stack:
        begin = time.monotonic()
        with phase("load"):
            import_pool(trial.data, trial.parts)
        with phase("start and index"):
            service = stack.enter_context(served(trial.size, trial.folder))
        seconds = time.monotonic() - begin
        pool = json.loads(asyncio.run(service.get("/pools/default")))
        recall = 1.0 if pool["exact"] else pool["recall_at_10"]
        memory = _memory_of(service)
        system = System("Turnwise, in memory", service.port, recall, None, seconds, memory)
        asyncio.run(measure_turns(system, trial))


def measure_in_milvus(trial: Trial) -> None:
    with milvus_server() as (url, pid):
        store = {"TURNWISE_STORE_URL": url}
        begin = time.monotonic()
        client = milvus_client(url)
        before = client.list_collections()  # of others, if the server is not our own
        with phase("load"):
            import_pool(trial.data, trial.parts, "--store", "milvus", **store)
        made = {
            name
            for name in client.list_collections()
            if name.startswith(f"{PREFIX}default_default_") and name not in before
        }
        (collection,) = made - {name_examples(name) for name in made}
        with phase("index"):
            asyncio.run(wait_for_index(client, collection, trial.size))
        seconds = time.monotonic() - begin
        with served(trial.size, trial.folder, **store) as service:
            with phase("recall"):
                recall, width = asyncio.run(_wait_for_recall(service))
            memory = _memory_of(service, pid)
            system = System("Turnwise, in Milvus", service.port, recall, width, seconds, memory)
            asyncio.run(measure_turns(system, trial))
            httpx.delete(f"http://127.0.0.1:{service.port}/pools/default", timeout=60)


def measure_assembled(trial: Trial) -> None:
    if trial.options.infinity is None:
        print("assembled is left out: no --infinity", file=sys.stderr)
        return
    asyncio.run(_measure_parts(trial))


async def _measure_parts(trial: Trial) -> None:
    encoder = plain_encoder()
    chosen_by, measured_by = np.split(queries_like(encoder, QUERIES), 2)
    pool = Pool.generate(encoder, trial.size, chosen_by, measured_by)
    async for loaded in pgvector(pool, 0):
        with phase("recall"):
            width = await pool.width(loaded.search)
            recall = await pool.recall(measured_by, loaded.search, width)
        async with httpx.AsyncClient() as http:
            with ExitStack() as stack:
                port, parts = _parts(trial, loaded.url, width, http)
                with phase("start"):
                    for part in parts:
                        await stack.enter_context(part).served()
                system = System(
                    f"FastAPI, Infinity, {loaded.name}",
                    port,
                    recall,
                    width,
                    loaded.load_seconds,
                    lambda: (loaded.memory_mb or 0) + sum(memory_mb(part.pid) for part in parts),  # noqa: B023
                )
                await measure_turns(system, trial)


def _parts(
    trial: Trial, database: str, width: int, http: httpx.AsyncClient
) -> tuple[int, list[Part]]:
    """Return the handler's port, and the parts of the assembled stack other than PostgreSQL."""
    port = free_port()
    embeddings = free_port()
    program = trial.options.infinity
    encoder = infinity(program, Settings().model, embeddings, trial.folder, http)
    uvicorn = ["-m", "uvicorn", "benchmarks.assembled:app", "--log-level", "error"]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "ASSEMBLED_DATABASE": database,
        "ASSEMBLED_EMBEDDINGS": f"http://127.0.0.1:{embeddings}/embeddings",
        "ASSEMBLED_WIDTH": str(width),
    }
    command = [sys.executable, *uvicorn, "--port", str(port)]
    serves = all_say(http, 200, f"http://127.0.0.1:{port}/readyz")
    return port, [encoder, Part("handler", command, serves, trial.folder, environment)]


async def measure_turns(system: System, trial: Trial) -> None:
    """Add a row for each number of sessions at once."""
    for at_once in trial.options.at_once:
        each = trial.options.turns // at_once
        busy = os.getloadavg()[0]
        with phase(f"turns, {at_once} at once"):
            load = await many_clients(system.port, at_once, each, next(_SEEDS))
        trial.rows.add(
            candidates=trial.size,
            system=system.name,
            at_once=at_once,
            turns_per_second=load.turns_per_second,
            p50_ms=load.p50_ms,
            p99_ms=load.p99_ms,
            recall_at_10=system.recall,
            width=system.width,
            load_seconds=system.load_seconds,
            memory_mb=system.memory_mb(),
            load_average=busy,
        )


async def _wait_for_recall(service: Served) -> tuple[float | None, int]:
    """Wait until a replica has measured the recall in the store; return it and the width."""
    end = time.monotonic() + _RECALL_SECONDS
    while True:
        pool = json.loads(await service.get("/pools/default"))
        if (pool["width"] and pool["recall_at_10"]) or time.monotonic() > end:
            return pool["recall_at_10"], pool["width"]
        await asyncio.sleep(1)


def _memory_of(service: Served, *more: int) -> Callable[[], float]:
    """Return a function that gives the megabytes of a service, its Redis and other processes."""
    pids = (service.process.pid, service.redis_process.pid, *more)
    return lambda: sum(map(memory_mb, pids))


if __name__ == "__main__":
    main()

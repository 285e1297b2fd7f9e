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
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import httpx
import numpy as np

from benchmarks.load import many_clients
from benchmarks.pools import plain_encoder, queries_like, write_pool
from benchmarks.record import ROOT, Rows, arguments, run, taken
from benchmarks.serving import Served, free_port, link_models, served
from benchmarks.stores import QUERIES, Pool, memory_mb, milvus_server, pgvector
from turnwise.service.settings import Settings

SYSTEMS = ("memory", "milvus", "assembled")
_TURNWISE = Path(sys.executable).with_name("turnwise")
_SEEDS = count(1000, 1000)
"""No session of one system goes on in the next, and no text is known there."""
_START_SECONDS = 300
_RECALL_SECONDS = 900


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
    run(parser, {"sizes": [1000], "turns": 32}, measure)


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial with a pool of some size.

    Attributes:
        size: Number of candidates.
        folder: Keeps the data of the service, with the pool, and logs.
        restore_seconds: Seconds in which the pool was written into the service's Redis.
    """

    size: int
    folder: Path
    restore_seconds: float
    options: argparse.Namespace
    rows: Rows

    @property
    def data(self) -> Path:
        return self.folder / f"pool-{self.size}"


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    systems = dict(zip(SYSTEMS, (in_memory, in_milvus, assembled), strict=True))
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="systems-") as temporary:
            folder = Path(temporary)
            trial = Trial(size, folder, _restored(folder, size), options, rows)
            for name in options.systems:
                try:
                    systems[name](trial)
                except ModuleNotFoundError as error:
                    print(f"{name} is left out: no package '{error.name}'", file=sys.stderr)
    return rows


def in_memory(trial: Trial) -> None:
    begin = time.monotonic()
    with served(trial.size, trial.folder) as service:  # which waits for the index
        pool = json.loads(asyncio.run(service.get("/pools/default")))
        seconds = trial.restore_seconds + time.monotonic() - begin
        recall = 1.0 if pool["exact"] else pool["recall_at_10"]
        memory = _memory_of(service)
        system = System("Turnwise, in memory", service.port, recall, None, seconds, memory)
        asyncio.run(turns(system, trial))


def in_milvus(trial: Trial) -> None:
    with milvus_server() as (url, pid):
        store = {"TURNWISE_STORE_URL": url}
        with served(trial.size, trial.folder, **store) as service:
            begin = time.monotonic()
            _pool(trial.data, "move", "default", "--to", "milvus", **store)
            recall, width = asyncio.run(_measured(service))
            seconds = time.monotonic() - begin
        with served(trial.size, trial.folder, **store) as service:  # which never had it in memory
            memory = _memory_of(service, pid)
            system = System("Turnwise, in Milvus", service.port, recall, width, seconds, memory)
            asyncio.run(turns(system, trial))
            httpx.delete(f"http://127.0.0.1:{service.port}/pools/default", timeout=60)


def assembled(trial: Trial) -> None:
    if trial.options.infinity is None:
        print("assembled is left out: no --infinity", file=sys.stderr)
        return
    asyncio.run(_assembled(trial))


async def _assembled(trial: Trial) -> None:
    encoder = plain_encoder()
    chosen_by, measured_by = np.split(queries_like(encoder, QUERIES), 2)
    pool = Pool.made(encoder, trial.size, chosen_by, measured_by)
    async for loaded in pgvector(pool, 0):
        width = await pool.width(loaded.search)
        recall = await pool.recall(measured_by, loaded.search, width)
        embeddings, port = free_port(), free_port()
        variables = {
            "ASSEMBLED_DATABASE": loaded.url,
            "ASSEMBLED_EMBEDDINGS": f"http://127.0.0.1:{embeddings}/embeddings",
            "ASSEMBLED_WIDTH": str(width),
        }
        infinity = [
            str(trial.options.infinity), "v2", "--model-id", str(Path(Settings().model).absolute()),
            "--served-model-name", "default", "--port", str(embeddings), "--device", "cpu",
            "--engine", "torch", "--no-model-warmup",
        ]  # fmt: skip
        uvicorn = ["-m", "uvicorn", "benchmarks.assembled:app", "--log-level", "error"]
        handler = [sys.executable, *uvicorn, "--port", str(port)]
        with ExitStack() as stack:
            pids = [
                stack.enter_context(_process(command, trial.folder, variables))
                for command in (infinity, handler)
            ]
            for url in (f"http://127.0.0.1:{embeddings}/health", f"http://127.0.0.1:{port}/readyz"):
                await _until_answers(url)
            system = System(
                f"FastAPI, Infinity, {loaded.name}", port, recall, width, loaded.load_seconds,
                lambda: (loaded.memory_mb or 0) + sum(map(memory_mb, pids)),  # noqa: B023
            )  # fmt: skip
            await turns(system, trial)


async def turns(system: System, trial: Trial) -> None:
    for at_once in trial.options.at_once:
        each = trial.options.turns // at_once
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
        )


async def _measured(service: Served) -> tuple[float | None, int]:
    """Wait until a replica has measured the recall in the store; return it and the width."""
    end = time.monotonic() + _RECALL_SECONDS
    while True:
        pool = json.loads(await service.get("/pools/default"))
        if (pool["width"] and pool["recall_at_10"]) or time.monotonic() > end:
            return pool["recall_at_10"], pool["width"]
        await asyncio.sleep(1)


def _restored(folder: Path, size: int) -> float:
    """Make a pool, write it into the Redis of a service, and return the seconds of the writing."""
    data, snapshot = folder / f"pool-{size}", folder / "snapshot"
    write_pool(size, snapshot)
    link_models(data)
    return taken(lambda: _pool(data, "restore", snapshot))


def _pool(data: Path, *words: str | Path, **settings: str) -> None:
    """Run `turnwise pool`, with the Redis of a data folder."""
    named = {"TURNWISE_DATA_DIR": str(data)} | settings
    subprocess.run([_TURNWISE, "pool", *words], env=os.environ | named, check=True)  # noqa: S603


def _memory_of(service: Served, *more: int) -> Callable[[], float]:
    """Return the megabytes of a service, its Redis and other processes."""
    pids = (service.process.pid, service.redis_process.pid, *more)
    return lambda: sum(map(memory_mb, pids))


@contextmanager
def _process(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Iterator[int]:
    """Run a process until the block ends; yield its id."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    with (folder / "assembled.log").open("ab") as log:
        environment = {**os.environ, **variables, "DO_NOT_TRACK": "1"}
        if command[0] == sys.executable:  # Infinity has packages of its own
            environment["PYTHONPATH"] = path
        else:
            environment.pop("PYTHONPATH", None)
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)  # noqa: S603
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


async def _until_answers(url: str) -> None:
    end = time.monotonic() + _START_SECONDS
    async with httpx.AsyncClient(timeout=10) as http:
        while time.monotonic() < end:
            try:
                if (await http.get(url)).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)
    raise SystemExit(f"{url} does not answer")


if __name__ == "__main__":
    main()

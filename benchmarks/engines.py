"""The engines that hold pools outside Turnwise: Milvus, and PostgreSQL with pgvector.

Each gets the same candidates and vectors, and is searched for running queries (`pools.py`). Half of
the queries choose how wide an engine searches, by the rule of a replica: the narrowest width with a
recall@10 of 0.99. The other half measures. `pip install '.[bench]'` installs both engines, on Linux
with x86-64. With `TURNWISE_STORE_URL`, Milvus is the server there; otherwise one is started.
"""

import asyncio
import json
import os
import re
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from benchmarks.part import Part, port_opens
from benchmarks.pools import mixed, replies
from benchmarks.record import phase
from benchmarks.serving import free_port
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory.flat import FlatIndex
from turnwise.service.pools.stores.store import SCANNED
from turnwise.service.settings import Settings

Float16 = NDArray[np.float16]
Search = Callable[[Float32, int], Awaitable[list[str]]]
"""Returns the ids of the best ten for a query (d,) and a width."""

TOP = 10
WIDTHS = (64, 128, 256, 512, 1024)
RECALL = 0.99
QUERIES = 128
_START_SECONDS = 300
_POLL_SECONDS = 0.5
_MINUTE = round(60 / _POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates and the queries of all systems; the id of a candidate is its index."""

    candidates: Sequence[Candidate]
    vectors: Float16
    flat: FlatIndex
    chosen_by: Float32
    measured_by: Float32

    @classmethod
    def generate(cls, encoder: UtteranceEncoder, size: int, *queries: Float32) -> "Pool":
        """Return a pool of `size` candidates with its queries, which choose a width or measure."""
        texts = replies()
        vectors = np.empty((size, encoder.dimension), np.float16)
        candidates: list[Candidate] = []
        for seeds, block in mixed(encoder.encode(texts, Role.AFTER), size):
            start = len(candidates)
            vectors[start : start + len(block)] = block
            candidates += [
                Candidate.of(f"{texts[seed]} ({start + n})", str(start + n), {"seed": seed})
                for n, seed in enumerate(seeds.tolist())
            ]
        return cls(tuple(candidates), vectors, FlatIndex(vectors), *queries)

    async def recall(self, queries: Float32, search: Search, width: int) -> float:
        """Return the share of the exact top 10 that is found; ties count."""
        found = []
        for query in queries:
            least = self.flat.search(query, TOP)[1][-1]
            indices = np.array(await search(query, width), np.int64)
            found.append((self.vectors[indices].astype(np.float32) @ query >= least - 1e-4).sum())
        return float(np.mean(found)) / TOP

    async def width(self, search: Search) -> int:
        """Return the narrowest width with the recall, or the widest."""
        for width in WIDTHS:
            if await self.recall(self.chosen_by, search, width) >= RECALL:
                return width
        return WIDTHS[-1]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A system with the pool."""

    name: str
    search: Search
    load_seconds: float
    memory_mb: float | None
    has_width: bool = True
    url: str = ""


async def milvus(pool: Pool, _: float) -> AsyncIterator[Loaded]:
    """Yield the pool in Milvus, first just uploaded, then with the index of all its candidates."""
    from turnwise.service.pools.stores.milvus import Milvus  # noqa: PLC0415 - an extra

    with milvus_server() as (url, pid):
        store = Milvus(urlsplit(url), Metrics())
        collection = "turnwise_benchmark"
        client = milvus_client(url)
        name = f"Milvus {client.get_server_version()}"
        idle = memory_mb(pid)
        await store.drop(collection)
        begin = time.perf_counter()
        await store.create(collection, pool.vectors.shape[1])
        for start in range(0, len(pool.candidates), SCANNED):
            some = slice(start, start + SCANNED)
            await store.upsert(collection, pool.candidates[some], pool.vectors[some])
        await store.count(collection)  # returns when searches see all

        async def search(query: Float32, width: int) -> list[str]:
            found = await store.search(collection, query, TOP, width, None)
            return [one.candidate.id for one in found]

        seconds = time.perf_counter() - begin
        yield Loaded(f"{name}, just uploaded", search, seconds, memory_mb(pid) - idle)
        begin = time.perf_counter()
        client.flush(collection)
        await wait_for_index(client, collection, len(pool.candidates))
        seconds += time.perf_counter() - begin
        yield Loaded(f"{name}, indexed", search, seconds, memory_mb(pid) - idle)
        await store.drop(collection)
        await store.close()


def milvus_client(url: str) -> Any:  # noqa: ANN401 - untyped
    from pymilvus import MilvusClient  # noqa: PLC0415 - an extra

    return MilvusClient(url.replace("milvus://", "http://"))


async def wait_for_index(client: Any, collection: str, size: int) -> None:  # noqa: ANN401 - untyped
    """Wait until Milvus searches all candidates by their index; print each minute how many."""
    for number in count():
        segments = client.list_loaded_segments(collection)
        sealed = sum(one.num_rows for one in segments if one.state.name == "Sealed")
        pending = int(client.describe_index(collection, "vector")["pending_index_rows"])
        if sealed >= size and not pending:
            return
        if number % _MINUTE == _MINUTE - 1:
            print(f"{sealed:,} sealed, {pending:,} without index", file=sys.stderr, flush=True)
        await asyncio.sleep(_POLL_SECONDS)


@contextmanager
def milvus_server() -> Iterator[tuple[str, int]]:
    """Yield the URL of a Milvus and its process, or this one if the Milvus runs already."""
    if url := Settings().store_url:
        yield url, os.getpid()
        return
    import_module("milvus")  # fails early if the package is missing
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="milvus-", ignore_cleanup_errors=True) as folder:
        command = milvus_command(Path(folder), port)
        path = Path(folder)
        with Part("milvus", command, port_opens(port), path) as part:
            wait_for_milvus(f"http://127.0.0.1:{port}")
            yield f"milvus://127.0.0.1:{port}", part.pid


def milvus_command(folder: Path, port: int) -> list[str]:
    """Return the command of the wheel's server; it needs the package `milvus`."""
    program = Path(sys.executable).with_name("milvus-server")
    return [str(program), "--data", str(folder), "--proxy-port", str(port)]


def wait_for_milvus(url: str) -> None:
    from pymilvus import MilvusClient, MilvusException  # noqa: PLC0415 - an extra

    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            MilvusClient(url, timeout=5).list_collections()
        except MilvusException:
            if time.monotonic() > end:
                raise
        else:
            return


async def pgvector(pool: Pool, _: float) -> AsyncIterator[Loaded]:
    """Yield the pool in a table of PostgreSQL with the same HNSW, over kept connections."""
    import pgserver  # noqa: PLC0415 - an extra
    from psycopg import AsyncConnection  # noqa: PLC0415 - an extra

    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = pgserver.get_server(folder)  # it ends with this process
        pid = server.get_pid()
        url = server.get_uri()
        idle = memory_mb(pid)
        begin = time.perf_counter()
        async with await AsyncConnection.connect(url, autocommit=True) as connection:
            await _fill_table(connection, pool)
            about = await connection.execute(_VERSIONS)
            (name,) = await about.fetchone() or ("PostgreSQL",)
        seconds = time.perf_counter() - begin
        free: asyncio.Queue[tuple[Any, int | None]] = asyncio.Queue()
        """Free connections, each with the width that was set last."""
        for _ in range(_CONNECTIONS):
            free.put_nowait((await AsyncConnection.connect(url, autocommit=True), None))

        async def search(query: Float32, width: int) -> list[str]:
            connection, last_width = await free.get()
            try:
                if last_width != width:
                    await connection.execute(f"SET hnsw.ef_search = {min(width, 1000)}")
                    last_width = width
                found = await connection.execute(_NEAREST, [json.dumps(query.tolist())])
                return [row[0] for row in await found.fetchall()]
            finally:
                free.put_nowait((connection, last_width))

        yield Loaded(name, search, seconds, memory_mb(pid) - idle, url=url)
        while not free.empty():
            await free.get_nowait()[0].close()
        server.cleanup()


async def _fill_table(connection: Any, pool: Pool) -> None:  # noqa: ANN401 - of an extra
    """Create the table, and load and index the candidates."""
    from psycopg.types.json import Jsonb  # noqa: PLC0415 - an extra

    for statement in _TABLE:
        await connection.execute(statement.format(pool.vectors.shape[1]))
    with phase("PostgreSQL: load"):
        async with connection.cursor().copy(_COPY) as copy:
            copy.set_types(["text", "text", "jsonb", "bytea"])  # sent as they are
            for candidate, vector in zip(pool.candidates, pool.vectors, strict=True):
                row = candidate.id, candidate.text, Jsonb(candidate.metadata)
                await copy.write_row((*row, _bytes(vector)))
    with phase("PostgreSQL: index"):
        await connection.execute(_INDEX)


_CONNECTIONS = 16
_TABLE = [
    "CREATE EXTENSION vector",
    "CREATE TABLE candidates (id text PRIMARY KEY, text text, metadata jsonb, vector vector({}))",
    # A graph that does not fit is built many times as slowly; a million vectors take some 2.5 GB.
    "SET maintenance_work_mem = '4GB'",
]
_COPY = "COPY candidates FROM STDIN (FORMAT BINARY)"
_INDEX = (
    "CREATE INDEX ON candidates USING hnsw (vector vector_ip_ops) "
    "WITH (m = 16, ef_construction = 200)"
)
_VERSIONS = (
    "SELECT 'PostgreSQL ' || current_setting('server_version') || ', pgvector ' || extversion "
    "FROM pg_extension WHERE extname = 'vector'"
)
_NEAREST = (
    "SELECT id, text, metadata, vector <#> %s::vector AS score FROM candidates "
    "ORDER BY score LIMIT 10"
)


def _bytes(vector: Float16) -> bytes:
    """Return a vector as pgvector sends and receives it."""
    return struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()


def memory_mb(pid: int) -> float:
    """Return the memory of a process and its children; what they share counts once."""
    folder = Path(f"/proc/{pid}")
    found = re.search(r"^Pss:\s+(\d+)", (folder / "smaps_rollup").read_text("utf-8"), re.M)
    children = " ".join(path.read_text("utf-8") for path in folder.glob("task/*/children")).split()
    return (int(found[1]) if found else 0) / 1024 + sum(map(memory_mb, map(int, children)))

"""Compares each part of a turn, and a whole turn over HTTP, with the limit of the machine.

A limit is the arithmetic or the bytes of the part, divided by the machine's speed in the same run:
that of the best matrix product, of the best reading of memory by one thread, or of a bare round
trip over a socket. Then one client posts turns, with pauses between them as people make. These
blocks alternate with blocks of the bare encoder and the bare index, with the same pauses, because
idle cores and cold caches slow both down.

    python -m benchmarks.limits [--sizes 1000 1000000] [--turn 100000] [--folder KEEP] [--out FILE]

The settings (`TURNWISE_*`) name the model, the device and the threads.
"""

import argparse
import asyncio
import os
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

import faiss
import numpy as np
import torch
import uvloop

from benchmarks.pools import SEEDS, plain_encoder, pool_like, queries_like, replies, sayings
from benchmarks.record import Rows, arguments, run, taken
from benchmarks.serving import Connection, link_models, served
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder, transformer_of
from turnwise.models.roles import Relation, Role, RoleText
from turnwise.models.scores import KeptRows
from turnwise.service.app.loading import load_in_torch
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.memory.flat import FlatIndex, Index, one_thread
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf
from turnwise.service.redis.connection import connect
from turnwise.service.redis.private import PrivateRedis
from turnwise.service.sessions.store import Change, SessionKey, SessionStore
from turnwise.service.sessions.turns import Turn
from turnwise.service.settings import Settings

Tokens = list[list[int]]
Line = Callable[[str, Sequence[float], Sequence[float]], None]
"""Adds a row: the part, seconds of its limit, seconds that it took."""

_PAUSE = 0.03
_BLOCK = 25
_TOP_K = 5


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 100_000, 1_000_000])
    parser.add_argument("--turn", type=int, default=100_000, help="candidates of the whole turn")
    parser.add_argument("--folder", type=Path, help="keeps generated pools for the next run")
    parser.add_argument("--blocks", type=int, default=6, help="blocks of 25 turns")
    run(parser, {"sizes": [1000], "turn": 1000, "blocks": 1}, measure)


def measure(options: argparse.Namespace) -> Rows:
    settings = Settings()
    rows = Rows()
    line = partial(add, rows)
    one_thread()
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # overrides OMP_NUM_THREADS
    with tempfile.TemporaryDirectory() as folder:
        link_models(Path(folder))
        encoder = load_in_torch(settings, settings.model)
        plain = plain_encoder()
        candidates = plain.encode(replies(), Role.AFTER)
        queries = queries_like(plain)
        uvloop.run(measure_encoding(encoder, line))
        for size in options.sizes:
            measure_search(pool_like(candidates, size), queries, settings.exact_limit, line)
        uvloop.run(measure_redis(Path(folder), encoder.dimension, line))
        index = service_index(pool_like(candidates, options.turn), queries, settings.exact_limit)
        with served(options.turn, options.folder) as service, serve_echo() as echo:
            uvloop.run(
                measure_turns((service.port, echo), encoder, index, queries, options.blocks, line)
            )
    return rows


async def measure_encoding(encoder: UtteranceEncoder, line: Line) -> None:
    """Compare the arithmetic of a text with the best matrix product."""
    queue = EncoderQueue(encoder, Metrics(), limit=100, batch_tokens=4096)
    await queue.start()
    best = best_operations(encoder.model.device)
    for number in (1, 8):
        items = list(islice(utterances(), 40 * number))
        batches = [items[start : start + number] for start in range(0, len(items), number)]
        tokens = [encoder.tokenize(batch) for batch in batches]
        limit = [count_operations(encoder, of_batch) / best for of_batch in tokens]
        reached = [taken(partial(encoder.forward, of_batch)) for of_batch in tokens]
        line(f"encode, {number} of {len(tokens[0][0])} word pieces", limit, reached)
    limit = [count_operations(encoder, of_batch) / best for of_batch in tokens]
    reached = []
    for item in islice(utterances(), 40):
        begin = time.perf_counter()
        await queue.encode([item])
        reached.append(time.perf_counter() - begin)
    line("encode, 1, through the queue", [value / number for value in limit], reached)
    await queue.drain(5)


def count_operations(encoder: UtteranceEncoder, tokens: Tokens) -> float:
    """Return the floating-point operations of a batch: weights times word pieces, and attention."""
    transformer = transformer_of(encoder.model)
    layers = [m for m in transformer.modules() if isinstance(m, torch.nn.Linear)]
    # The weights of BERT contain a pooler, which a sentence encoder does not use.
    pooler = getattr(transformer, "pooler", None)
    unused = set(pooler.modules()) if pooler else set[torch.nn.Module]()
    weights = sum(layer.weight.numel() for layer in layers if layer not in unused)
    config = transformer.config
    attention = 2 * config.num_hidden_layers * config.hidden_size
    return float(sum(2 * weights * len(ids) + 2 * attention * len(ids) ** 2 for ids in tokens))


def best_operations(device: torch.device) -> float:
    """Return operations a second of the best matrix product, in the precision of the service."""
    size, dtype = (2048, torch.float32) if device.type == "cpu" else (8192, torch.float16)
    one = torch.ones(size, size, device=device, dtype=dtype)
    other = torch.ones_like(one)

    def multiply() -> None:
        torch.mm(one, other)
        if device.type == "cuda":
            torch.cuda.synchronize()

    return 2 * size**3 / min(taken(multiply) for _ in range(20))


def best_reading(size: int) -> float:
    """Return the bytes a second at which one thread reads `size` bytes, from caches if they fit."""
    values = np.ones(size // 8, np.uint64)
    return values.nbytes / min(taken(values.sum) for _ in range(10))


def measure_search(vectors: Float32, queries: Float32, exact_limit: int, line: Line) -> None:
    """Compare the bytes that a search reads with the best reading of memory."""
    size = len(vectors)
    exact = faiss.IndexFlatIP(vectors.shape[1])
    exact.add(vectors)
    whole = [taken(partial(exact.search, query[None], _TOP_K)) for query in queries]
    line(
        f"search {size:,}, FAISS flat float32",
        [vectors.nbytes / best_reading(vectors.nbytes)],
        whole,
    )
    flat = FlatIndex(vectors.astype(np.float16))
    reached = [taken(partial(flat.search, query, _TOP_K)) for query in queries]
    line(f"search {size:,}, exact float16", [flat.bytes / best_reading(flat.bytes)], reached)
    if size > exact_limit:
        index = build_ivf(flat, queries)
        reached = [taken(partial(index.search, query, _TOP_K)) for query in queries]
        limit = bytes_read(index) / best_reading(index.bytes)
        line(f"search {size:,}, approximate", [limit], reached)


def bytes_read(index: IvfIndex) -> float:
    """Return the bytes that a search reads: centroids, codes of lists, short-listed vectors."""
    d = index.dimension
    n = len(index)
    codes = (index.bytes - n * d * 2) * index.probes / index.lists
    return 4 * d * index.lists + codes + 2 * d * index.short_list


def service_index(vectors: Float32, queries: Float32, exact_limit: int) -> Index:
    """Return the index that a replica chooses for so many candidates."""
    flat = FlatIndex(vectors.astype(np.float16))
    return build_ivf(flat, queries) if len(flat) > exact_limit else flat


async def measure_redis(folder: Path, dimension: int, line: Line) -> None:
    """Compare the read and the append of a turn with two bare round trips to Redis."""
    async with (
        PrivateRedis(folder / "redis") as private,
        connect(private.url, cluster=False, timeout=10) as redis,
    ):
        reader, writer = await asyncio.open_unix_connection(private.url.removeprefix("unix://"))
        bare = []
        for _ in range(500):
            begin = time.perf_counter()
            for _ in range(2):
                writer.write(b"PING\r\n")
                await reader.readline()
            bare.append(time.perf_counter() - begin)
        writer.close()
        sessions = SessionStore(
            redis, Metrics(), fingerprint="", dimension=dimension, ttl=60, paired=True
        )
        reached = [await append_turn(sessions, number // 10, dimension) for number in range(500)]
    line("Redis: read and append", bare, reached[50:])


async def append_turn(sessions: SessionStore, number: int, dimension: int) -> float:
    """Read a session and append a turn; return the seconds."""
    key = SessionKey("limits", str(number))
    vector = np.ones((1, dimension), np.float32)
    post = Turn("user", next(sayings(number)), 0.0)
    begin = time.perf_counter()
    base, _ = await sessions.read(key)
    kept = len(base.turns) if base else 0
    before = base.rows if base and base.rows else KeptRows.none(dimension, paired=True)
    change = Change(
        1,
        "bot",
        kept,
        [post],
        keep_first=kept,
        first=vector,
        keep_encoded=kept,
        encoded=vector,
        rows=before.then(vector),
    )
    if not await sessions.commit(key, base, change):
        raise SystemExit("another writer changed the session")
    return time.perf_counter() - begin


async def measure_turns(  # noqa: PLR0917
    ports: tuple[int, int],
    encoder: UtteranceEncoder,
    index: Index,
    queries: Float32,
    blocks: int,
    line: Line,
) -> None:
    """Time whole turns, in blocks that alternate with blocks of the bare parts."""
    connection, echo = [await Connection.open(port) for port in ports]
    bare = list[float]()
    whole = list[float]()
    beyond = list[float]()
    trips = list[float]()
    for block in range(blocks):
        for number, item in enumerate(islice(utterances(), _BLOCK)):
            tokens = encoder.tokenize([item])
            query = queries[number % len(queries)]
            await asyncio.sleep(_PAUSE)
            begin = time.perf_counter()
            encoder.forward(tokens)
            index.search(query, _TOP_K)
            bare.append(time.perf_counter() - begin)
        for number, item in enumerate(islice(utterances(), _BLOCK)):
            speaker = ("user", "bot")[number % 2]
            body = {"speaker": speaker, "text": item.text, "respond": True, "top_k": _TOP_K}
            await asyncio.sleep(_PAUSE)
            begin = time.perf_counter()
            answer = await connection.post(f"/sessions/limits-{block}/turn", body)
            whole.append(time.perf_counter() - begin)
            beyond.append(whole[-1] - answer["timings_ms"]["total"] / 1e3)
            await asyncio.sleep(_PAUSE)
            begin = time.perf_counter()
            await echo.post("/", body)
            trips.append(time.perf_counter() - begin)
    line("HTTP, with pauses", trips, beyond)
    # The limit of a turn is the bare encoder, then the bare index.
    line(f"turn over HTTP, {len(index):,}, with pauses", bare, whole)


class Echo(socketserver.StreamRequestHandler):
    """Answers each request at once."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            if line.lower().startswith(b"content-length: "):
                self.rfile.read(int(line.split()[1]) + 2)
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@contextmanager
def serve_echo() -> Iterator[int]:
    """Run a server that does nothing but answer until the block ends; yield its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def utterances() -> Iterator[RoleText]:
    """Yield newest utterances without end; no two are the same."""
    for text in sayings(next(SEEDS)):
        yield RoleText(text, Role.SECOND, Relation.OTHER)


def add(rows: Rows, part: str, limit: Sequence[float], reached: Sequence[float]) -> None:
    """Add a row of medians, in milliseconds."""
    allowed = median(limit) * 1e3
    took = median(reached) * 1e3
    rows.add(part=part, limit_ms=allowed, reached_ms=took, ratio=took / allowed)


if __name__ == "__main__":
    main()

"""Compares turns a second over HTTP with a plain service of the same model and pool.

`plain_service.py` is FastAPI, `SentenceTransformer.encode` and a flat FAISS index in one process
of uvicorn. It keeps only texts, so it encodes the whole context again, as one text. In a second row
it encodes only the last utterance, and so ignores the rest of the context. Both services run all
the time, and get load in alternating blocks: clients post chats, each turn as soon as the turn
before is answered, and every turn asks for candidates. No text occurs twice. The services do not
get `OMP_NUM_THREADS`: each chooses its threads.

    python -m benchmarks.peer [--sizes 1000 100000] [--clients 1 8 32] [--folder KEEP] [--out FILE]

Turnwise reads its settings from `TURNWISE_*`. The plain service reads its device and model from
`TURNWISE_DEVICE` and `TURNWISE_MODEL`.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

import numpy as np

from benchmarks.pools import plain_encoder, pool_like, replies, sayings
from benchmarks.record import ROOT, Rows, arguments, percentile, run
from benchmarks.serving import Connection, answering, free_port, served
from turnwise.models.roles import Role

_CHATS = count()


@dataclass
class System:
    """A service under load, and the milliseconds of its turns."""

    name: str
    port: int
    body: dict[str, object]
    seconds: float = 0.0
    milliseconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.milliseconds) / self.seconds

    def forget(self) -> None:
        self.seconds = 0.0
        self.milliseconds = []

    async def load(self, clients: int, turns: int, seconds: float) -> None:
        """Let clients chat for a while; the first second does not count."""
        begin = time.perf_counter() + 1
        end = begin + seconds
        took = await asyncio.gather(*(self._client(turns, begin, end) for _ in range(clients)))
        self.milliseconds += [value for values in took for value in values]
        self.seconds += seconds

    async def _client(self, turns: int, begin: float, end: float) -> list[float]:
        connection = await Connection.open(self.port)
        took = list[float]()
        while time.perf_counter() < end:
            chat = next(_CHATS)
            for index, text in enumerate(islice(sayings(chat), turns)):
                speaker = {"speaker": ("user", "bot")[index % 2]} if "respond" in self.body else {}
                sent = time.perf_counter()
                await connection.post(
                    f"/sessions/peer-{chat}/turn", {"text": text, **speaker, **self.body}
                )
                answered = time.perf_counter()
                if begin <= answered < end:
                    took.append((answered - sent) * 1e3)
                if answered >= end:
                    break
        connection.writer.close()
        return took


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--turns", type=int, default=20, help="turns of a chat")
    parser.add_argument("--seconds", type=float, default=4, help="seconds of a block")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keeps generated pools for the next run")
    toy = {"sizes": [1000], "clients": [2], "turns": 3, "seconds": 0.5, "blocks": 1}
    run(parser, toy, measure)


def measure(options: argparse.Namespace) -> Rows:
    os.environ.pop("OMP_NUM_THREADS", None)
    rows = Rows()
    for size in options.sizes:
        with served(size, options.folder) as ours, plain_service(size) as peer:
            systems = [
                System("Turnwise", ours.port, {"respond": True}),
                System("plain, whole context", peer, {"encode": "context"}),
                System("plain, last utterance", peer, {"encode": "last"}),
            ]
            for clients in options.clients:
                asyncio.run(compare(systems, clients, options))
                for system in systems:
                    rows.add(
                        candidates=size,
                        clients=clients,
                        system=system.name,
                        turns_per_second=system.rate,
                        p50_ms=percentile(system.milliseconds, 0.5),
                        p99_ms=percentile(system.milliseconds, 0.99),
                        ratio=systems[0].rate / max(system.rate, 1e-9),
                    )
    return rows


async def compare(systems: Sequence[System], clients: int, options: argparse.Namespace) -> None:
    for system in systems:
        system.forget()
    for _ in range(options.blocks):
        for system in systems:
            await system.load(clients, options.turns, options.seconds)


@contextmanager
def plain_service(size: int) -> Iterator[int]:
    """Run the plain service over a generated pool until the block ends; yield its port."""
    with tempfile.TemporaryDirectory() as folder:
        texts = replies()
        vectors = pool_like(plain_encoder().encode(texts, Role.AFTER), size)
        np.save(Path(folder) / "vectors.npy", vectors)
        named = [texts[index % len(texts)] for index in range(size)]
        (Path(folder) / "texts.json").write_text(json.dumps(named), encoding="utf-8")
        port = free_port()
        process = subprocess.Popen(  # noqa: S603 - our own command
            [
                sys.executable,
                "-m",
                "uvicorn",
                "benchmarks.plain_service:app",
                "--port",
                str(port),
                "--log-level",
                "warning",
                "--no-access-log",
                "--app-dir",
                str(ROOT),
            ],
            env=os.environ | {"PLAIN_SERVICE": folder},
        )
        with answering(port, process):
            yield port


if __name__ == "__main__":
    main()

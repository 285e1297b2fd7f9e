"""Turns a second over HTTP, beside a straightforward service of the same model and pool.

`straightforward.py` is FastAPI, `SentenceTransformer.encode` and a flat FAISS index in one process
of uvicorn. All that it keeps is text, so it encodes the whole history again, as one text, to know
what Turnwise knows; in a second row the last utterance alone, which is less than it should know.
Both services run all the time and are loaded in turn, in blocks: so many clients post chats, a turn
as soon as the last is answered. Every turn is answered with replies. A chat's texts are new to
everybody. `OMP_NUM_THREADS` is not passed on: each has the threads that it chooses.

    python benchmarks/peer.py [--sizes 1000 100000] [--clients 1 8 32] [--folder KEEP_POOLS]

Turnwise takes its settings from `TURNWISE_*`, and the peer its device from `TURNWISE_DEVICE`.
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
from statistics import quantiles

import numpy as np
from pools import pool_like, replies
from sayings import sayings
from serving import Connection, free_port, served, until_ready

from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import Role

_BLOCKS = 3
_CHATS = count()


@dataclass
class System:
    """A service under load, and how long its turns took."""

    name: str
    port: int
    body: dict[str, object]
    seconds: float = 0.0
    milliseconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.milliseconds) / self.seconds

    def forget(self) -> None:
        self.seconds, self.milliseconds = 0.0, []

    async def load(self, clients: int, turns: int, seconds: float) -> None:
        """Let clients chat for a while; the first second does not count."""
        begin = time.perf_counter() + 1
        end = begin + seconds
        took = await asyncio.gather(*(self._client(turns, begin, end) for _ in range(clients)))
        self.milliseconds += [value for values in took for value in values]
        self.seconds += seconds

    async def _client(self, turns: int, begin: float, end: float) -> list[float]:
        connection, took = await Connection.open(self.port), list[float]()
        while time.perf_counter() < end:
            chat = next(_CHATS)
            for place, text in enumerate(islice(sayings(chat), turns)):
                speaker = {"speaker": ("user", "bot")[place % 2]} if "respond" in self.body else {}
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--turns", type=int, default=20, help="of a chat")
    parser.add_argument("--seconds", type=float, default=4, help="of a block, of which are three")
    parser.add_argument("--folder", type=Path, help="where made pools are kept")
    options = parser.parse_args()
    os.environ.pop("OMP_NUM_THREADS", None)
    print("candidates clients  system                     turns/s    p50 ms    p99 ms  ratio")
    for size in options.sizes:
        with served(size, options.folder) as ours, straightforward(size) as peer:
            systems = [
                System("Turnwise", ours.port, {"respond": True}),
                System("peer, whole history", peer, {"encode": "history"}),
                System("peer, last utterance", peer, {"encode": "last"}),
            ]
            for clients in options.clients:
                asyncio.run(compare(systems, clients, options))
                report(systems, size, clients)


async def compare(systems: Sequence[System], clients: int, options: argparse.Namespace) -> None:
    for system in systems:
        system.forget()
    for _ in range(_BLOCKS):
        for system in systems:
            await system.load(clients, options.turns, options.seconds)


def report(systems: Sequence[System], size: int, clients: int) -> None:
    ours = systems[0]
    for system in systems:
        cuts = quantiles(system.milliseconds, n=100)
        print(
            f"{size:10} {clients:7}  {system.name:24} {system.rate:9.1f} {cuts[49]:9.1f} "
            f"{cuts[98]:9.1f} {ours.rate / system.rate:6.2f}",
            flush=True,
        )


@contextmanager
def straightforward(size: int) -> Iterator[int]:
    """Run the peer over a made pool until the block ends; yield its port."""
    with tempfile.TemporaryDirectory() as folder:
        texts = replies()
        vectors = pool_like(UtteranceEncoder(device="cpu").encode(texts, Role.AFTER), size)
        np.save(Path(folder) / "vectors.npy", vectors)
        named = [texts[place % len(texts)] for place in range(size)]
        (Path(folder) / "texts.json").write_text(json.dumps(named), encoding="utf-8")
        port = free_port()
        process = subprocess.Popen(  # noqa: S603 - our own command
            [
                sys.executable, "-m", "uvicorn", "straightforward:app", "--port", str(port),
                "--log-level", "warning", "--no-access-log", "--app-dir",
                str(Path(__file__).parent),
            ],
            env=os.environ | {"STRAIGHTFORWARD": folder},
        )  # fmt: skip
        try:
            asyncio.run(until_ready(port, process))
            yield port
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()

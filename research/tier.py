"""Compares a replica that calls an encoder tier with one that runs the encoder itself.

    python -m research.tier [--rounds 3] [--infinity VENV/bin/infinity_emb] [--out FILE]

It starts a Redis, an encoder tier of one process (`turnwise serve --encoder-only`), and two
replicas that share the Redis and its pool. Starts and load alternate between the replicas; the one
that gets no load is idle. All processes and the clients share the cores of the machine, so a tier
on a machine of its own serves more. A figure is the median of the starts or of the rounds.
Replicas start without a pool. Memory is the resident memory of one process. Scores are those of
searches for the same texts. With `--infinity`, the vectors of Infinity are compared with those of
the tier.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

import httpx
import numpy as np

from benchmarks.heads import SEEDS, one_client
from benchmarks.load import many_clients
from benchmarks.part import Part, infinity, port_opens, small_model, turnwise
from benchmarks.pools import replies, sayings
from benchmarks.record import Rows, arguments, percentile, run
from benchmarks.serving import Connection, Process, free_port
from turnwise.service.redis.private import server_program
from turnwise.service.settings import Settings

_SEARCHES = 20
_TOP = 100


@dataclass
class Measured:
    """A process, and the figures that were measured of it, by name."""

    part: Part
    port: int
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, what: str, figure: float) -> None:
        self.figures.setdefault(what, []).append(figure)

    def add_memory(self, when: str) -> None:
        self.add(f"MB {when}", Process(self.part.pid).resident / (1 << 20))

    async def start(self) -> None:
        self.part.kill()
        self.part.start()
        self.add("seconds to ready", await self.part.served())
        self.add_memory("when ready")

    async def load(self, options: argparse.Namespace) -> None:
        """Let one client hold chats, then many at once."""
        took = await one_client(await Connection.open(self.port), options.turns)
        for share in (50, 95):
            self.add(f"turn of one client, p{share} ms", percentile(took, share / 100))
        seed = 1000 * next(SEEDS)
        load = await many_clients(self.port, options.sessions, options.each, seed)
        self.add(f"turns a second at {options.sessions} sessions", load.turns_per_second)
        self.add_memory("after load")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--starts", type=int, default=3, help="starts of each process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=100, help="turns of the one client in a round")
    parser.add_argument("--sessions", type=int, default=32, help="sessions that talk at once")
    parser.add_argument("--each", type=int, default=20, help="turns of each session in a round")
    parser.add_argument("--infinity", type=Path, help="the program infinity_emb")
    toy = {"starts": 1, "rounds": 1, "turns": 4, "sessions": 2, "each": 2}
    run(parser, toy, lambda options: asyncio.run(measure(options)))


async def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    async with processes() as (encoder, own, tier):
        for _ in range(options.starts):
            for process in (encoder, own, tier):
                await process.start()
        await make_pool(own.port)
        differences = {f"scores of {_SEARCHES} searches": await compare_scores(own.port, tier.port)}
        if options.infinity:
            what = f"vectors of {_SEARCHES} texts by Infinity"
            differences[what] = await compare_vectors(options.infinity, encoder)
        for _ in range(options.rounds):
            await own.load(options)
            await tier.load(options)
            encoder.add_memory("after load")
    for what, figures in own.figures.items():
        of_own = median(figures)
        of_tier = median(tier.figures[what])
        rows.add(
            what=what,
            own_encoder=of_own,
            encoder_tier=of_tier,
            ratio=of_tier / of_own,
            process_of_the_tier=median(encoder.figures[what]) if what in encoder.figures else None,
        )
    for what, difference in differences.items():
        rows.add(compared=what, largest_difference=difference)
    return rows


@asynccontextmanager
async def processes() -> AsyncIterator[tuple[Measured, Measured, Measured]]:
    """Run a Redis until the block ends; yield a tier and two replicas that are not yet started."""
    async with AsyncExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="tier-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(temporary))
        http = await stack.enter_async_context(httpx.AsyncClient())
        redis_port, *ports = (free_port() for _ in range(4))
        command = [str(server_program()), "--port", str(redis_port), "--save", ""]
        redis = Part("redis", command, port_opens(redis_port), folder)
        await stack.enter_context(redis).served()
        state = {"TURNWISE_REDIS_URL": f"redis://127.0.0.1:{redis_port}"}
        remote = {
            "TURNWISE_MODEL": small_model(folder, Settings().model),
            "TURNWISE_ENCODER_URL": f"http://127.0.0.1:{ports[0]}",
        }
        parts = [
            turnwise("encoder", ports[0], folder, http, "--encoder-only"),
            turnwise("own", ports[1], folder, http, **state),
            turnwise("tier", ports[2], folder, http, **state, **remote),
        ]
        for part in parts:
            stack.callback(part.kill)
        encoder, own, tier = map(Measured, parts, ports)
        yield encoder, own, tier


async def make_pool(port: int) -> None:
    candidates = [{"id": str(index), "text": text} for index, text in enumerate(replies())]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/pools", timeout=60) as http:
        for path, body in (("/default", {}), ("/default/candidates", candidates)):
            (await http.put(path, json=body)).raise_for_status()


async def compare_scores(*ports: int) -> float:
    """Return the largest difference of a candidate's scores between replicas, in searches."""
    connections = [await Connection.open(port) for port in ports]
    differences = []
    for text in islice(sayings(next(SEEDS)), _SEARCHES):
        body = {"text": text, "top_k": _TOP}
        one, other = [
            scores(await each.post("/pools/default/search", body)) for each in connections
        ]
        differences += [abs(one[name] - other[name]) for name in one.keys() & other.keys()]
    return max(differences)


def scores(answer: dict[str, Sequence[dict[str, float]]]) -> dict[float, float]:
    """Return the score of each candidate of an answer, by its id."""
    return {found["id"]: found["score"] for found in answer["candidates"]}


async def compare_vectors(program: Path, encoder: Measured) -> float:
    """Return the largest difference of a number between vectors of Infinity and of the tier."""
    model = Settings().model
    port = free_port()
    async with httpx.AsyncClient(timeout=60) as http:
        with infinity(program, model, port, encoder.part.folder, http) as part:
            await part.served()
            texts = [f"[AFTER] {text}" for text in islice(sayings(next(SEEDS)), _SEARCHES)]
            ours = (f"http://127.0.0.1:{encoder.port}/v1/embeddings", Path(model).name)
            theirs = (f"http://127.0.0.1:{port}/embeddings", "default")
            answers = [
                (await http.post(url, json={"model": name, "input": texts})).raise_for_status()
                for url, name in (ours, theirs)
            ]
    one, other = (
        np.array([found["embedding"] for found in answer.json()["data"]]) for answer in answers
    )
    return float(np.abs(one - other).max())


if __name__ == "__main__":
    main()

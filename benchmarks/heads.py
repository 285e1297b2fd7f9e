"""Compares a model with heads with one with prefix tokens: turns, goals, and memory.

Starts two services with the weights of the settings' model, which must know the tokens of a triple
encoder: one with new heads, and one without heads. New heads rank badly, but take the same time as
trained ones. All measurements alternate between the services. `/rank` ranks the best hundred of a
pool toward two goals, one for each speaker; cold, no candidate of the hundred was encoded as an
utterance before.

    python -m benchmarks.heads [--rounds 3] [--out FILE]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.load import many_clients
from benchmarks.pools import REPLIES, plain_encoder, sayings
from benchmarks.record import Rows, arguments, run, taken
from benchmarks.serving import Connection, Served, pool, served
from turnwise.models.encoder.heads import RoleHeads
from turnwise.models.encoder.torch import load_sentence_transformer
from turnwise.models.roles import Relation, Role, RoleText
from turnwise.service.settings import Settings

SEEDS = count(10_000)
_GOALS = [
    {"text": "Please book it for me.", "speaker": "user"},
    {"text": "I have booked it for you.", "speaker": "bot"},
]
_SAID = 300
"""Texts of a ranking: a context of 5, and a pool."""
_READ = (10, 50, 200)
"""Utterances of the contexts that heads read."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=100, help="turns of the one client in a round")
    parser.add_argument("--sessions", type=int, default=32, help="sessions that talk at once")
    parser.add_argument("--each", type=int, default=20, help="turns of each session in a round")
    parser.add_argument("--ranks", type=int, default=10, help="rankings toward goals, in a round")
    parser.add_argument("--pool", type=pool, default=REPLIES)
    toy = {"rounds": 1, "turns": 4, "sessions": 2, "each": 2, "ranks": 2}
    run(parser, toy, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    figures = dict[tuple[str, str], list[float]]()
    with serve_both(options.pool) as services:
        for _ in range(options.rounds):
            for name, service in services.items():
                for what, value in asyncio.run(measure_round(service, options)).items():
                    figures.setdefault((what, name), []).append(value)
        for name, service in services.items():
            figures["bytes a turn in Redis", name] = [asyncio.run(bytes_a_turn(service))]
    for what in dict.fromkeys(what for what, _ in figures):
        prefixes = median(figures[what, "prefixes"])
        heads = median(figures[what, "heads"])
        rows.add(what=what, prefixes=prefixes, heads=heads, ratio=heads / prefixes)
    for n in _READ:
        rows.add(what=f"[B1] of {n} utterances by heads, ms", heads=head_ms(n))
    return rows


@contextmanager
def serve_both(candidates: Path | int) -> Iterator[dict[str, Served]]:
    """Serve the weights of the settings' model twice: without heads, and with new ones."""
    with tempfile.TemporaryDirectory() as temporary:
        prefixes = Path(temporary) / "prefixes"
        heads = Path(temporary) / "heads"
        model = load_sentence_transformer(Settings().model, "cpu")
        for folder in (prefixes, heads):
            model.save_pretrained(str(folder), create_model_card=False)
        RoleHeads(model.get_embedding_dimension() or 0).save(heads)
        with (
            served(candidates, TURNWISE_MODEL=str(prefixes)) as one,
            served(candidates, TURNWISE_MODEL=str(heads)) as other,
        ):
            yield {"prefixes": one, "heads": other}


async def measure_round(service: Served, options: argparse.Namespace) -> dict[str, float]:
    connection = await Connection.open(service.port)
    cold, warm = await time_rankings(connection, options.ranks)
    seed = 1000 * next(SEEDS)
    load = await many_clients(service.port, options.sessions, options.each, seed)
    return {
        "turn of one client, ms": median(await one_client(connection, options.turns)),
        f"turns a second at {options.sessions} sessions": load.turns_per_second,
        "/rank toward two goals, cold, ms": cold,
        "/rank toward two goals, warm, ms": warm,
    }


async def one_client(connection: Connection, turns: int) -> list[float]:
    """Return the milliseconds of each turn, in sessions of ten."""
    took = list[float]()
    seed = next(SEEDS)
    for number, text in enumerate(islice(sayings(seed), turns)):
        body = {"speaker": "user" if number % 2 == 0 else "bot", "text": text, "respond": True}
        path = f"/sessions/{seed}-{number // 10}/turn"
        took.append(await time_request(connection, path, body))
        await asyncio.sleep(0.03)  # as people do, so that the idle work is done
    return took


async def time_rankings(connection: Connection, number: int) -> tuple[float, float]:
    """Return median milliseconds of a ranking: with new candidates, and once again."""
    cold = list[float]()
    warm = list[float]()
    for _ in range(number):
        said = list(islice(sayings(next(SEEDS)), _SAID))
        context = [
            {"speaker": "user" if index % 2 == 0 else "bot", "text": text}
            for index, text in enumerate(said[:5])
        ]
        name = f"p{next(SEEDS)}"
        await connection.request("PUT", f"/pools/{name}", {})
        await connection.request(
            "PUT", f"/pools/{name}/candidates", [{"text": text} for text in said[5:]]
        )
        # The context is encoded, so that only goals and candidates may be left to encode.
        await connection.post("/rank", {"context": context, "pool": name})
        body = {"context": context, "pool": name, "goals": _GOALS, "top_k": 5}
        cold.append(await time_request(connection, "/rank", body))
        warm.append(await time_request(connection, "/rank", body))
        await connection.request("DELETE", f"/pools/{name}")
    return median(cold), median(warm)


async def time_request(connection: Connection, path: str, body: object) -> float:
    """Return the milliseconds of a request."""
    begin = time.perf_counter()
    await connection.post(path, body)
    return (time.perf_counter() - begin) * 1e3


async def bytes_a_turn(service: Served) -> float:
    """Return the memory in Redis that a turn adds to a session."""
    connection = await Connection.open(service.port)
    sizes = dict[int, int]()
    for number, text in enumerate(islice(sayings(next(SEEDS)), 60), 1):
        body = {"speaker": "user" if number % 2 else "bot", "text": text}
        await connection.post("/sessions/memory/turn", body)
        if number in {20, 60}:
            await asyncio.sleep(0.3)  # for the idle work
            keys = service.redis.keys("tw:session:*/memory}:*")
            sizes[number] = sum(service.redis.memory_usage(key, samples=0) or 0 for key in keys)
    return (sizes[60] - sizes[20]) / 40


def head_ms(n: int) -> float:
    """Return the median milliseconds in which heads compute [B1] of n utterances."""
    heads = RoleHeads(plain_encoder().dimension)
    read = np.random.default_rng(0).normal(size=(n, heads.linear.shape[-1])).astype(np.float32)
    items = [RoleText("", Role.FIRST, list(Relation)[index % 2]) for index in range(n)]
    return 1e3 * median(taken(lambda: heads.in_roles(read, items)) for _ in range(30))


if __name__ == "__main__":
    main()

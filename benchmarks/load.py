"""Measures a service over HTTP: the time of a turn, and the gain of batches under load.

It starts `turnwise serve` twice, with its private Redis and the given pool: first with batches,
then with one text a batch. One client posts turns one after the other; then 32 sessions do so at
once. Each session waits for its answers (`overload.py` sends turns without waiting). The processor
time of a turn is that of the service with all its threads, of its event loop alone, of Redis, and
of the client. A pool is a file, or a number of candidates to generate.

    python -m benchmarks.load [--turns 300] [--sessions 32] [--pool FILE_OR_NUMBER] [--out FILE]
"""

import argparse
import asyncio
import time
from dataclasses import asdict, dataclass
from itertools import islice

from benchmarks.pools import REPLIES, sayings
from benchmarks.record import Rows, arguments, percentile, run
from benchmarks.serving import Connection, Served, pool, served

ONE_BY_ONE = "from turnwise.service.app import components; components.BATCH_TOKENS = 1"
_WARM_UP = 20
_WARM_UP_EACH = 3
"""Turns of each of many sessions before the clock starts."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--turns", type=int, default=300, help="turns of the single client")
    parser.add_argument("--sessions", type=int, default=32, help="sessions at the same time")
    parser.add_argument("--each", type=int, default=40, help="turns of each of these sessions")
    parser.add_argument("--pool", type=pool, default=REPLIES)
    run(parser, {"turns": 5, "sessions": 4, "each": 3}, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    with served(options.pool) as service:
        asyncio.run(one_client(service.port, options.turns, rows))
        many_sessions(service, "batches", options, rows)
    with served(options.pool, before=ONE_BY_ONE) as service:
        many_sessions(service, "one text a batch", options, rows)
    return rows


def many_sessions(service: Served, name: str, options: argparse.Namespace, rows: Rows) -> None:
    before = cpu_seconds(service)
    load = asyncio.run(many_clients(service.port, options.sessions, options.each))
    turns = options.sessions * (_WARM_UP_EACH + options.each)
    spent = {
        f"{part}_cpu_ms": (seconds - before[part]) * 1e3 / turns
        for part, seconds in cpu_seconds(service).items()
    }
    rows.add(what=f"{options.sessions} sessions, {name}", **asdict(load), **spent)


def cpu_seconds(service: Served) -> dict[str, float]:
    """Return the processor time of the service, its event loop, Redis and this client so far."""
    return {
        "service": service.process.cpu_seconds,
        "event_loop": service.process.main_cpu_seconds,
        "redis": service.redis_process.cpu_seconds,
        "client": time.process_time(),
    }


async def one_client(port: int, turns: int, rows: Rows) -> None:
    connection = await Connection.open(port)
    totals = list[float]()
    overheads = list[float]()
    encoding = list[float]()
    for number, text in enumerate(islice(sayings(), turns + _WARM_UP)):
        speaker = "user" if number % 2 == 0 else "bot"  # one speaker would be one utterance
        body = {"speaker": speaker, "text": text, "respond": True}
        begin = time.perf_counter()
        answer = await connection.post(f"/sessions/one-{number // 10}/turn", body)
        total = (time.perf_counter() - begin) * 1e3
        stages = answer["timings_ms"]
        if number >= _WARM_UP:
            totals.append(total)
            encoding.append(stages["encode"])
            overheads.append(total - stages["encode"] - stages["retrieve"])
        await asyncio.sleep(0.03)  # people pause too, and the idle work needs the time
    for name, values in (
        ("one client, turn", totals),
        ("one client, encoding", encoding),
        ("one client, neither encoding nor search", overheads),
    ):
        rows.add(what=name, p50_ms=percentile(values, 0.5), p95_ms=percentile(values, 0.95))


@dataclass(frozen=True, slots=True)
class Load:
    turns_per_second: float
    p50_ms: float
    p99_ms: float


async def many_clients(port: int, sessions: int, turns: int, seed: int = 0) -> Load:
    """Measure sessions that talk at once; with another seed, no cache knows their texts."""

    async def talk(number: int, count: int) -> list[float]:
        connection = await Connection.open(port)
        took = []
        for index, text in enumerate(islice(sayings(seed + number + 1), count)):
            begin = time.perf_counter()
            body = {"speaker": "user" if index % 2 == 0 else "bot", "text": text, "respond": True}
            await connection.post(f"/sessions/many-{seed}-{count}-{number}/turn", body)
            took.append((time.perf_counter() - begin) * 1e3)
        return took

    await asyncio.gather(*(talk(number, _WARM_UP_EACH) for number in range(sessions)))
    begin = time.perf_counter()
    took = await asyncio.gather(*(talk(number, turns) for number in range(sessions)))
    seconds = time.perf_counter() - begin
    every = [value for values in took for value in values]
    return Load(len(every) / seconds, percentile(every, 0.5), percentile(every, 0.99))


if __name__ == "__main__":
    main()

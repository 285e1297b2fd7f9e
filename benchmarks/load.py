"""A service over HTTP: what it adds to a turn, and what batching gains under load.

Starts `turnwise serve` with its private Redis and the given pool, twice: as it is, and with batches
of one text. One client posts turns one after the other; then 32 sessions at once do. A session
waits for its answers; those of `overload.py` do not. A pool is a file, or a number of made
candidates.

    python benchmarks/load.py [--turns 300] [--sessions 32] [--pool FILE_OR_NUMBER]
"""

import argparse
import asyncio
import time
from dataclasses import dataclass
from itertools import islice
from statistics import median, quantiles

from sayings import sayings
from serving import Connection, pool, served

ONE_BY_ONE = "from turnwise.service.app import parts; parts.BATCH_TOKENS = 1"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=300, help="of the one client")
    parser.add_argument("--sessions", type=int, default=32, help="that talk at once")
    parser.add_argument("--each", type=int, default=40, help="turns of each of them")
    parser.add_argument("--pool", type=pool, default="examples/replies.jsonl")
    options = parser.parse_args()
    with served(options.pool) as service:
        asyncio.run(one_client(service.port, options.turns))
        batched = asyncio.run(many_clients(service.port, options.sessions, options.each))
    with served(options.pool, before=ONE_BY_ONE) as service:
        single = asyncio.run(many_clients(service.port, options.sessions, options.each))
    print(f"\n{options.sessions} sessions at once      turns/s   median ms   p99 ms")
    for name, load in (("batching", batched), ("one text a batch", single)):
        print(f"{name:22} {load.rate:10.1f} {load.median:11.1f} {load.p99:8.1f}")
    print(f"batching gains a factor of {batched.rate / single.rate:.2f}")


async def one_client(port: int, turns: int) -> None:
    connection = await Connection.open(port)
    totals, overheads = [], []
    for number, text in enumerate(islice(sayings(), turns + 20)):
        speaker = "user" if number % 2 == 0 else "bot"  # runs of one would be one long utterance
        body = {"speaker": speaker, "text": text, "respond": True}
        begin = time.perf_counter()
        answer = await connection.post(f"/sessions/one-{number // 10}/turn", body)
        total = (time.perf_counter() - begin) * 1e3
        stages = answer["timings_ms"]
        if number >= 20:
            totals.append(total)
            overheads.append(total - stages["encode"] - stages["retrieve"])
        await asyncio.sleep(0.03)  # as people do, so that the idle work is done
    print("one client, a turn at a time, ms        median      p95")
    for name, values in (("whole turn", totals), ("beyond encoding and search", overheads)):
        print(f"{name:36} {median(values):9.2f} {quantiles(values, n=20)[-1]:8.2f}")


@dataclass(frozen=True, slots=True)
class Load:
    rate: float
    median: float
    p99: float


async def many_clients(port: int, sessions: int, turns: int) -> Load:
    async def talk(number: int, count: int) -> list[float]:
        connection, took = await Connection.open(port), []
        for place, text in enumerate(islice(sayings(number + 1), count)):
            begin = time.perf_counter()
            body = {"speaker": "user" if place % 2 == 0 else "bot", "text": text, "respond": True}
            await connection.post(f"/sessions/many-{count}-{number}/turn", body)
            took.append((time.perf_counter() - begin) * 1e3)
        return took

    await asyncio.gather(*(talk(number, 3) for number in range(sessions)))
    begin = time.perf_counter()
    took = await asyncio.gather(*(talk(number, turns) for number in range(sessions)))
    seconds = time.perf_counter() - begin
    every = [value for values in took for value in values]
    return Load(len(every) / seconds, median(every), quantiles(every, n=100)[-1])


if __name__ == "__main__":
    main()

"""Overloads a service over HTTP: sends turns at a fixed rate without waiting for the answers.

Each rate is a share of the throughput of 32 clients in a closed loop. Chats have 2 to 40 turns: a
user posts a run of one to three turns, the bot answers, and the user thinks for some seconds. The
next turn of a run follows when the service has answered or rejected the turn before; the client
sends a rejected turn again. The latency of a turn counts from when it was due, so that it includes
the time in queues. Beyond saturation the service should reject the rest (429), answer as many turns
as before, and be fast again soon. Probes and `/metrics` are requested meanwhile, and their slowest
answers are in the rows.

    python -m benchmarks.overload [--pools FILE_OR_NUMBER ...] [--seconds 15] [--out FILE]

The client runs on the same cores. The rows show how many cores the client, the service with its
Redis, and all other processes kept busy. If the others were busy, the figures mean little.
"""

import argparse
import heapq
import random
import time
from asyncio import IncompleteReadError, create_task, gather, sleep
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import uvloop

from benchmarks.load import many_clients
from benchmarks.pools import REPLIES, sayings
from benchmarks.record import Rows, arguments, percentile, run
from benchmarks.serving import Connection, Served, busy_seconds, pool, served
from turnwise.models.arrays import Float64

SHARES = (0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
AFTERWARDS = 0.25
CLOSED = 32
CLOSED_TURNS = 20
LONGEST_CHAT = 40
LONGEST_GO = 3
PROBES = ("/livez", "/readyz", "/metrics")
PROBE_SECONDS = 0.5
THINKS = 3.0
"""Mean seconds between an answer of the bot and the next turn of the user."""


@dataclass
class Chat:
    """A session of a bot and a user, who posts runs of one to three turns."""

    path: str
    posts: Sequence[Mapping[str, object]]
    turns: int = 0

    @property
    def go(self) -> int:
        """The number of posts until the bot has answered."""
        said = [post["speaker"] for post in self.posts[self.turns :]]
        return said.index("bot") + 1 if "bot" in said else len(said)


@dataclass
class Outcome:
    """The answers and refusals at one rate."""

    share: float
    rate: float
    seconds: float
    answered: list[tuple[float, float]] = field(default_factory=list)
    """The second when each turn was due, and the milliseconds until its answer."""
    refused: int = 0
    failed: int = 0
    probes: dict[str, list[float]] = field(default_factory=lambda: {path: [] for path in PROBES})
    """The milliseconds of the answers of each path of `PROBES`."""
    failed_probes: int = 0

    @property
    def arriving(self) -> float:
        """Turns a second that were sent; fewer than `rate`, since some chats end within a run."""
        return (len(self.answered) + self.refused + self.failed) / self.seconds

    @property
    def goodput(self) -> float:
        """Turns a second that were answered before the last turn was due."""
        return sum(at + ms / 1e3 <= self.seconds for at, ms in self.answered) / self.seconds

    def within(self, second: int) -> list[float]:
        """Return the milliseconds of the turns that were due in one second."""
        return [ms for at, ms in self.answered if second <= at < second + 1]

    def percentile(self, share: float) -> float:
        return percentile([ms for _, ms in self.answered], share)


class Client:
    """Sends turns when they are due, over as many connections as needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle = list[Connection]()
        self._names = count()
        self._random = random.Random(0)  # noqa: S311 - no secret
        self._thinking: list[tuple[float, int, Chat]] = []

    async def run(self, outcome: Outcome) -> None:
        begin = time.perf_counter()
        goes = [create_task(self._probe(path, begin, outcome)) for path in PROBES]
        due = begin
        mean = (LONGEST_GO + 1) / 2 + 1
        while (
            due := due + self._random.expovariate(outcome.rate / mean)
        ) < begin + outcome.seconds:
            await sleep(max(due - time.perf_counter(), 0))
            goes.append(create_task(self._go(begin, due, outcome)))
        await gather(*goes)

    async def _probe(self, path: str, begin: float, outcome: Outcome) -> None:
        """Request a path twice a second, on a connection each, as Kubernetes and Prometheus do."""
        while (asked := time.perf_counter()) < begin + outcome.seconds:
            connection = await Connection.open(self._port)
            status, _ = await connection.request("GET", path)
            connection.writer.close()
            outcome.probes[path].append((time.perf_counter() - asked) * 1e3)
            if status != 200:
                outcome.failed_probes += 1
            await sleep(PROBE_SECONDS)

    async def _go(self, begin: float, due: float, outcome: Outcome) -> None:
        chat = self._chat(due)
        for _ in range(chat.go):  # rejected turns go again, so that all rates post the same chats
            if chat.turns < len(chat.posts):
                await self._turn(chat, due - begin, due, outcome)
            due = time.perf_counter()
        if chat.turns < len(chat.posts):
            thought = due + self._random.expovariate(1 / THINKS)
            heapq.heappush(self._thinking, (thought, next(self._names), chat))

    async def _turn(self, chat: Chat, at: float, due: float, outcome: Outcome) -> None:
        connection = self._idle.pop() if self._idle else await Connection.open(self._port)
        request = "POST", chat.path, chat.posts[chat.turns]
        try:
            status, _ = await connection.request(*request)
        except IncompleteReadError:  # the service closes connections that are idle for long
            connection = await Connection.open(self._port)
            status, _ = await connection.request(*request)
        self._idle.append(connection)
        if status == 200:
            outcome.answered.append((at, (time.perf_counter() - due) * 1e3))
            chat.turns += 1
        elif status == 429:
            outcome.refused += 1
        else:
            outcome.failed += 1

    def _chat(self, now: float) -> Chat:
        """Return the chat whose user has thought longest, or a new one."""
        if self._thinking and self._thinking[0][0] <= now:
            return heapq.heappop(self._thinking)[2]
        number = next(self._names)
        speakers = list[str]()
        while len(speakers) < LONGEST_CHAT:
            speakers += ["user"] * self._random.randint(1, LONGEST_GO) + ["bot"]
        said = zip(speakers[: self._random.randint(2, LONGEST_CHAT)], sayings(number), strict=False)
        posts = [{"speaker": speaker, "text": text} for speaker, text in said]
        return Chat(f"/sessions/o{number}/turn", posts)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--pools", type=pool, nargs="+", default=[REPLIES])
    parser.add_argument("--keep", type=Path, help="keeps generated pools for the next run")
    parser.add_argument("--seconds", type=float, default=15, help="seconds of each rate")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    run(parser, {"seconds": 1, "shares": [0.5, 2.0]}, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    for each in options.pools:
        name = each.stem if isinstance(each, Path) else f"{each:,}"
        with served(each, options.keep) as service:
            uvloop.run(overload(service, name, options, rows))
    return rows


async def overload(service: Served, name: str, options: argparse.Namespace, rows: Rows) -> None:
    most = (await many_clients(service.port, CLOSED, CLOSED_TURNS)).turns_per_second
    client = Client(service.port)
    outcomes = list[Outcome]()
    for share in (*options.shares, AFTERWARDS):
        outcome = Outcome(share, share * most, options.seconds)
        before = await sums(service)
        await client.run(outcome)
        texts, batches, busy, own, everybody, elapsed = await sums(service) - before
        outcomes.append(outcome)
        rows.add(
            pool=name,
            share=share,
            arriving=outcome.arriving,
            answered=outcome.goodput,
            of_the_most=outcome.goodput / max(*(each.goodput for each in outcomes), 1e-9),
            refused=outcome.refused / outcome.seconds,
            failed=outcome.failed,
            failed_probes=outcome.failed_probes,
            p50_ms=outcome.percentile(0.5),
            p95_ms=outcome.percentile(0.95),
            p99_ms=outcome.percentile(0.99),
            **{f"slowest_{path[1:]}_ms": max(took) for path, took in outcome.probes.items()},
            texts_a_batch=float(texts / max(batches, 1)),
            client_cores=float(own / elapsed),
            service_cores=float(busy / elapsed),
            other_cores=float((everybody - own - busy) / elapsed),
        )
    rows[-1]["normal_after_seconds"] = normal_after(outcomes)


async def sums(service: Served) -> Float64:
    """Return encoded texts and batches; CPU seconds of service, client and machine; the time."""
    return np.array(
        [
            await service.metric("turnwise_batch_texts_sum"),
            await service.metric("turnwise_batch_texts_count"),
            service.process.cpu_seconds + service.redis_process.cpu_seconds,
            time.process_time(),
            busy_seconds(),
            time.perf_counter(),
        ]
    )


def normal_after(outcomes: list[Outcome]) -> int | None:
    """Return the second after the overload whose median is within twice that of the first rate."""
    first = outcomes[0]
    after = outcomes[-1]
    for second in range(int(after.seconds)):
        if (took := after.within(second)) and median(took) <= 2 * first.percentile(0.5):
            return second + 1
    return None


if __name__ == "__main__":
    main()

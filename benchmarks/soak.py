"""Runs ten minutes of mixed load and watches the memory of the service.

Chats begin and end. They send turns, searches, rankings, plans and edits of a pool. Some delete
their sessions, and the other sessions expire. Some requests are invalid, some are too many at once,
and some clients disconnect before the answer or within a request. Sessions expire early, so that
memory has stopped growing when the second half begins. The exit status is 1 if, in the second half,
the memory of the service or its Redis grows by more than the bound (KB) every 1,000 turns, or if
the service answers 500.

    python -m benchmarks.soak [--minutes 10] [--bound 256] [--out FILE]
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import uvloop

from benchmarks.pools import REPLIES, replies, sayings
from benchmarks.record import Rows, arguments, run
from benchmarks.serving import Connection, Served, served

CHATS = 12
PAUSE = 0.25
"""Mean seconds between two requests of a chat."""
SAMPLE = 2.0
EDITABLE = 300
"""Candidates of the pool that the chats edit."""
SESSION_SECONDS = 20
SMALL_CACHE = "from turnwise.service.app import components; components._VECTOR_CACHE = 1000"
"""A small cache of vectors. A large one still fills in the second half, which looks like a leak."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory and other resources of the service at a moment."""

    seconds: float
    turns: int
    service_kb: float
    redis_kb: float
    redis_used_kb: float
    keys: int
    threads: int
    files: int
    tasks: int


class Chats:
    """Clients that send requests of all kinds at random."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._numbers = count()
        self._random = random.Random(0)  # noqa: S311 - no secret
        self._replies = replies()
        self.statuses = Counter[tuple[str, int]]()

    @property
    def turns(self) -> int:
        return self.statuses["turn", 200]

    async def talk(self, over: asyncio.Event) -> None:
        """Hold one chat after another."""
        while not over.is_set():
            connection = await Connection.open(self._port)
            try:
                await self._chat(connection, next(self._numbers), over)
            except asyncio.IncompleteReadError:  # the service closes idle connections
                self.statuses["closed", 0] += 1
            finally:
                connection.writer.close()

    async def _chat(self, connection: Connection, number: int, over: asyncio.Event) -> None:
        path = f"/sessions/soak-{number}"
        for text in islice(sayings(number), self._random.randint(2, 40)):
            speaker = self._random.choice(["user", "user", "bot"])
            body = {"speaker": speaker, "text": text, "explain": self._random.random() < 0.2}
            await self._do("turn", connection, "POST", f"{path}/turn", body)
            if self._random.random() < 0.4:
                await self._random.choice(self._others)(self, connection, path)
            await asyncio.sleep(self._random.expovariate(1 / PAUSE))
            if over.is_set():
                return
        if self._random.random() < 0.5:  # the others expire
            await self._do("delete session", connection, "DELETE", path)

    async def _look(self, connection: Connection, path: str) -> None:
        await self._do("transcript", connection, "GET", path)
        ids = "&".join(f"ids={number}" for number in range(3))
        await self._do("scores", connection, "GET", f"{path}/scores?pool=edited&{ids}")
        await self._do("undo", connection, "DELETE", f"{path}/turns/last")

    async def _rank(self, connection: Connection, path: str) -> None:
        name = path.rpartition("/")[2]
        goal = {"text": self._random.choice(self._replies), "speaker": "user"}
        avoid = {"text": self._random.choice(self._replies), "threshold": 1.0}
        body = {"session_id": name, "goals": [goal], "avoid": [avoid], "top_k": 5}
        given = {"candidates": self._random.sample(self._replies, 10)}
        for candidates in (given, {"pool": "default"}):
            await self._do("rank", connection, "POST", "/rank", body | candidates)

    async def _plan(self, connection: Connection, path: str) -> None:
        goals = [{"text": text} for text in self._random.sample(self._replies, 5)]
        body = {"session_id": path.rpartition("/")[2], "goals": goals, "method": "chain_curved"}
        await self._do("plan", connection, "POST", "/plan", body)

    async def _search(self, connection: Connection, _path: str) -> None:
        body = {"text": next(sayings(next(self._numbers))), "top_k": 10}
        await self._do("search", connection, "POST", "/pools/edited/search", body)

    async def _edit(self, connection: Connection, _path: str) -> None:
        edited = [
            {"id": str(self._random.randrange(EDITABLE)), "text": text, "metadata": {"a": "b"}}
            for text in islice(sayings(next(self._numbers)), 3)
        ]
        some = {candidate["id"]: candidate for candidate in edited}
        body = list(some.values())
        await self._do("upsert", connection, "PUT", "/pools/edited/candidates", body)
        gone = self._random.randrange(EDITABLE)
        await self._do("remove", connection, "DELETE", f"/pools/edited/candidates/{gone}")

    async def _pools(self, connection: Connection, _path: str) -> None:
        name = f"/pools/soak-{next(self._numbers)}"
        await self._do("create pool", connection, "PUT", name, {})
        candidates = [{"text": text} for text in self._random.sample(self._replies, 20)]
        await self._do("upsert", connection, "PUT", f"{name}/candidates", candidates)
        await self._do("delete pool", connection, "DELETE", name)

    async def _err(self, connection: Connection, path: str) -> None:
        wrong = {"speaker": "user", "text": " "}
        await self._do("wrong turn", connection, "POST", f"{path}/turn", wrong)
        conflict = {"speaker": "user", "text": "Hello", "expected_turn": 400}
        await self._do("conflict", connection, "POST", f"{path}/turn", conflict)
        unknown = f"/sessions/unknown-{next(self._numbers)}"
        await self._do("unknown session", connection, "GET", unknown)

    async def _flood(self, _connection: Connection, _path: str) -> None:
        """Send more requests at once than the encoder queue takes."""

        async def one(text: str) -> None:
            connection = await Connection.open(self._port)
            body = {"context": [{"speaker": "user", "text": text}], "candidates": [text]}
            await self._do("flood", connection, "POST", "/rank", body)
            connection.writer.close()

        if self._random.random() < 0.1:
            await asyncio.gather(*map(one, islice(sayings(next(self._numbers)), 80)))

    async def _leave(self, _connection: Connection, path: str) -> None:
        """Disconnect before the answer, and in the middle of a request."""
        body = {"speaker": "user", "text": next(sayings(next(self._numbers)))}
        for left in (False, True):
            connection = await Connection.open(self._port)
            if left:
                connection.writer.write(
                    b"POST /rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
                )
            else:
                connection.send("POST", f"{path}/turn", body)
            await connection.writer.drain()
            await asyncio.sleep(self._random.uniform(0, 0.02))
            connection.writer.close()
            self.statuses["left", 0] += 1

    async def _do(
        self, what: str, connection: Connection, method: str, path: str, body: object = None
    ) -> None:
        status, _ = await connection.request(method, path, body)
        self.statuses[what, status] += 1

    _others: tuple[Callable[["Chats", Connection, str], Awaitable[None]], ...] = (
        _look,
        _rank,
        _plan,
        _search,
        _edit,
        _pools,
        _err,
        _flood,
        _leave,
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--bound", type=float, default=256, help="KB that 1,000 turns may add")
    grown = list[str]()
    run(parser, {"minutes": 0.1, "bound": 1e9}, lambda options: measure(options, grown))
    raise SystemExit(" and ".join(grown) + " grew" if grown else 0)


def measure(options: argparse.Namespace, grown: list[str]) -> Rows:
    ttl = str(SESSION_SECONDS)
    with served(REPLIES, before=SMALL_CACHE, TURNWISE_SESSION_TTL=ttl) as service:
        samples, requests = uvloop.run(soak(service, 60 * options.minutes))
    rows = trends(samples[len(samples) // 2 :])
    for (name, status), number in sorted(requests.items()):
        rows.add(request=name, status=status, number=number)
    bounded = [row for row in rows if row.get("measure") in {"service_kb", "redis_kb"}]
    grown += [row["measure"] for row in bounded if row["per_1000_turns"] > options.bound]
    grown += [row["request"] for row in rows if row.get("status") == 500]
    return rows


async def soak(service: Served, seconds: float) -> tuple[list[Sample], Counter[tuple[str, int]]]:
    connection = await Connection.open(service.port)
    texts = [{"id": str(n), "text": text} for n, text in enumerate(replies()[:EDITABLE])]
    await connection.request("PUT", "/pools/edited", {})
    await connection.request("PUT", "/pools/edited/candidates", texts)
    connection.writer.close()
    chats = Chats(service.port)
    samples = list[Sample]()
    over = asyncio.Event()

    async def watch() -> None:
        # Samples count, not the clock, so that a pause of the machine does not count.
        while (elapsed := len(samples) * SAMPLE) < seconds:
            now = await sample(service, elapsed, chats.turns)
            if len(samples) % 30 == 0:
                print(
                    f"{elapsed:5.0f} s {now.turns:7} turns, {now.service_kb / 1024:.0f} MB, "
                    f"{now.keys} keys, {now.files} files, {now.tasks} tasks",
                    flush=True,
                )
            samples.append(now)
            await asyncio.sleep(SAMPLE)
        over.set()

    await asyncio.gather(watch(), *(chats.talk(over) for _ in range(CHATS)))
    return samples, chats.statuses


async def sample(service: Served, seconds: float, turns: int) -> Sample:
    return Sample(
        seconds=seconds,
        turns=turns,
        service_kb=service.process.resident / 1024,
        redis_kb=service.redis_process.resident / 1024,
        redis_used_kb=service.redis.info("memory")["used_memory"] / 1024,
        keys=service.redis.dbsize(),
        threads=service.process.threads,
        files=service.process.files,
        tasks=int(await service.metric("turnwise_event_loop_tasks")),
    )


def trends(samples: list[Sample]) -> Rows:
    """Return the range of each measure, and its slope over the turns."""
    turns = np.array([sample.turns for sample in samples]) / 1000
    rows = Rows()
    for name in list(Sample.__slots__)[2:]:
        values = np.array([getattr(sample, name) for sample in samples], float)
        rows.add(
            measure=name,
            turns=samples[-1].turns - samples[0].turns,
            least=values.min(),
            median=float(np.median(values)),
            most=values.max(),
            per_1000_turns=float(np.polyfit(turns, values, 1)[0]),
        )
    return rows


if __name__ == "__main__":
    main()

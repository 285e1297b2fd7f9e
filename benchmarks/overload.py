"""A service over HTTP in open loop: turns arrive at a rate, whether or not the last are answered.

Each rate is a share of what 32 clients in a closed loop get through. Turns belong to chats of 2 to
40: a user says one to three things in one go, the bot answers, and the user thinks for seconds.
A go sends as many turns as it has posts, one when the last is answered or refused; what was refused
is sent again. A turn's latency counts from when it was due, so that queueing shows. Past what the
service can do it should refuse (429) the rest, get as much done as before, and soon be fast again.

    python benchmarks/overload.py [--pools FILE_OR_NUMBER ...] [--seconds 15] [--out FOLDER]

The client takes a part of the same cores: `cores` says how many it, the service with its Redis, and
all else kept busy. Where all else is not next to none, the figures mean little.
"""

import argparse
import heapq
import random
import time
from asyncio import IncompleteReadError, Task, create_task, gather, sleep
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median, quantiles

import matplotlib.pyplot as plt
import numpy as np
import uvloop
from load import many_clients
from sayings import sayings
from serving import Connection, Served, busy_seconds, pool, served

from turnwise.models.arrays import Float64

SHARES = (0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
AFTERWARDS = 0.25
CLOSED, CLOSED_TURNS = 32, 20
LONGEST_CHAT, LONGEST_GO = 40, 3
THINKS = 3.0
"""Seconds in the mean between an answer of the bot and what the user says next."""


@dataclass
class Chat:
    """A conversation between a user, who says one to three things in one go, and a bot."""

    path: str
    posts: list[dict[str, object]]
    turns: int = 0

    @property
    def go(self) -> int:
        """How many posts there are until the bot has answered."""
        said = [post["speaker"] for post in self.posts[self.turns :]]
        return said.index("bot") + 1 if "bot" in said else len(said)


@dataclass
class Outcome:
    """What became of the turns of one rate."""

    share: float
    rate: float
    seconds: float
    answered: list[tuple[float, float]] = field(default_factory=list)
    """When each was due, in seconds from the start, and the milliseconds until its answer."""
    refused: int = 0
    failed: int = 0
    batch: float = 0.0
    client_cores: float = 0.0
    service_cores: float = 0.0
    other_cores: float = 0.0

    @property
    def goodput(self) -> float:
        """Turns a second that were answered before the last was due: not what waited then."""
        return sum(at + ms / 1e3 <= self.seconds for at, ms in self.answered) / self.seconds

    def within(self, second: int) -> list[float]:
        """Return the milliseconds of the turns that were due in one second."""
        return [ms for at, ms in self.answered if second <= at < second + 1]

    def percentiles(self) -> tuple[float, float, float]:
        took = [ms for _, ms in self.answered] or [0.0]
        cuts = quantiles(took * 2, n=100)
        return median(took), cuts[94], cuts[98]


class Client:
    """Sends turns when they are due, over as many connections as that takes."""

    def __init__(self, port: int) -> None:
        self._port, self._idle = port, list[Connection]()
        self._names, self._random = count(), random.Random(0)  # noqa: S311 - no secret
        self._thinking: list[tuple[float, int, Chat]] = []

    async def run(self, outcome: Outcome) -> None:
        goes, begin = list[Task[None]](), time.perf_counter()
        due, mean = begin, (LONGEST_GO + 1) / 2 + 1
        while (
            due := due + self._random.expovariate(outcome.rate / mean)
        ) < begin + outcome.seconds:
            await sleep(max(due - time.perf_counter(), 0))
            goes.append(create_task(self._go(begin, due, outcome)))
        await gather(*goes)

    async def _go(self, begin: float, due: float, outcome: Outcome) -> None:
        chat = self._chat(due)
        for _ in range(chat.go):  # what is refused is tried again, so that all rates say the same
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
        except IncompleteReadError:  # the service closes what was idle for long
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
        """Take the one whose user has thought longest, or begin another."""
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pools", type=pool, nargs="+", default=[Path("examples/replies.jsonl")])
    parser.add_argument("--keep", type=Path, help="folder of made pools, for the next time")
    parser.add_argument("--seconds", type=float, default=15, help="of each rate")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--out", type=Path, default=Path("runs/overload"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for each in options.pools:
        name = each.stem if isinstance(each, Path) else str(each)
        with served(each, options.keep) as service:
            outcomes = uvloop.run(measure(service, options.shares, options.seconds))
            most, now = service.process.most_resident, service.process.resident
            print(f"memory of the service: {now >> 20} MB, {most >> 20} MB at most")
        picture = options.out / f"{name}.png"
        draw(outcomes, f"{name} candidates" if isinstance(each, int) else name, picture)
        print(f"drawn in {picture}\n")


async def measure(service: Served, shares: list[float], seconds: float) -> list[Outcome]:
    most = (await many_clients(service.port, CLOSED, CLOSED_TURNS)).rate
    print(f"{CLOSED} clients in a closed loop: {most:.0f} turns/s\n")
    print(
        "share   rate/s  goodput/s  refused  failed    p50    p95    p99 ms  texts a batch"
        "  cores: client service others"
    )
    client, outcomes = Client(service.port), list[Outcome]()
    for share in (*shares, AFTERWARDS):
        outcome = Outcome(share, share * most, seconds)
        before = await sums(service)
        await client.run(outcome)
        texts, batches, busy, own, everybody, elapsed = await sums(service) - before
        outcome.batch = texts / max(batches, 1)
        outcome.client_cores, outcome.service_cores = own / elapsed, busy / elapsed
        outcome.other_cores = (everybody - own - busy) / elapsed
        p50, p95, p99 = outcome.percentiles()
        print(
            f"{share:5.2f} {outcome.rate:8.0f} {outcome.goodput:10.1f} {outcome.refused:8} "
            f"{outcome.failed:7} {p50:6.0f} {p95:6.0f} {p99:6.0f} {outcome.batch:14.1f} "
            f"{outcome.client_cores:15.2f} {outcome.service_cores:7.2f} {outcome.other_cores:6.2f}",
            flush=True,
        )
        outcomes.append(outcome)
    tell(outcomes)
    return outcomes


async def sums(service: Served) -> Float64:
    """Return texts and batches encoded, CPU seconds of service, client and machine, the time."""
    return np.array([
        await service.metric("turnwise_batch_texts_sum"),
        await service.metric("turnwise_batch_texts_count"),
        service.process.cpu_seconds + service.redis_process.cpu_seconds,
        time.process_time(),
        busy_seconds(),
        time.perf_counter(),
    ])  # fmt: skip


def tell(outcomes: list[Outcome]) -> None:
    """Say how much is done past saturation, and how soon after it the service is as before."""
    *rising, after = outcomes
    most = max(outcome.goodput for outcome in rising)
    past = [outcome for outcome in rising if outcome.share > 1]
    if past:
        worst = min(past, key=lambda outcome: outcome.goodput)
        print(
            f"goodput past saturation is at least {worst.goodput / most:.2f} of the most "
            f"(at {worst.share}); the client took up to "
            f"{max(outcome.client_cores for outcome in past):.2f} cores"
        )
    normal = 2 * rising[0].percentiles()[0]
    for second in range(int(after.seconds)):
        if (took := after.within(second)) and median(took) <= normal:
            print(f"normal again (median within twice {normal / 2:.0f} ms) in second {second + 1}")
            return
    print(f"not normal again within {after.seconds:.0f} s")


def draw(outcomes: list[Outcome], title: str, path: Path) -> None:
    rising = outcomes[:-1]
    rates = [outcome.rate for outcome in rising]
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 6), layout="constrained")
    for place, name in enumerate(("p50", "p95", "p99")):
        above.plot(rates, [outcome.percentiles()[place] for outcome in rising], "o-", label=name)
    above.set(ylabel="milliseconds", yscale="log", title=f"Turns that were answered, {title}")
    above.legend()
    below.plot(rates, [outcome.goodput for outcome in rising], "o-", label="answered")
    below.plot(rates, [outcome.refused / outcome.seconds for outcome in rising], "o-", label="429")
    below.set(xlabel="turns that arrive a second", ylabel="turns a second")
    below.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()

"""A service over HTTP in open loop: turns arrive at a rate, whether or not the last are answered.

Each rate is a share of what 32 clients in a closed loop get through. Turns belong to chats of 2 to
40 turns, users and bot in turn, and a chat waits for its answer before it goes on; a turn's latency
counts from when it was due, so that queueing shows. Past what the service can do it should refuse
(429) the rest and get as much done as before; afterwards it should be as fast as ever.

    python benchmarks/overload.py [--seconds 15] [--pool FILE] [--out FOLDER]
"""

import argparse
import asyncio
import random
import re
import time
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from statistics import median, quantiles

import matplotlib.pyplot as plt
from load import Connection, many_clients, served
from sayings import sayings

SHARES = (0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
AFTERWARDS = 0.25
CLOSED, CLOSED_TURNS = 32, 10


@dataclass
class Chat:
    """A conversation between a user and a bot."""

    path: str
    texts: list[str]
    turns: int = 0

    @property
    def body(self) -> dict[str, object]:
        """The turn that comes next, until it is answered."""
        return {"speaker": ("user", "bot")[self.turns % 2], "text": self.texts[self.turns]}


@dataclass
class Outcome:
    """What became of the turns of one rate."""

    share: float
    rate: float
    seconds: float
    milliseconds: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    batch: float = 0.0

    @property
    def goodput(self) -> float:
        return len(self.milliseconds) / self.seconds

    def percentiles(self) -> tuple[float, float, float]:
        cuts = quantiles(self.milliseconds or [0.0, 0.0], n=100)
        return median(self.milliseconds or [0.0]), cuts[94], cuts[98]


class Client:
    """Sends turns when they are due, over as many connections as that takes."""

    def __init__(self, port: int) -> None:
        self._port, self._idle = port, list[Connection]()
        self._chats, self._names = list[Chat](), count()
        self._random = random.Random(0)  # noqa: S311 - no secret

    async def run(self, rate: float, seconds: float, outcome: Outcome) -> None:
        turns, due = list[asyncio.Task[None]](), time.perf_counter()
        end = due + seconds
        while (due := due + self._random.expovariate(rate)) < end:
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            turns.append(asyncio.create_task(self._turn(due, outcome)))
        await asyncio.gather(*turns)

    async def _turn(self, due: float, outcome: Outcome) -> None:
        chat = self._next_chat()
        connection = self._idle.pop() if self._idle else await Connection.open(self._port)
        try:
            status = await connection.status(chat.path, chat.body)
        except asyncio.IncompleteReadError:  # the service closes what was idle for long
            connection = await Connection.open(self._port)
            status = await connection.status(chat.path, chat.body)
        if status == 200:
            outcome.milliseconds.append((time.perf_counter() - due) * 1e3)
            chat.turns += 1
        elif status == 429:
            outcome.refused += 1
        else:
            outcome.failed += 1
        self._idle.append(connection)
        if chat.turns < len(chat.texts):
            self._chats.append(chat)

    def _next_chat(self) -> Chat:
        """Take one that waits for its next turn, or begin another."""
        if len(self._chats) > 30:
            return self._chats.pop(self._random.randrange(len(self._chats)))
        number = next(self._names)
        texts = list(islice(sayings(number), self._random.randint(2, 40)))
        return Chat(f"/sessions/o{number}/turn", texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15, help="of each rate")
    parser.add_argument("--pool", type=Path, default=Path("examples/replies.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("runs/overload"))
    options = parser.parse_args()
    with served(options.pool) as port:
        outcomes = asyncio.run(measure(port, options.seconds))
    options.out.mkdir(parents=True, exist_ok=True)
    draw(outcomes, options.out / "overload.png")
    most = max(outcome.goodput for outcome in outcomes)
    worst = min(outcome.goodput for outcome in outcomes if outcome.share > 1)
    print(f"goodput past saturation is at least {worst / most:.2f} of the most")
    print(f"drawn in {options.out / 'overload.png'}")


async def measure(port: int, seconds: float) -> list[Outcome]:
    most = (await many_clients(port, CLOSED, CLOSED_TURNS)).rate
    print(f"{CLOSED} clients in a closed loop: {most:.0f} turns/s\n")
    print("share   rate/s  goodput/s  refused  failed    p50    p95    p99 ms  texts a batch")
    client, outcomes = Client(port), []
    for share in (*SHARES, AFTERWARDS):
        outcome = Outcome(share, share * most, seconds)
        before = await batches(port)
        await client.run(outcome.rate, seconds, outcome)
        texts, runs = (b - a for a, b in zip(before, await batches(port), strict=True))
        outcome.batch = texts / max(runs, 1)
        p50, p95, p99 = outcome.percentiles()
        print(
            f"{share:5.2f} {outcome.rate:8.0f} {outcome.goodput:10.0f} {outcome.refused:8} "
            f"{outcome.failed:7} {p50:6.0f} {p95:6.0f} {p99:6.0f} {outcome.batch:14.1f}",
            flush=True,
        )
        outcomes.append(outcome)
    return outcomes


async def batches(port: int) -> tuple[float, float]:
    """Return how many texts have been encoded, and in how many batches."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    found = {
        name: float(number)
        for name, number in re.findall(r"^turnwise_batch_items_(sum|count) (\S+)", text, re.M)
    }
    return found["sum"], found["count"]


def draw(outcomes: list[Outcome], path: Path) -> None:
    rising = outcomes[:-1]
    rates = [outcome.rate for outcome in rising]
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 6), layout="constrained")
    for place, name in enumerate(("p50", "p95", "p99")):
        above.plot(rates, [outcome.percentiles()[place] for outcome in rising], "o-", label=name)
    above.set(ylabel="milliseconds", yscale="log", title="Latency of the turns that were answered")
    above.legend()
    below.plot(rates, [outcome.goodput for outcome in rising], "o-", label="answered")
    below.plot(rates, [outcome.refused / outcome.seconds for outcome in rising], "o-", label="429")
    below.set(xlabel="turns that arrive a second", ylabel="turns a second")
    below.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()

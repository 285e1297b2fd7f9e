"""Measures how much one namespace can slow another one down, over HTTP.

A namespace attacks: it sends one kind of expensive request over many connections, without a pause.
Another one is the victim: a single client, which pauses between its requests. Blocks with the
attack and blocks without it alternate, so that a busy machine has the same effect on both. A row
has the victim's times in both, and the ratio of the 95th percentiles.

    python -m benchmarks.tenants [--attacks NAME ...] [--victims NAME ...] [--blocks 3] [--out FILE]

The clients run on the same cores.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks.pools import REPLIES, replies, sayings, write_parts
from benchmarks.record import Rows, arguments, percentile, run
from benchmarks.serving import Connection, Served, import_pool, served

_ATTACKER = "attacker"
_VICTIM = "default"  # so that `served` fills its pool
_PAUSE = 0.03
_WARM_UP = 3
_SETTLE = 1.0
_CONDITIONS = 190


@dataclass(frozen=True, slots=True)
class Request:
    """A request of an attack or of the victim."""

    method: str
    path: str
    body: object = None


Make = Callable[[int], Request]
"""Returns the request of a number; no two of them share a text."""


@dataclass(frozen=True, slots=True)
class Attack:
    """Requests over several connections.

    Attributes:
        connections: Number of connections.
        victim: The request of the victim that is most like those of the attack.
        make: Makes the requests.
    """

    connections: int
    victim: str
    make: Make


def utterances(number: int, size: int) -> list[str]:
    """Return texts that no other number has."""
    return list(islice(sayings(number), size))


def conversation(size: int) -> list[dict[str, str]]:
    speakers = ("user", "bot")
    return [
        {"speaker": speakers[index % 2], "text": text}
        for index, text in enumerate(utterances(0, size))
    ]


def new_filter(conditions: int) -> dict[str, Any]:
    """Return a filter that nobody has asked for, of many conditions that fail."""
    drawn = [{f"k{random.randrange(10**9)}": {"gte": random.random()}} for _ in range(conditions)]  # noqa: S311 - no secret
    return {"any": [*drawn, {"number": {"gte": random.randrange(10**6)}}]}  # noqa: S311


_LONG = conversation(500)
_GOALS = [{"text": text, "speaker": f"s{n % 7}"} for n, text in enumerate(utterances(1, 20))]
_LISTED = [{"text": text, "speaker": f"s{n % 7}"} for n, text in enumerate(utterances(2, 1000))]
_LINES = [{"id": f"u{n}", "text": text} for n, text in enumerate(utterances(3, 5000))]

ATTACKS: dict[str, Attack] = {
    "new candidates to rank": Attack(
        8,
        "rank",
        lambda n: Request(
            "POST", "/rank", {"context": _LONG[:2], "candidates": utterances(n, 1000)}
        ),
    ),
    "known candidates, goals and speakers": Attack(
        8,
        "rank",
        lambda _: Request(
            "POST",
            "/rank",
            {"context": _LONG[:50], "candidates": _LISTED, "goals": _GOALS, "fit_weight": 1.0},
        ),
    ),
    "explained ranking, long context": Attack(
        8,
        "rank",
        lambda _: Request(
            "POST", "/rank", {"context": _LONG, "candidates": _LISTED, "explain": True}
        ),
    ),
    "new filters": Attack(
        40,
        "new filter",
        lambda _: Request(
            "POST", "/pools/large/search", {"text": "Hello", "where": new_filter(_CONDITIONS)}
        ),
    ),
    "searches": Attack(
        40,
        "search",
        lambda n: Request("POST", "/pools/large/search", {"text": f"Hello {n % 50}", "top_k": 100}),
    ),
    "plans": Attack(
        40,
        "plan",
        lambda n: Request(
            "POST",
            "/plan",
            {"goals": [{"text": text} for text in utterances(n % 3, 16)], "top": 100},
        ),
    ),
    "turns": Attack(
        40,
        "turn",
        lambda n: Request(
            "POST",
            f"/sessions/a{n}/turn",
            {"speaker": "user", "text": utterances(n, 1)[0], "pool": "large"},
        ),
    ),
    "turns of one session": Attack(
        40,
        "turn",
        lambda n: Request(
            "POST",
            f"/sessions/one{n // 400}/turn",
            {"speaker": "user", "text": utterances(n, 1)[0], "pool": "large"},
        ),
    ),
    "uploads": Attack(
        3, "edit", lambda n: Request("PUT", "/pools/up/candidates", [*_LINES, {"text": str(n)}])
    ),
    "bodies that are no requests": Attack(
        8,
        "rank",
        lambda _: Request("POST", "/rank", {"context": [], "candidates": ["a"] * 200_000}),
    ),
    "/openapi.json": Attack(30, "/livez", lambda _: Request("GET", "/openapi.json")),
    "/metrics": Attack(20, "/livez", lambda _: Request("GET", "/metrics")),
    "unknown paths": Attack(30, "/livez", lambda _: Request("GET", "/none")),
}
VICTIMS: dict[str, Make] = {
    "turn": lambda n: Request(
        "POST",
        f"/sessions/v{n // 30}/turn",
        {"speaker": "user", "text": utterances(n, 1)[0], "pool": "small"},
    ),
    "search": lambda n: Request("POST", "/pools/default/search", {"text": utterances(n, 1)[0]}),
    "new filter": lambda n: Request(
        "POST",
        "/pools/default/search",
        {"text": "Hello", "where": {"number": {"gte": n + random.random()}}},  # noqa: S311
    ),
    "rank": lambda n: Request(
        "POST", "/rank", {"context": _LONG[:2], "candidates": utterances(n, 3)}
    ),
    "plan": lambda n: Request(
        "POST", "/plan", {"goals": [{"text": text} for text in utterances(n, 2)]}
    ),
    "edit": lambda n: Request(
        "PUT", "/pools/small/candidates", [{"id": "v", "text": utterances(n, 1)[0]}]
    ),
    "transcript": lambda _: Request("GET", "/sessions/kept"),
    "pool": lambda _: Request("GET", "/pools/default"),
    "/livez": lambda _: Request("GET", "/livez"),
}

_NUMBERS = count(1000)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS)
    parser.add_argument(
        "--victims", nargs="+", choices=VICTIMS, help="by default turns, and what is most like it"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of a block")
    parser.add_argument("--blocks", type=int, default=3, help="blocks with the attack")
    parser.add_argument("--large", type=int, default=120_000, help="size of the attacker's pool")
    parser.add_argument("--own", type=int, default=20_000, help="size of the victim's pool")
    toy = {"attacks": ["turns"], "seconds": 0.5, "blocks": 1, "large": 500, "own": 500}
    run(parser, toy, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    with serving(options.large, options.own) as service:
        asyncio.run(prepare(service))
        for attack in options.attacks:
            for victim in options.victims or dict.fromkeys(("turn", ATTACKS[attack].victim)):
                alternate(service, attack, victim, options, rows)
    return rows


@contextlib.contextmanager
def serving(large: int, own: int) -> Iterator[Served]:
    """Run a service with the pools of both namespaces."""
    keys = [
        {
            "name": name,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "scopes": ["select", "pools"],
        }
        for name in (_ATTACKER, _VICTIM)
    ]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / f"pool-{own}"
        for name, pool, size in ((_VICTIM, "default", own), (_ATTACKER, "large", large)):
            parts = Path(folder) / f"parts-{name}"
            write_parts(size, parts, numbered=True)
            import_pool(data, parts, "--namespace", name, pool=pool)
        with served(own, Path(folder), TURNWISE_API_KEYS=json.dumps(keys)) as service:
            yield service


async def prepare(service: Served) -> None:
    """Make the small pools and a session, and let the service read the large pool."""
    small = [{"id": f"r{n}", "text": text} for n, text in enumerate(replies(REPLIES))]
    for name, pool in ((_VICTIM, "small"), (_ATTACKER, "up")):
        connection = await Connection.open(service.port, name)
        await connection.request("PUT", f"/pools/{pool}", {})
        await connection.request("PUT", f"/pools/{pool}/candidates", small)
        if name == _VICTIM:
            await connection.post("/sessions/kept/turn", {"speaker": "user", "text": "Hello"})
        else:
            while (await connection.request("GET", "/pools/large"))[1].find(b'"ready"') < 0:
                await asyncio.sleep(0.5)


def alternate(
    service: Served, attack: str, victim: str, options: argparse.Namespace, rows: Rows
) -> None:
    """Add the row of an attack and a victim: blocks without the attack and with it alternate."""
    alone = list[float]()
    attacked = list[float]()
    statuses = Counter[str]()
    answers = Counter[str]()
    probes = list[float]()
    most_resident = 0
    for _ in range(options.blocks):
        alone += asyncio.run(suffer(service.port, victim, options.seconds, Counter(), []))
        with attacking(service.port, attack, options.seconds + 2 * _SETTLE, answers):
            time.sleep(_SETTLE)
            attacked += asyncio.run(suffer(service.port, victim, options.seconds, statuses, probes))
            most_resident = max(most_resident, service.process.resident)
    rows.add(
        attack=attack,
        victim=victim,
        alone_p50_ms=percentile(alone, 0.5),
        alone_p95_ms=percentile(alone, 0.95),
        p50_ms=percentile(attacked, 0.5),
        p95_ms=percentile(attacked, 0.95),
        ratio=percentile(attacked, 0.95) / max(percentile(alone, 0.95), 1e-9),
        requests=len(attacked),
        failed=sum(statuses.values()) - statuses["200"],
        slowest_probe_ms=max(probes, default=0.0),
        answers_to_the_attack=" ".join(f"{number}x{status}" for status, number in answers.items()),
        resident_mb=most_resident / 1e6,
    )


async def suffer(
    port: int, victim: str, seconds: float, statuses: Counter[str], probes: list[float]
) -> list[float]:
    """Return the milliseconds of the victim's requests; count their statuses, and add probes."""
    probing = asyncio.create_task(probe(port, probes))
    connection = await Connection.open(port, _VICTIM)
    took = list[float]()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) <= 2 * _WARM_UP:
        request = VICTIMS[victim](next(_NUMBERS))
        begin = time.perf_counter()
        status, _ = await connection.request(request.method, request.path, request.body)
        took.append((time.perf_counter() - begin) * 1e3)
        statuses[str(status)] += 1
        await asyncio.sleep(_PAUSE)
    connection.writer.close()
    probing.cancel()
    return took[_WARM_UP:]


async def probe(port: int, probes: list[float]) -> None:
    """Ask once a second whether the service is alive, on a connection each, as Kubernetes does."""
    while True:
        begin = time.perf_counter()
        connection = await Connection.open(port)
        await connection.request("GET", "/livez")
        probes.append((time.perf_counter() - begin) * 1e3)
        connection.writer.close()
        await asyncio.sleep(1.0)


@contextlib.contextmanager
def attacking(port: int, attack: str, seconds: float, answers: Counter[str]) -> Iterator[None]:
    """Attack in another process, and count the answers by status."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(
        target=run_attack, args=(port, attack, seconds, next(_NUMBERS), sending)
    )
    process.start()
    try:
        yield
    finally:
        if receiving.poll(seconds + 60):
            answers.update(receiving.recv())
        process.join()


def run_attack(port: int, attack: str, seconds: float, seed: int, sending: Any) -> None:  # noqa: ANN401 - a connection of multiprocessing
    sending.send(dict(asyncio.run(flood(port, attack, seconds, seed))))


async def flood(port: int, attack: str, seconds: float, seed: int) -> Counter[str]:
    """Send requests over all connections until the time is over; count answers by status."""
    numbers = count(seed * 1_000_000)
    statuses = Counter[str]()
    end = time.perf_counter() + seconds

    async def send_all() -> None:
        connection = await Connection.open(port, _ATTACKER)
        while time.perf_counter() < end:
            request = ATTACKS[attack].make(next(numbers))
            status, _ = await connection.request(request.method, request.path, request.body)
            statuses[str(status)] += 1

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds + 30):
            await asyncio.gather(*(send_all() for _ in range(ATTACKS[attack].connections)))
    return statuses


if __name__ == "__main__":
    main()

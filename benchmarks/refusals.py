"""Measures the processor time that the service spends on a request which it refuses, over HTTP.

A client sends one kind of request again and again, over several connections. A row has the
processor time of the service for each of them, which hardly depends on what else the machine does.
`/livez` is for comparison: it is answered, with next to no work.

    python -m benchmarks.refusals [--requests 10000] [--kinds NAME ...] [--out FILE]

Some bounds are changed in the service so that every request exceeds them.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.pools import REPLIES
from benchmarks.record import Rows, arguments, run
from benchmarks.serving import Connection, Served, served

_KEY = "somebody"
_CONNECTIONS = 16
_WARM_UP = 200
_NO_ROOM = (
    "from turnwise.service import threads; threads.FairThreads.__init__.__kwdefaults__['limit'] = 0"
)
"""The service refuses every request that needs room in a queue of its namespace."""
_QUEUE_FULL = """
from collections import Counter
from turnwise.service.encoder import batcher
batcher.Batcher.ahead_of = lambda self, priority, namespace: Counter({priority: 1_000_000})
"""
"""The encoder queue looks full."""
_GOALS = [{"text": f"goal number {n} of a talk"} for n in range(16)]
_MANY = [f"candidate number {n} of a list, with some words" for n in range(1000)]
_TURN = {"speaker": "user", "text": "My parcel has not arrived, where is it?"}
_WHERE = {"any": [{f"field{n}": {"gte": n}} for n in range(190)]}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request that the service refuses."""

    method: str
    path: str
    body: object = None
    key: str = _KEY
    before: str = ""
    settings: dict[str, str] = field(default_factory=dict)


_RATE = {"TURNWISE_MAX_REQUEST_RATE": "1"}
_TURN_PATH = "/sessions/s/turn"
_SEARCH_PATH = "/pools/default/search"
KINDS = {
    "livez (200)": Kind("GET", "/livez", key=""),
    "unknown path": Kind("GET", "/none", key=""),
    "turn without a key": Kind("POST", _TURN_PATH, _TURN, key=""),
    "rank 1,000 without a key": Kind("POST", "/rank", {"candidates": _MANY}, key=""),
    "turn beyond the rate": Kind("POST", _TURN_PATH, _TURN, settings=_RATE),
    "turn, encoder queue full": Kind("POST", _TURN_PATH, _TURN, before=_QUEUE_FULL),
    "rank 1,000, encoder queue full": Kind(
        "POST", "/rank", {"candidates": _MANY}, before=_QUEUE_FULL
    ),
    "plan, planner full": Kind("POST", "/plan", {"goals": _GOALS}, before=_NO_ROOM),
    "filter, filters full": Kind(
        "POST", _SEARCH_PATH, {"text": "Hello", "where": _WHERE}, before=_NO_ROOM
    ),
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    run(parser, {"requests": 20, "kinds": ["unknown path", "turn beyond the rate"]}, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    for name in options.kinds:
        kind = KINDS[name]
        with _serving(kind) as service:
            asyncio.run(_measure_kind(service, name, kind, options.requests, rows))
    return rows


def _serving(kind: Kind) -> contextlib.AbstractContextManager[Served]:
    digest = hashlib.sha256(_KEY.encode()).hexdigest()
    keys = [{"name": _KEY, "sha256": digest, "scopes": ["select", "pools"]}]
    settings = {"TURNWISE_API_KEYS": json.dumps(keys), "TURNWISE_LOG_LEVEL": "info"}
    return served(REPLIES, None, kind.before, **settings, **kind.settings)


async def _measure_kind(service: Served, name: str, kind: Kind, requests: int, rows: Rows) -> None:
    connection = await Connection.open(service.port, _KEY)
    await connection.request("PUT", "/pools/default", {})
    await connection.request("PUT", "/pools/default/candidates", [{"text": "Good day."}])
    await _send(service, kind, _WARM_UP)
    before = service.process.cpu_seconds
    statuses = await _send(service, kind, requests)
    spent = service.process.cpu_seconds - before
    rows.add(
        what=name,
        bytes=len(json.dumps(kind.body)) if kind.body else 0,
        cpu_us=spent * 1e6 / requests,
        answers=" ".join(f"{number}x{status}" for status, number in statuses.items()),
    )


async def _send(service: Served, kind: Kind, requests: int) -> Counter[int]:
    """Send requests over all connections; count answers by status."""
    statuses = Counter[int]()

    async def send(number: int) -> None:
        connection = await Connection.open(service.port, kind.key)
        for _ in range(number):
            status, _ = await connection.request(kind.method, kind.path, kind.body)
            statuses[status] += 1
        connection.writer.close()

    await asyncio.gather(*(send(requests // _CONNECTIONS) for _ in range(_CONNECTIONS)))
    return statuses


if __name__ == "__main__":
    main()

"""Kills each part of a running Turnwise in turn while clients go on, and checks for losses.

    python -m research.replicas [--minutes 10] [--appendfsync always|everysec] [--out FILE]

The parts (`fleet.py`): three replicas and an encoder tier of two behind HAProxy, a Redis Cluster of
three primaries, a Milvus. Clients hold chats, edit a pool in memory and one in Milvus, search, rank
and plan. Meanwhile each part gets `kill -9`, and is started again some seconds later. A request
that fails is sent again, as the API allows it: a turn with its `Idempotency-Key`. Two seconds after
the last request, this program compares what the replicas hold with what was acknowledged:

- every acknowledged turn is in its session once, and nothing else is;
- both pools have all acknowledged edits, and nothing else;
- every replica gives the same answers;
- requests failed with 429 and 503 only. Failures of the proxy count apart: 502, 503 and 504 without
  a problem document, and connections that it did not accept because it was killed itself.

If one of these does not hold, the exit status is 1. The rows are one of the whole run, one for each
kill, and one for each second. `python -m research.replicas_picture` draws them. With
`TURNWISE_STORE_URL`, Milvus is the server there, and is not killed. It needs `haproxy`.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import numpy as np

from benchmarks.part import Part
from benchmarks.pools import replies, sayings
from benchmarks.record import Rows, arguments, run
from research.fleet import Fleet, running
from turnwise.service.settings import Settings

CHATS = 8
EDITABLE = 60
"""Candidates of a pool that are edited: a search shows all of them."""
POOLS = {"near": "local", "far": "milvus"}
"""The pools, and the store of each."""
LOOK = {"edited": {"exists": True}}
QUIET_SECONDS = 2.0
_PAUSE = 0.25
"""Mean seconds between two requests of a client."""
_AGAIN = 0.1
_GIVE_UP_SECONDS = 120.0
_BEFORE_KILL = 0.2
"""Share of the time for a part that passes before it is killed."""
_CLOSE = 2e-4
"""Largest difference of scores that were worked out from float16 vectors."""
_PROBLEM = "application/problem+json"
_ERRORS = ("429", "503", "proxy", "not accepted", "cut off")


@dataclass
class Clients:
    """Clients that go on through faults, and know what was acknowledged.

    Attributes:
        said: The acknowledged turns of each session, as speakers and texts.
        pools: The edited candidates of each pool, by id, as their texts.
        counts: Successes and failures of each second, by what they are.
        problems: The same for the types of the problems that were 503.
        wrong: What should not have happened.
    """

    http: httpx.AsyncClient
    begin: float = field(default_factory=monotonic)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    said: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    pools: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in POOLS})
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    problems: Counter[tuple[int, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    replayed: int = 0
    _texts: "count[int]" = field(default_factory=count)
    _random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311

    def now(self) -> float:
        """Return the second of the run."""
        return monotonic() - self.begin

    async def all(self) -> None:
        """Run all clients until it is over."""
        await asyncio.gather(
            *(self._chats(number) for number in range(CHATS)),
            *(self._edits(pool) for pool in POOLS),
            *(self._reads(self._search) for _ in POOLS),
            self._reads(self._rank),
            self._reads(self._plan),
        )

    async def done(
        self, what: str, method: str, path: str, body: object = None, key: str = ""
    ) -> dict[str, Any]:
        """Send a request until it succeeds; return the answer."""
        headers = {"Idempotency-Key": key} if key else {}
        end = monotonic() + _GIVE_UP_SECONDS
        while monotonic() < end:
            answer = await self._try(what, method, path, body, headers)
            if isinstance(answer, dict):
                return answer
            self.counts[int(self.now()), answer] += 1
            await asyncio.sleep(_AGAIN)
        raise SystemExit(f"{method} {path} failed for {_GIVE_UP_SECONDS:.0f} s")

    async def _try(
        self, what: str, method: str, path: str, body: object, headers: Mapping[str, str]
    ) -> dict[str, Any] | str:
        """Send a request once; return the answer, or the kind of the failure."""
        try:
            response = await self.http.request(method, path, json=body, headers=headers)
        except httpx.ConnectError:
            return "not accepted"
        except httpx.TimeoutException:
            self.wrong.append(f"{method} {path}: no answer")
            return "cut off"
        except httpx.TransportError:
            return "cut off"
        if response.is_success:
            self.counts[int(self.now()), what] += 1
            return dict(response.json()) if response.content else {}
        status = response.status_code
        if response.headers.get("content-type") != _PROBLEM:
            if status not in {502, 503, 504}:
                self.wrong.append(f"{method} {path}: {status} of the proxy")
            return "proxy"
        if status == 503:
            self.problems[int(self.now()), response.json()["type"].rpartition(":")[2]] += 1
        elif status != 429:
            self.wrong.append(f"{method} {path}: {response.text}")
        return str(status)

    async def _chats(self, client: int) -> None:
        """Hold one chat after another."""
        for number in count():
            session = f"chat-{client}-{number}"
            said = list[tuple[str, str]]()
            pool = [*POOLS][client % len(POOLS)]  # so that not all wait for the same store
            self.said[session] = said
            for text in islice(sayings(next(self._texts)), self._random.randint(4, 30)):
                speaker = ("user", "bot")[len(said) % 2]
                body = {"speaker": speaker, "text": text, "pool": pool}
                key = f"{session}-{len(said)}"
                answer = await self.done("turn", "POST", f"/sessions/{session}/turn", body, key)
                said.append((speaker, text))
                self.replayed += answer["replayed"]
                if answer["turn"] != len(said):
                    self.wrong.append(f"{session}: turn {answer['turn']}, not {len(said)}")
                await self._pause()
                if self.over.is_set():
                    return

    async def _edits(self, pool: str) -> None:
        """Upload and remove candidates."""
        has = self.pools[pool]
        path = f"/pools/{pool}/candidates"
        while not self.over.is_set():
            ids = self._random.sample(range(EDITABLE), 3)
            texts = dict(zip(map(str, ids), sayings(next(self._texts)), strict=False))
            await self.upload(pool, texts)
            if gone := self._random.choice([*has, ""]):
                await self.done("edit", "POST", f"{path}/delete", {"ids": [gone]})
                del has[gone]
            await self._pause()

    async def upload(self, pool: str, texts: Mapping[str, str]) -> None:
        """Upload candidates that can be found by their metadata."""
        body = [
            {"id": name, "text": text, "metadata": {"edited": True}} for name, text in texts.items()
        ]
        await self.done("edit", "PUT", f"/pools/{pool}/candidates", body)
        self.pools[pool] |= texts

    async def _reads(self, read: Callable[[], Awaitable[None]]) -> None:
        while not self.over.is_set():
            await read()
            await self._pause()

    async def _search(self) -> None:
        text = next(sayings(next(self._texts)))
        pool = self._random.choice([*POOLS])
        await self.done("search", "POST", f"/pools/{pool}/search", {"text": text})

    async def _rank(self) -> None:
        said = [{"speaker": "user", "text": next(sayings(next(self._texts)))}]
        goals = [{"text": self._random.choice(replies()), "speaker": "user"}]
        body = {"context": said, "pool": self._random.choice([*POOLS]), "goals": goals}
        await self.done("rank", "POST", "/rank", body | {"top_k": 5})

    async def _plan(self) -> None:
        goals = [{"text": text} for text in self._random.sample(replies(), 4)]
        await self.done("plan", "POST", "/plan", {"goals": goals, "method": "chain"})

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.expovariate(1 / _PAUSE))


@dataclass(frozen=True, slots=True)
class Kill:
    """The seconds of the run at which a part was killed, was started again, and did its work."""

    part: str
    killed: float
    started: float
    served: float


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--away", type=float, default=5, help="seconds until a part starts again")
    parser.add_argument("--appendfsync", choices=["always", "everysec"], default="everysec")
    parser.add_argument("--parts", nargs="+", help="the parts to kill; by default all")
    parser.add_argument("--logs", type=Path, help="keeps the logs and the data of all parts")
    wrong = list[str]()
    some = ["replica-1", "encoder-1", "redis-1", "milvus", "proxy"]
    toy = {"minutes": 1.0, "away": 1.0, "appendfsync": "always", "parts": some}
    run(parser, toy, lambda options: measure(options, wrong))
    for line in wrong:
        print(line, file=sys.stderr)
    raise SystemExit(1 if wrong else 0)


def measure(options: argparse.Namespace, wrong: list[str]) -> Rows:
    with tempfile.TemporaryDirectory(prefix="replicas-", ignore_cleanup_errors=True) as temporary:
        folder = options.logs or Path(temporary)
        return asyncio.run(tried(folder.absolute(), options, wrong))


async def tried(folder: Path, options: argparse.Namespace, wrong: list[str]) -> Rows:
    fsync = options.appendfsync
    store_url = Settings().store_url
    async with running(folder, fsync, store_url) as fleet, _client(fleet.url) as http:
        clients = Clients(http)
        await _make_pools(clients)
        clients.begin = monotonic()
        clients.counts.clear()
        going = asyncio.create_task(clients.all())
        kills = await _kill_each(fleet, clients, options)
        clients.over.set()
        await going
        await asyncio.sleep(QUIET_SECONDS)
        seconds = clients.now() - QUIET_SECONDS
        wrong += clients.wrong + await _differences(fleet, clients)
    return _rows(clients, kills, seconds, wrong)


def _client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=30)


async def _make_pools(clients: Clients) -> None:
    base = [{"id": f"base-{n}", "text": text} for n, text in enumerate(replies())]
    for pool, store in POOLS.items():
        await clients.done("create", "PUT", f"/pools/{pool}", {"store": store})
        await clients.done("edit", "PUT", f"/pools/{pool}/candidates", base)
        await clients.upload(pool, {"0": "A first edit."})


async def _kill_each(fleet: Fleet, clients: Clients, options: argparse.Namespace) -> list[Kill]:
    """Kill the parts one after the other, each when the one before serves again."""
    parts = [fleet.parts[name] for name in options.parts or fleet.parts if name in fleet.parts]
    each = 60 * options.minutes / len(parts)
    kills = list[Kill]()
    for part in parts:
        end = clients.now() + each
        await asyncio.sleep(each * _BEFORE_KILL)
        kills.append(await _kill(part, clients, options.away))
        print(kills[-1], flush=True)
        await asyncio.sleep(max(0.0, end - clients.now()))
    return kills


async def _kill(part: Part, clients: Clients, away: float) -> Kill:
    killed = clients.now()
    part.kill()
    await asyncio.sleep(away)
    started = clients.now()
    part.start()
    await part.served()
    return Kill(part.name, killed, started, clients.now())


async def _differences(fleet: Fleet, clients: Clients) -> list[str]:
    """Return how the replicas differ from what was acknowledged, and from each other."""
    found = list[str]()
    answers = list[list[tuple[str, list[float]]]]()
    for url in fleet.replicas:
        async with _client(url) as http:
            for pool, expected in clients.pools.items():
                body = {"text": "Hello", "top_k": 100, "where": LOOK}
                answer = (await http.post(f"/pools/{pool}/search", json=body)).json()
                has = {each["id"]: each["text"] for each in answer.get("candidates", [])}
                if has != expected:
                    differ = sorted(dict(has.items() ^ expected.items()))
                    found.append(f"{url}: pool {pool} differs in {differ}")
            for session, said in clients.said.items():
                answer = (await http.get(f"/sessions/{session}")).json()
                told = [(turn["speaker"], turn["text"]) for turn in answer.get("transcript", [])]
                if told != said:
                    found.append(
                        f"{url}: {session} has {len(told)} turns; {len(said)} were acknowledged"
                    )
            answers.append([await _answer(http, *question) for question in _questions()])
    for url, given in zip(fleet.replicas, answers, strict=True):
        found += [
            f"{url} says {one}, and {fleet.replicas[0]} {other}"
            for one, other in zip(given, answers[0], strict=True)
            if one[0] != other[0] or not np.allclose(one[1], other[1], atol=_CLOSE)
        ]
    return found


def _questions() -> list[tuple[str, dict[str, Any]]]:
    texts = list(islice(sayings(-1), 4))
    said = [{"speaker": "user", "text": text} for text in texts]
    goals = [{"text": text, "speaker": "user"} for text in replies()[:5]]
    asked: list[tuple[str, dict[str, Any]]] = [("/plan", {"context": said, "goals": goals})]
    for pool in POOLS:
        asked += [(f"/pools/{pool}/search", {"text": text}) for text in texts]
        asked.append(("/rank", {"context": said, "pool": pool, "goals": goals}))
    return asked


async def _answer(
    http: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> tuple[str, list[float]]:
    """Return an answer without times and scores, and its scores."""
    answer = (await http.post(path, json=body)).json()
    scores = list[float]()
    answer.pop("timings_ms", None)

    def set_apart(score: str) -> None:
        scores.append(float(score))

    return json.dumps(json.loads(json.dumps(answer), parse_float=set_apart)), scores


def _rows(clients: Clients, kills: list[Kill], seconds: float, wrong: list[str]) -> Rows:
    rows = Rows()
    counts = clients.counts
    total = Counter[str]()
    for (_, what), number in counts.items():
        total[what] += number
    turns = sum(map(len, clients.said.values()))
    rows.add(
        seconds=seconds,
        sessions=len(clients.said),
        turns=turns,
        turns_per_second=turns / seconds,
        replayed=clients.replayed,
        edits=total["edit"],
        reads=sum(total[what] for what in ("search", "rank", "plan")),
        **{_field(error): total[error] for error in _ERRORS},
        problems=_named(clients.problems, range(int(seconds) + 1)),
        wrong=len(wrong),
    )
    ends = [kill.killed for kill in kills[1:]] + [seconds]
    for kill, end in zip(kills, ends, strict=True):
        window = range(int(kill.killed), int(end))
        rows.add(
            part=kill.part,
            killed=kill.killed,
            started=kill.started,
            served=kill.served,
            seconds_to_serve=kill.served - kill.started,
            seconds_without_turns=_longest(window, counts),
            **{_field(error): sum(counts[s, error] for s in window) for error in _ERRORS},
            problems=_named(clients.problems, window),
        )
    for second in range(int(seconds)):
        rows.append(
            {
                "second": second,
                **{
                    what: counts[second, what]
                    for what in ("turn", "edit", "search", "rank", "plan")
                },
                **{_field(error): counts[second, error] for error in _ERRORS},
            }
        )
    return rows


def _field(error: str) -> str:
    return f"failed_{error.replace(' ', '_')}"


def _named(problems: Counter[tuple[int, str]], window: range) -> str:
    """Return the problems of a window by their type, as a text."""
    total = Counter[str]()
    for (second, kind), number in problems.items():
        total[kind] += number if second in window else 0
    return ", ".join(f"{number} {kind}" for kind, number in total.most_common() if number)


def _longest(window: range, counts: Counter[tuple[int, str]]) -> int:
    """Return the most seconds in a row in which no turn was acknowledged."""
    longest = now = 0
    for second in window:
        now = 0 if counts[second, "turn"] else now + 1
        longest = max(longest, now)
    return longest


if __name__ == "__main__":
    main()

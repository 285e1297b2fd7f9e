"""The whole service over real HTTP and a real Redis, with a tiny model; and a naive oracle."""

import asyncio
import gc
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import httpx
import numpy as np
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.rerankers import save_tiny_pairwise
from tests.service.conftest import RedisServer
from turnwise.models.arrays import Float64
from turnwise.models.data import Utterance, merge_runs
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Relation, Role, relation_to
from turnwise.service.api.http.protocol import BoundedProtocol
from turnwise.service.api.services import Services
from turnwise.service.app.encoder_only import create_encoder_app
from turnwise.service.app.wiring import create_app
from turnwise.service.cli.main import main
from turnwise.service.settings import Settings

Said = Sequence[tuple[str, str]]
Command = Callable[..., str]
"""Runs a command with some words; returns what it says."""
_NAMES = count()

REPLIES = [
    "Sure, what is your booking number?",
    "The kitchen closes at ten.",
    "I am sorry to hear that.",
    "Your parcel left the depot this morning.",
    "You are welcome!",
    "Would you like a table by the window?",
    "We have sent you a new password.",
    "Goodbye, and thank you for calling.",
]
DIALOGUE = [
    ("user", "Hello there"),
    ("bot", "Hi, how can I help?"),
    ("user", "My parcel has not come."),
    ("user", "It was due on Monday."),
    ("bot", "Let me look into it."),
    ("user", "Thank you"),
]


def api_key(name: str, *scopes: str) -> dict[str, object]:
    """The setting of a key that is its own name."""
    digest = sha256(name.encode()).hexdigest()
    return {"name": name, "sha256": digest, "scopes": scopes or ("select", "pools")}


class InNamespace:
    """An application in which whoever brings no API key acts in one namespace, where that is set.

    So the tests that share a service do not see each other's sessions and pools.
    """

    KEY: ClassVar = api_key("tests", "admin")

    def __init__(self, app: ASGIApp) -> None:
        self._app, self.name = app, ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope.get("headers", [])
        if self.name and not any(name == b"authorization" for name, _ in headers):
            key = (b"authorization", b"Bearer tests")
            scope["headers"] = [*headers, key, (b"turnwise-namespace", self.name.encode())]
        await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Live:
    """A running service."""

    http: httpx.Client
    services: Services
    app: InNamespace
    stop: Callable[[], None]

    @property
    def encoder(self) -> UtteranceEncoder:
        return self.services.encoder

    @property
    def namespace(self) -> str:
        """Of whoever brings no key."""
        return self.app.name or "default"

    @property
    def url(self) -> str:
        return str(self.http.base_url)

    @property
    def ready(self) -> bool:
        return self.http.get("/readyz").is_success

    @property
    def redis_url(self) -> str:
        return self.services.settings.redis_url or ""

    def turn(self, session: str, speaker: str, text: str, **fields: object) -> dict[str, Any]:
        body = {"speaker": speaker, "text": text, **fields}
        return self.ok(self.http.post(f"/sessions/{session}/turn", json=body))

    def try_turn(self, text: str = "Hello", key: str = "", **fields: object) -> httpx.Response:
        """Let the user of session `s` say something, which may be refused."""
        headers = {"Idempotency-Key": key} if key else {}
        body = {"speaker": "user", "text": text, **fields}
        return self.http.post("/sessions/s/turn", json=body, headers=headers)

    def say(self, session: str, said: Said, **fields: object) -> dict[str, Any]:
        return [self.turn(session, speaker, text, **fields) for speaker, text in said][-1]

    def post(self, path: str, **fields: object) -> dict[str, Any]:
        return self.ok(self.http.post(path, json=fields))

    def get(self, path: str, **query: object) -> dict[str, Any]:
        return self.ok(self.http.get(path, params=query))  # type: ignore[arg-type]

    def fill(self, replies: Sequence[str] = REPLIES, pool: str = "default") -> None:
        items = [{"id": f"r{place}", "text": text} for place, text in enumerate(replies)]
        self.ok(self.http.put(f"/pools/{pool}", json={}))
        self.ok(self.http.put(f"/pools/{pool}/candidates", json=items))

    def metric(self, name: str, **labels: str) -> float:
        page = self.http.get("/metrics").text.splitlines()
        lines = [line for line in page if line.startswith(name)]  # to parse all of it takes longer
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        raise KeyError(name)

    def increase(self, name: str, **labels: str) -> Callable[[], float]:
        """Begin to count; what is returned tells by how much a metric has grown since."""

        def value() -> float:
            with suppress(KeyError):
                return self.metric(name, **labels)
            return 0.0  # a series that begins with its first event

        assert f"# TYPE {name} " in self.http.get("/metrics").text
        before = value()
        return lambda: value() - before

    def written(self) -> Callable[[], float]:
        """Begin to count the vectors that are added to a session when the service is idle."""
        return self.increase(
            "turnwise_redis_operations_total", operation="session_fill", result="ok"
        )

    def encoded(self) -> Callable[[], dict[str, float]]:
        """Begin to count the texts of each role that somebody waits for."""
        grown = {
            role: self.increase("turnwise_encoded_texts_total", role=role, lane="critical")
            for role in ("first", "second", "after")
        }
        return lambda: {role: count for role in grown if (count := grown[role]())}

    @staticmethod
    def ok(response: httpx.Response) -> dict[str, Any]:
        assert response.is_success, response.text
        answer: dict[str, Any] = response.json()
        return answer


def problem(answer: httpx.Response) -> tuple[int, str]:
    """The status and the kind of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("urn:turnwise:problem:")


def wrong(answer: httpx.Response) -> list[list[str | int]]:
    """The places in a request that an answer calls invalid."""
    assert problem(answer) == (422, "invalid-request"), answer.text
    return [error["loc"] for error in answer.json()["errors"]]


def posts(said: Said) -> list[dict[str, str]]:
    """A context, as a request has it."""
    return [{"speaker": speaker, "text": text} for speaker, text in said]


def scores(answer: dict[str, Any], field: str = "score") -> dict[str, Any]:
    """The scores of an answer's candidates by their texts, in the order of the answer."""
    ranked = answer["ranking"] if "ranking" in answer else answer["candidates"]
    return {candidate["text"]: candidate[field] for candidate in ranked}


def write_lines(path: Path, *items: object) -> Path:
    """Write a JSON Lines file, every other line of which is empty."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(item) + "\n\n" for item in items)
    return path


class Held:
    """An encoder whose next batch does not come back until it is let go."""

    def __init__(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has, self._go = threading.Event(), threading.Event()
        forward = live.encoder.forward

        def held(tokens: Any) -> Any:  # noqa: ANN401
            self.has.set()
            assert self._go.wait(60)
            return forward(tokens)

        monkeypatch.setattr(live.encoder, "forward", held)

    def let_go(self) -> None:
        self._go.set()


Loop = Literal["auto", "asyncio"]


class Launch(Protocol):
    def __call__(self, **settings: object) -> Live: ...


@contextmanager
def launching(loop: Loop = "auto", **defaults: object) -> Iterator[Launch]:
    """Start services, each with its settings; all stop at the end."""
    with ExitStack() as stack:

        def start(**fields: object) -> Live:
            live = serve(Settings.model_validate(defaults | fields), loop)
            stack.callback(live.stop)
            return live

        yield start


@pytest.fixture(scope="session")
def defaults(
    tiny_encoder_folder: Callable[[EncoderKind], Path], data_folder: Path
) -> dict[str, object]:
    """Settings of the tests' services."""
    model = str(tiny_encoder_folder(EncoderKind.TRIPLE))
    # A busy machine is no Redis that is away.
    return {"model": model, "device": "cpu", "data_dir": data_folder, "redis_timeout": 10.0}


@pytest.fixture
def launch(redis_url: str, defaults: dict[str, object]) -> Iterator[Launch]:
    """Services of the test's own, on an empty Redis."""
    with launching(redis_url=redis_url, **defaults) as start:
        yield start


@pytest.fixture
def own(launch: Launch) -> Live:
    """A service of the test's own, to break or to count, with a pool `default` of a few replies."""
    live = launch()
    live.fill()
    return live


@pytest.fixture(scope="session")
def share(defaults: dict[str, object]) -> Iterator[Launch]:
    """Services that tests share, each on a Redis of its own, which nobody empties."""
    # uvloop once crashed (a segmentation fault) where such a service ran beside other loops.
    given = {"api_keys": [InNamespace.KEY], **defaults}
    with ExitStack() as stack, launching("asyncio", **given) as start:

        def on_its_redis(**fields: object) -> Live:
            server = RedisServer()
            stack.callback(server.remove)
            return start(redis_url=server.url, **fields)

        yield on_its_redis


with_and_without_heads = pytest.mark.parametrize("kind", [EncoderKind.TRIPLE, EncoderKind.HEADS])
"""Runs a test of `live` for both kinds of encoder that form pairs."""


@pytest.fixture
def kind() -> EncoderKind:
    """The kind of encoder of `live` and of `oracle`."""
    return EncoderKind.TRIPLE


@pytest.fixture(scope="session")
def model_of(
    tiny_encoder_folder: Callable[[EncoderKind], Path], in_torch: Path
) -> Callable[[EncoderKind], dict[str, Any]]:
    """From a kind of encoder to the settings of a service that runs it in torch."""
    return lambda kind: {"model": str(tiny_encoder_folder(kind)), "data_dir": in_torch}


@pytest.fixture(scope="session")
def _live(
    share: Launch, model_of: Callable[[EncoderKind], dict[str, Any]]
) -> Callable[[EncoderKind], Live]:
    return cache(lambda kind: share(**({} if kind is EncoderKind.TRIPLE else model_of(kind))))


@pytest.fixture(scope="session")
def _by_pairs(share: Launch, pairwise_folder: Path, in_torch: Path) -> Live:
    return share(pairwise=pairwise_folder, data_dir=in_torch)


@pytest.fixture
def live(_live: Callable[[EncoderKind], Live], kind: EncoderKind) -> Live:
    """A service with a pool `default` of a few replies; other tests have other namespaces of it."""
    return with_replies(_live(kind))


@pytest.fixture
def by_pairs(_by_pairs: Live) -> Live:
    """A shared service with a pool of the same replies for each encoder."""
    live = with_replies(_by_pairs)
    live.ok(live.http.put("/pools/pairs", json={"encoder": "pairwise"}))
    live.fill(pool="pairs")
    return live


def with_replies(shared: Live) -> Live:
    """Return a shared service in a new namespace that has the pool `default`."""
    shared.app.name = f"n{next(_NAMES)}"
    shared.fill()
    return shared


@pytest.fixture(scope="session")
def pairwise_folder(
    tmp_path_factory: pytest.TempPathFactory, tiny_encoder_folder: Callable[[EncoderKind], Path]
) -> Path:
    folder = tmp_path_factory.mktemp("pairwise") / "model"
    return save_tiny_pairwise(folder, tiny_encoder_folder(EncoderKind.SINGLE))


def unseen(live: Live, items: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the items with texts that no other test has had encoded."""
    return [item | {"text": f"{item['text']} {live.namespace}"} for item in items]


def serve(
    settings: Settings, loop: Loop = "auto", *, encoder_only: bool = False, port: int = 0
) -> Live:
    api = create_encoder_app(settings) if encoder_only else create_app(settings)
    app = InNamespace(api)
    listener = socket.create_server(("127.0.0.1", port))
    # As `turnwise serve`: with uvicorn's 5 seconds, which are also those of httpx, the service may
    # close an idle connection at the moment at which a test sends a request on it.
    config = uvicorn.Config(
        app, loop=loop, http=BoundedProtocol, log_config=None, ws="none", timeout_keep_alive=75
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.005)
    http = httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60)

    def stop() -> None:
        http.close()
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), f"the service did not stop: {_unfinished()}"

    return Live(http, api.state.services, app, stop)


def _unfinished() -> list[str]:
    tasks = [item for item in gc.get_objects() if isinstance(item, asyncio.Task)]
    return [str(task) for task in tasks if not task.done()]


class Oracle:
    """The equations of the papers, pair by pair, in float64."""

    def __init__(self, encoder: UtteranceEncoder) -> None:
        self.encoder = encoder

    @cache  # noqa: B019 - one for all tests
    def vector(self, text: str, role: Role, relation: Relation | None = None) -> Float64:
        return self.encoder.encode([text], role, relation)[0].astype(np.float64)

    def after(self, text: str) -> Float64:
        return self.vector(text, Role.AFTER)

    def context(self, said: Said, target: str) -> tuple[list[Float64], list[Float64]]:
        merged = merge_runs(Utterance(*post) for post in said)
        first, second = (
            [self.vector(u.text, role, relation_to(u.speaker, target)) for u in merged]
            for role in (Role.FIRST, Role.SECOND)
        )
        return first, second

    def pairs(self, said: Said, text: str, target: str = "bot") -> dict[tuple[int, int], float]:
        """cos((b1_i + b2_j)/2, a_f) of every i < j."""
        first, second = self.context(said, target)
        return {
            (i, j): _cosine(first[i] + second[j], self.after(text))
            for j in range(len(second))
            for i in range(j)
        }

    def score(
        self, said: Said, text: str, last_rows: int | None = None, target: str = "bot"
    ) -> float:
        pairs = self.pairs(said, text, target)
        if not pairs:
            return float(self.context(said, target)[1][0] @ self.after(text))
        n = 1 + max(j for _, j in pairs)
        return sum(x for (_, j), x in pairs.items() if last_rows is None or j >= n - last_rows)

    def max_sim(self, said: Said, text: str) -> float:
        pairs = self.pairs(said, text)
        if not pairs:
            return self.score(said, text)
        used: set[int] = set()
        counted = []
        for (i, j), score in sorted(pairs.items(), key=lambda pair: -pair[1]):
            if i not in used or j not in used:
                counted.append(score)
                used |= {i, j}
        return sum(counted) / len(counted)

    def reachability(self, said: Said, candidate: tuple[str, str], goal: tuple[str, str]) -> float:
        (speaker, text), (goal_speaker, goal_text) = candidate, goal
        relation = relation_to(speaker, goal_speaker)
        second = self.vector(text, Role.SECOND, relation)
        first, _ = self.context(said, goal_speaker)
        goal_vector = self.after(goal_text)
        mixed = [_cosine(b1 + second, goal_vector) for b1 in first]
        return float(second @ goal_vector) + sum(mixed) / max(len(mixed), 1)


@pytest.fixture
def oracle(tiny_encoder: Callable[[EncoderKind], UtteranceEncoder], kind: EncoderKind) -> Oracle:
    return _oracle(tiny_encoder(kind))


@cache
def _oracle(encoder: UtteranceEncoder) -> Oracle:
    return Oracle(encoder)


def _cosine(x: Float64, y: Float64) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


class Ended(NamedTuple):
    """What a command left."""

    status: int
    out: str
    err: str


Turnwise = Callable[..., Ended]


@pytest.fixture
def turnwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Turnwise:
    """Run `turnwise` with some words."""

    def run(*words: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["turnwise", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        return Ended(int(caught.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def pool_command(
    turnwise: Turnwise, monkeypatch: pytest.MonkeyPatch, live: Live, defaults: dict[str, object]
) -> Turnwise:
    """Run `turnwise pool` in the test's namespace."""
    for name, value in (defaults | {"redis_url": live.redis_url}).items():
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", str(value))

    def run(word: str, *words: object) -> Ended:
        where = ["--namespace", live.namespace] if word in {"snapshot", "restore", "import"} else []
        return turnwise("pool", word, *where, *words)

    return run


@pytest.fixture
def command(pool_command: Turnwise) -> Command:
    """Run `turnwise pool` with words that it takes; return what it says."""

    def run(*words: object) -> str:
        ended = pool_command(*words)
        assert not ended.status, ended.err
        return ended.out

    return run


@pytest.fixture
def refused(pool_command: Turnwise) -> Command:
    """Run `turnwise pool` with words that it rejects; return the one line that it says."""

    def run(*words: object) -> str:
        ended = pool_command(*words)
        assert ended.status == 2
        *place, line = ended.err.splitlines()
        assert len(place) <= 1
        assert all(", namespace " in each for each in place)  # whose pools the command is about
        return line

    return run

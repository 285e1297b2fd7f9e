"""The whole service over real HTTP, in a thread of the test."""

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import httpx
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.messages import QUESTIONS, REPLIES, Said
from tests.support.waiting import PATIENCE
from turnwise.models.confidence import Calibration
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind
from turnwise.service.api.http.protocol import BoundedProtocol
from turnwise.service.api.services import Services
from turnwise.service.app.encoder_only import create_encoder_app
from turnwise.service.app.wiring import create_app
from turnwise.service.settings import Settings

CALIBRATION = Calibration(0.5, 0.8, 0.7, -0.2, 0.1, -1.5)
"""Of the service `calibrated`, so that its confidences are all below 1."""
_NAMES = count()


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
        self._app = app
        self.name = ""

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

    def feedback(
        self, candidate: str, event: str, *, session: str = "s", turn: int = 1, **fields: object
    ) -> dict[str, Any]:
        path = f"/sessions/{session}/turns/{turn}/feedback"
        return self.post(path, candidate=candidate, event=event, **fields)

    def post(self, path: str, **fields: object) -> dict[str, Any]:
        return self.ok(self.http.post(path, json=fields))

    def get(self, path: str, **query: object) -> dict[str, Any]:
        return self.ok(self.http.get(path, params=query))  # type: ignore[arg-type]

    def put(self, path: str, body: object, **given: Any) -> dict[str, Any]:
        return self.ok(self.http.put(path, json=body, **given))

    def patch(self, path: str, body: object) -> dict[str, Any]:
        return self.ok(self.http.patch(path, json=body))

    def delete(self, path: str, **query: object) -> dict[str, Any]:
        return self.ok(self.http.delete(path, params=query))  # type: ignore[arg-type]

    def make_pool(self, name: str, candidates: Sequence[object]) -> None:
        self.put(f"/pools/{name}", {})
        self.put(f"/pools/{name}/candidates", candidates)

    def fill(self, replies: Sequence[str] = REPLIES, pool: str = "default") -> None:
        items = [{"id": f"r{place}", "text": text} for place, text in enumerate(replies)]
        self.make_pool(pool, items)

    def give_examples(self) -> None:
        """Give the first replies an example each, and put two of them into one group."""
        items: list[dict[str, object]] = [
            {"id": f"r{index}", "text": REPLIES[index], "examples": [question]}
            for index, question in enumerate(QUESTIONS)
        ]
        items[0]["group"] = "answer"
        items[1]["group"] = "answer"
        self.put("/pools/default/candidates", items)

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


class Held:
    """An encoder whose next batch does not come back until it is let go."""

    def __init__(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has = threading.Event()
        self._go = threading.Event()
        forward = live.encoder.forward

        def held(tokens: Any) -> Any:
            self.has.set()
            assert self._go.wait(PATIENCE)
            return forward(tokens)

        monkeypatch.setattr(live.encoder, "forward", held)

    def let_go(self) -> None:
        self._go.set()


WAITS: dict[str, object] = {"redis_timeout": 10.0, "request_timeout": PATIENCE}
"""Settings of services: on a busy machine no request fails, and Redis does not look down."""
Loop = Literal["auto", "asyncio"]


class Launch(Protocol):
    def __call__(self, **settings: object) -> Live: ...


@contextmanager
def launching(loop: Loop = "auto", **defaults: object) -> Iterator[Launch]:
    """Start services, each with its settings; all stop at the end."""
    with ExitStack() as stack:

        def start(**fields: object) -> Live:
            live = serve(Settings.model_validate(WAITS | defaults | fields), loop)
            stack.callback(live.stop)
            return live

        yield start


with_and_without_heads = pytest.mark.parametrize("kind", [EncoderKind.TRIPLE, EncoderKind.HEADS])
"""Runs a test of `live` for both kinds of encoder that form pairs."""


def with_replies(shared: Live) -> Live:
    """Return a shared service in a new namespace that has the pool `default`."""
    shared.app.name = f"n{next(_NAMES)}"
    shared.fill()
    return shared


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
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    http = httpx.Client(base_url=url, timeout=PATIENCE)

    def stop() -> None:
        http.close()
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"the service did not stop: {_unfinished()}"

    return Live(http, api.state.services, app, stop)


def _unfinished() -> list[str]:
    tasks = [item for item in gc.get_objects() if isinstance(item, asyncio.Task)]
    return [str(task) for task in tasks if not task.done()]


class Ended(NamedTuple):
    """What a command left."""

    status: int
    out: str
    err: str


Turnwise = Callable[..., Ended]

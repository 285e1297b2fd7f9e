"""The whole service over real HTTP and a real Redis, with a tiny model; and a naive oracle."""

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from tests.rerankers import save_tiny_pairwise
from turnwise.models.arrays import Float64
from turnwise.models.data import Utterance, merge_runs
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Role, relation_to
from turnwise.service.api.protocol import BoundedProtocol
from turnwise.service.api.services import Services
from turnwise.service.app.wiring import create_app
from turnwise.service.settings import Settings

Said = Sequence[tuple[str, str]]

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


@dataclass(frozen=True, slots=True)
class Live:
    """A running service."""

    http: httpx.Client
    services: Services
    stop: Callable[[], None]

    @property
    def encoder(self) -> UtteranceEncoder:
        return self.services.encoder

    def turn(self, session: str, speaker: str, text: str, **fields: object) -> dict[str, Any]:
        body = {"speaker": speaker, "text": text, **fields}
        return self.ok(self.http.post(f"/sessions/{session}/turn", json=body))

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
        for family in text_string_to_metric_families(self.http.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        raise KeyError(name)

    @staticmethod
    def ok(response: httpx.Response) -> dict[str, Any]:
        assert response.is_success, response.text
        answer: dict[str, Any] = response.json()
        return answer


class Launch(Protocol):
    def __call__(self, **settings: object) -> Live: ...


@pytest.fixture
def launch(
    redis_url: str, tiny_encoder_folder: Callable[[EncoderKind], Path], data_folder: Path
) -> Iterator[Launch]:
    """Start services on one Redis, each with its settings; all stop at the end."""
    running: list[Live] = []

    def start(**fields: object) -> Live:
        defaults = {
            "redis_url": redis_url,
            "model": str(tiny_encoder_folder(EncoderKind.TRIPLE)),
            "device": "cpu",
            "data_dir": data_folder,
        }
        live = serve(Settings.model_validate(defaults | fields))
        running.append(live)
        return live

    yield start
    for live in running:
        live.stop()


@pytest.fixture
def live(launch: Launch) -> Live:
    """A service with a pool `default` of a few replies."""
    live = launch()
    live.fill()
    return live


@pytest.fixture
def pairwise_folder(tmp_path: Path, tiny_encoder_folder: Callable[[EncoderKind], Path]) -> Path:
    return save_tiny_pairwise(tmp_path / "pairwise", tiny_encoder_folder(EncoderKind.SINGLE))


@pytest.fixture
def by_pairs(launch: Launch, pairwise_folder: Path) -> Live:
    """A service with a pool of the same replies for each encoder."""
    live = launch(pairwise=pairwise_folder)
    live.fill()
    live.ok(live.http.put("/pools/pairs", json={"encoder": "pairwise"}))
    live.fill(pool="pairs")
    return live


def serve(settings: Settings) -> Live:
    app = create_app(settings)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=BoundedProtocol, log_config=None, ws="none"))
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

    return Live(http, app.state.services, stop)


def _unfinished() -> list[str]:
    tasks = [item for item in gc.get_objects() if isinstance(item, asyncio.Task)]
    return [str(task) for task in tasks if not task.done()]


class Oracle:
    """The equations of the papers, pair by pair, in float64."""

    def __init__(self, encoder: UtteranceEncoder) -> None:
        self.encoder = encoder

    def after(self, text: str) -> Float64:
        return self.encoder.encode([text], Role.AFTER)[0].astype(np.float64)

    def context(self, said: Said, target: str) -> tuple[list[Float64], list[Float64]]:
        merged = merge_runs(Utterance(*post) for post in said)
        first, second = (
            [
                self.encoder.encode([u.text], role, relation_to(u.speaker, target))[0].astype(float)
                for u in merged
            ]
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
        second = self.encoder.encode([text], Role.SECOND, relation)[0].astype(float)
        first, _ = self.context(said, goal_speaker)
        goal_vector = self.after(goal_text)
        mixed = [_cosine(b1 + second, goal_vector) for b1 in first]
        return float(second @ goal_vector) + sum(mixed) / max(len(mixed), 1)


@pytest.fixture
def oracle(tiny_encoder: Callable[[EncoderKind], UtteranceEncoder]) -> Oracle:
    return Oracle(tiny_encoder(EncoderKind.TRIPLE))


def _cosine(x: Float64, y: Float64) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

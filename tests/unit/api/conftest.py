"""The HTTP shell over parts that only remember how they were called."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from turnwise.models.roles import EncoderKind
from turnwise.service.api import create_api
from turnwise.service.api.access.admission import Admission
from turnwise.service.api.access.concurrency import limit_concurrency
from turnwise.service.api.access.keys import ApiKeys
from turnwise.service.api.services import Services
from turnwise.service.encoder.batcher import Priority
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.settings import Limits, Settings
from turnwise.service.threads import make_python_threads
from turnwise.service.wire.chat import ChatModelList
from turnwise.service.wire.keys import ApiKey, Scope
from turnwise.service.wire.planning import PlanAnswer, PlannedOrder
from turnwise.service.wire.pools import (
    CandidatePage,
    Edited,
    LearnedList,
    LearnedText,
    PoolCandidate,
    PoolInfo,
    PoolVersion,
    Removed,
    SearchAnswer,
    Selected,
    Unlearned,
)
from turnwise.service.wire.ranking import RankAnswer, Ranked
from turnwise.service.wire.sessions import (
    Feedback,
    ScoreMatrix,
    SessionsDeleted,
    SessionsPage,
    Transcript,
    TranscriptTurn,
    TurnAnswer,
    Undone,
)

TURN = TranscriptTurn(turn=1, speaker="user", text="Hello.", at=1.5)
TRANSCRIPT = Transcript(
    session_id="s", responder="bot", turns=1, transcript=[TURN], model="f", expires_at=2.5
)
FEEDBACK = Feedback(turn=1, candidate="c", event="chosen", text=None, rank=1)
SELECTED = Selected(id="c", text="Good day.", score=0.5, metadata={"intent": "greeting"})
CANDIDATE = PoolCandidate(
    id="c",
    text="Good day.",
    metadata={"intent": "greeting"},
    group=None,
    examples=["Hello?"],
    learned=[LearnedText(text="Anybody there?", at=1.5)],
)
TIMINGS = {"encode": 5.25, "total": 7.5}
POOL = PoolInfo(
    name="p",
    version=3,
    size=2,
    index="flat",
    exact=True,
    recall_at_10=None,
    encoder="default",
    store="local",
    model="tiny",
    fingerprint="f",
    state="ready",
    description="",
    created_at=1.0,
    bytes=128,
    progress=None,
)
ENCODER: Any = SimpleNamespace(
    name="tiny",
    fingerprint="f",
    kind=EncoderKind.TRIPLE,
    dimension=32,
    aggregation=SimpleNamespace(name="mean"),
    runtime="torch on cpu",
    device="cpu",
    threads=2,
)
EDITED = Edited(version=4, upserted=2, unchanged=0, size=4)


class Parts:
    """Stands in for every part: remembers calls, and answers or raises what the test says."""

    turn: Any

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.memory = Memory()
        self.resources = self
        self.ready = self.healthy = True
        self.stalled = self.hung = False
        self.missing = SimpleNamespace(warning=None)
        self.outcomes: dict[str, Any] = {
            "turn": TurnAnswer(
                session_id="s",
                turn=1,
                candidates=[SELECTED],
                model="tiny",
                pool=PoolVersion(name="default", version=3),
                timings_ms=TIMINGS,
            ),
            "open": TRANSCRIPT,
            "transcript": TRANSCRIPT,
            "add_feedback": FEEDBACK,
            "undo": Undone(session_id="s", turn=0, removed=TURN),
            "delete": None,
            "page": SessionsPage(ids=["s"], cursor=None),
            "erase": SessionsDeleted(deleted=1, cursor=None),
            "scores": ScoreMatrix(
                session_id="s",
                pool=PoolVersion(name="p", version=3),
                ids=["c"],
                turns=[1],
                scores=[[0.5]],
            ),
            "rank": RankAnswer(
                ranking=[Ranked(index=0, id=None, text="Hi.", score=1.0, fit=None, goals=[])],
                rejected=[],
                pool=None,
                model="tiny",
                timings_ms=TIMINGS,
            ),
            "search": SearchAnswer(candidates=[SELECTED]),
            "plan": PlanAnswer(
                orders=[PlannedOrder(order=["0", "1"], score=1.0)],
                next_goal="0",
                method="chain",
                optimal=True,
                model="tiny",
                timings_ms=TIMINGS,
            ),
            "models": ChatModelList(data=[]),
            "list_learned": LearnedList(learned=[]),
            "unlearn": Unlearned(version=4, removed=1),
            "list_candidates": CandidatePage(candidates=[CANDIDATE], cursor="c", matching=2),
            "get_candidate": CANDIDATE,
            "change_candidate": EDITED,
            "list": [POOL],
            "info": POOL,
            "create": POOL,
            "upsert": EDITED,
            "remove": EDITED,
            "remove_many": Removed(version=4, removed=1, missing=1, size=1),
            "point": POOL,
            "unpoint": None,
            "drop": None,
            "ping": True,
        }

    def check(self, priority: Priority) -> None:
        """Raise what the queue would refuse a turn with."""
        if error := self.outcomes.get("check"):
            raise error

    async def list(self, *args: object) -> Any:
        return self._outcome("list", *args)

    async def upsert(
        self,
        namespace: str,
        name: str,
        candidates: Sequence[Candidate],
        progress: Callable[[int, int], None] | None,
    ) -> Any:
        if progress:
            progress(1, 2)
            await asyncio.sleep(0)
            progress(2, 2)
        return self._outcome("upsert", namespace, name, list(candidates))

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("outcomes", {}):
            raise AttributeError(name)

        async def call(*args: object, **options: object) -> Any:
            return self._outcome(name, *args, *options.values())

        return call

    def _outcome(self, name: str, *args: object) -> Any:
        self.calls.append((name, *args))
        outcome = self.outcomes[name]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class NoChecks:
    """Checks of an upload that find nothing."""

    async def warn(self, candidates: Sequence[Candidate]) -> list[str]:
        return []


def api_key(name: str, *scopes: Scope) -> ApiKey:
    """A key whose secret is its name."""
    return ApiKey(
        name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), scopes=frozenset(scopes)
    )


def make_app(parts: Parts, **settings: Any) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield

    metrics = Metrics()
    values = Settings(**settings)
    app = create_api(values, metrics, lifespan)
    stub: Any = parts
    no_checks: Any = NoChecks()
    app.state.services = Services(
        settings=values,
        metrics=metrics,
        admission=Admission(values, metrics),
        concurrency=limit_concurrency(metrics),
        keys=ApiKeys(values, metrics),
        encoder=ENCODER,
        turns=stub,
        chat=stub,
        sessions=stub,
        learning=stub,
        ranking=stub,
        document_ranking=stub,
        search=stub,
        planning=stub,
        pools=stub,
        candidates=stub,
        upload_checks=no_checks,
        followed_pools=stub,
        pool_follower=stub,
        queues=(stub,),
        bodies=make_python_threads("bodies", metrics),
        uploads=make_python_threads("uploads", metrics),
        redis_answers=stub.ping,
    )
    return app


def connect(app: FastAPI, **kwargs: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", **kwargs)


def request_scope(method: str, path: str, **headers: str) -> dict[str, Any]:
    """The ASGI scope of a request, for tests that play the server."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "client": None,
        "server": None,
        "state": {},
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ],
    }


@pytest.fixture
def parts() -> Parts:
    return Parts()


Limit = Callable[..., None]
Connect = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Change limits that are constants."""

    def change(**limits: int) -> None:
        for name, value in limits.items():
            monkeypatch.setattr(Limits, name, value)

    return change


@pytest.fixture
def client_of(parts: Parts) -> Connect:
    """From settings to a client of an API with them."""
    return lambda **settings: connect(make_app(parts, **settings))


@pytest.fixture
async def client(client_of: Connect) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of() as client:
        yield client

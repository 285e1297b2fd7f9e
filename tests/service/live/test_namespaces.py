"""What one namespace does leaves the others alone."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256

import httpx
import pytest

from tests.service.live.conftest import Launch, Live
from tests.waiting import PATIENCE, eventually
from turnwise.models.arrays import Float32
from turnwise.service.settings import Limits

KEYS = [
    {"name": name, "sha256": sha256(name.encode()).hexdigest(), "scopes": ["select", "pools"]}
    for name in ("flood", "calm")
]
LONG = "A long utterance, by whose length a batch of the encoder shows that it is in it."


@dataclass(frozen=True, slots=True)
class Tenants:
    """A service, and a client of each of its namespaces."""

    live: Live
    flood: httpx.Client
    calm: httpx.Client


ServeTenants = Callable[..., Tenants]


@pytest.fixture
def serve_tenants(launch: Launch) -> Iterator[ServeTenants]:
    with ExitStack() as stack:

        def serve(**limits: int) -> Tenants:
            live = launch(api_keys=KEYS, **limits)
            flood, calm = (
                stack.enter_context(
                    httpx.Client(
                        base_url=live.http.base_url,
                        headers={"Authorization": f"Bearer {key['name']}"},
                        timeout=PATIENCE,
                    )
                )
                for key in KEYS
            )
            return Tenants(live, flood, calm)

        yield serve


def turn(client: httpx.Client, text: str, session: str = "s") -> httpx.Response:
    body = {"speaker": "user", "text": text, "respond": False}
    return client.post(f"/sessions/{session}/turn", json=body)


def kind(response: httpx.Response) -> str:
    """The problem of an answer, or its status."""
    if response.is_success:
        return str(response.status_code)
    return str(response.json()["type"].rpartition(":")[2])


class Device:
    """Holds the batches of an encoder up, and notes the length of each batch's longest text."""

    def __init__(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.entered = threading.Event(), threading.Event()
        self.longest: list[int] = []
        forward = live.encoder.forward

        def held(tokens: list[list[int]]) -> Float32:
            self.entered.set()
            assert self.open.wait(PATIENCE)
            self.longest.append(max(map(len, tokens)))
            return forward(tokens)

        monkeypatch.setattr(live.encoder, "forward", held)


def test_a_flood_of_texts_adds_one_batch_to_the_turn_of_another_namespace(
    serve_tenants: ServeTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "queue_limit", 100)
    tenants = serve_tenants()
    device = Device(tenants.live, monkeypatch)

    def rank(number: int) -> httpx.Response:
        texts = [f"Reply {number}.{n}" for n in range(20)]
        context = [{"speaker": "user", "text": "Hello"}]
        return tenants.flood.post("/rank", json={"context": context, "candidates": texts})

    with ThreadPoolExecutor(12) as threads:
        flood = [threads.submit(rank, number) for number in range(10)]
        assert device.entered.wait(PATIENCE)
        rejected = 'turnwise_rejected_requests_total{reason="queue_full"} 0.0'
        eventually(lambda: rejected not in tenants.live.http.get("/metrics").text)
        before = tenants.live.metric("turnwise_queue_texts", lane="critical")
        calm = threads.submit(turn, tenants.calm, LONG)
        waiting = lambda: tenants.live.metric("turnwise_queue_texts", lane="critical")  # noqa: E731
        eventually(lambda: waiting() > before)
        device.open.set()
        assert kind(calm.result()) == "200"
        assert {kind(answer.result()) for answer in flood} == {"200", "overloaded"}
    place = next(n for n, longest in enumerate(device.longest) if longest > len(LONG) / 2)
    assert place <= 2  # after the batch that was running and one more


def test_a_namespace_beyond_its_request_rate_leaves_the_turns_of_another(
    serve_tenants: ServeTenants,
) -> None:
    tenants = serve_tenants(max_request_rate=10)
    kinds = [kind(turn(tenants.flood, f"Text {n}")) for n in range(40)]
    assert set(kinds) == {"200", "request-rate-exceeded"}
    assert kind(turn(tenants.calm, "Hello")) == "200"


def test_nobody_learns_from_the_cache_what_another_namespace_said(
    serve_tenants: ServeTenants,
) -> None:
    tenants = serve_tenants()
    hits = tenants.live.increase("turnwise_vector_cache_hits_total")
    for client in (tenants.flood, tenants.calm):
        context = {"context": [{"speaker": "user", "text": "Secret"}], "candidates": ["a"]}
        assert client.post("/rank", json=context).is_success
    assert hits() == 0


def test_live_sessions_of_a_namespace_are_limited(serve_tenants: ServeTenants) -> None:
    tenants = serve_tenants(max_sessions=2)
    for client in (tenants.flood, tenants.calm):
        assert [kind(turn(client, "Hello", session=name)) for name in "ab"] == ["200", "200"]
        rejected = turn(client, "Hello", session="c")
        assert (rejected.status_code, kind(rejected)) == (409, "namespace-full")
        assert client.get("/sessions/c").status_code == 404
        assert kind(turn(client, "Go on.", session="a")) == "200"
        assert client.delete("/sessions/b").is_success
        assert kind(client.put("/sessions/c", json={})) == "200"
        assert kind(client.put("/sessions/d", json={})) == "namespace-full"


def test_a_session_that_expired_does_not_count(serve_tenants: ServeTenants) -> None:
    tenants = serve_tenants(max_sessions=1, session_ttl=1)
    assert kind(turn(tenants.calm, "Hello", session="a")) == "200"
    eventually(lambda: kind(turn(tenants.calm, "Hello", session="b")) == "200")


def test_pools_of_a_namespace_are_limited_in_number_and_bytes(serve_tenants: ServeTenants) -> None:
    tenants = serve_tenants(max_pools=1, max_pools_bytes=900)
    for client in (tenants.flood, tenants.calm):
        assert kind(client.put("/pools/p", json={})) == "200"
        assert kind(client.put("/pools/q", json={})) == "namespace-full"
        some = [{"text": f"Reply {n}"} for n in range(10)]
        assert kind(client.put("/pools/p/candidates", json=some)) == "200"
        more = client.put("/pools/p/candidates", json=[{"text": "One more"}])
        assert (more.status_code, kind(more)) == (409, "namespace-full")
        assert client.get("/pools/p").json()["size"] == 10

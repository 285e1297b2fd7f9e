"""What one namespace does leaves the others alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import httpx
import pytest
import redis as blocking

from tests.support.clock import move_clock
from tests.support.messages import problem
from tests.support.service import Launch, Live, api_key
from tests.support.waiting import PATIENCE, eventually

KEYS = [api_key("flood"), api_key("calm")]


@dataclass(frozen=True, slots=True)
class Tenants:
    """A service, and a client of each of its namespaces."""

    live: Live
    flood: httpx.Client
    calm: httpx.Client


ServeTenants = Callable[..., Tenants]


@contextmanager
def serving(launch: Launch) -> Iterator[ServeTenants]:
    with ExitStack() as stack:

        def serve(**limits: int) -> Tenants:
            live = launch(api_keys=KEYS, **limits)
            flood, calm = (
                stack.enter_context(
                    httpx.Client(
                        base_url=live.url,
                        headers={"Authorization": f"Bearer {key['name']}"},
                        timeout=PATIENCE,
                    )
                )
                for key in KEYS
            )
            return Tenants(live, flood, calm)

        yield serve


@pytest.fixture
def serve_tenants(launch: Launch) -> Iterator[ServeTenants]:
    with serving(launch) as serve:
        yield serve


@pytest.fixture(scope="module")
def tenants(share: Launch) -> Iterator[Tenants]:
    """A service in which a namespace may have two sessions and two aliases."""
    with serving(share) as serve:
        yield serve(max_sessions=2, max_aliases=2)


def turn(client: httpx.Client, text: str, session: str = "s") -> httpx.Response:
    body = {"speaker": "user", "text": text, "respond": False}
    return client.post(f"/sessions/{session}/turn", json=body)


def kind(response: httpx.Response) -> str:
    """The problem of an answer, or its status."""
    return str(response.status_code) if response.is_success else problem(response)[1]


def test_nobody_learns_from_the_cache_what_another_namespace_said(tenants: Tenants) -> None:
    hits = tenants.live.increase("turnwise_vector_cache_hits_total")
    for client in (tenants.flood, tenants.calm):
        context = {"context": [{"speaker": "user", "text": "Secret"}], "candidates": ["a"]}
        assert client.post("/rank", json=context).is_success
    assert hits() == 0


def test_live_sessions_of_a_namespace_are_limited(tenants: Tenants) -> None:
    for client in (tenants.flood, tenants.calm):
        assert [kind(turn(client, "Hello", session=name)) for name in "ab"] == ["200", "200"]
        rejected = turn(client, "Hello", session="c")
        assert problem(rejected) == (409, "namespace-full")
        assert client.get("/sessions/c").status_code == 404
        assert kind(turn(client, "Go on.", session="a")) == "200"
        assert client.delete("/sessions/b").is_success
        assert kind(client.put("/sessions/c", json={})) == "200"
        assert kind(client.put("/sessions/d", json={})) == "namespace-full"


def test_a_session_that_a_full_redis_does_not_keep_does_not_count(
    serve_tenants: ServeTenants,
) -> None:
    tenants = serve_tenants(max_sessions=1)
    with blocking.Redis.from_url(tenants.live.redis_url) as redis:
        redis.config_set("maxmemory", 1)
        for session in "ab":
            kinds = {kind(turn(tenants.calm, "Hello", session=session)) for _ in range(2)}
            assert kinds == {"state-unavailable"}
        redis.config_set("maxmemory", 0)
    eventually(lambda: kind(turn(tenants.calm, "Hello", session="c")) == "200")


def test_a_session_that_expired_does_not_count(serve_tenants: ServeTenants) -> None:
    tenants = serve_tenants(max_sessions=1, session_ttl=1)
    assert kind(turn(tenants.calm, "Hello", session="a")) == "200"
    eventually(lambda: kind(turn(tenants.calm, "Hello", session="b")) == "200")


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_a_replica_with_another_clock_counts_the_same_sessions(
    serve_tenants: ServeTenants, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    tenants = serve_tenants(max_sessions=2, session_ttl=60)
    assert kind(turn(tenants.calm, "Hello", session="a")) == "200"
    with monkeypatch.context() as patch:
        move_clock(patch, ahead)
        kinds = [kind(turn(tenants.calm, "Hello", session=name)) for name in "bc"]
        assert kinds == ["200", "namespace-full"]
    assert kind(turn(tenants.calm, "Hello", session="d")) == "namespace-full"


def test_aliases_of_a_namespace_are_limited(tenants: Tenants) -> None:
    for client in (tenants.flood, tenants.calm):
        for pool in "pq":
            assert kind(client.put(f"/pools/{pool}", json={})) == "200"
        point = partial(point_alias, client)
        assert [kind(point(name, "p")) for name in "ab"] == ["200", "200"]
        rejected = point("c", "p")
        assert problem(rejected) == (409, "namespace-full")
        assert rejected.json()["detail"].endswith("has 2 aliases, and may have 2")
        assert point("a", "q").json()["aliases"] == ["a"]
        assert client.get("/pools/p").json()["aliases"] == ["b"]
        assert client.delete("/pools/a/alias").is_success
        assert kind(point("c", "p")) == "200"


def point_alias(client: httpx.Client, alias: str, pool: str) -> httpx.Response:
    return client.put(f"/pools/{alias}/alias", json={"to": pool})

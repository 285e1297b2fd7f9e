"""Sentinels put a replica of Redis in its place: turns are refused meanwhile, and none is lost."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from redis.asyncio.connection import SSLConnection

from tests.support.messages import REPLIES
from tests.support.oracle import Oracle
from tests.support.redis_keys import session_key
from tests.support.redis_server import RedisServer, free_port
from tests.support.service import Launch, Live
from tests.support.talk import Talk
from tests.support.waiting import eventually
from turnwise.service.redis.connection import connect

NAME = "turnwise"
NOBODY = "127.0.0.1:1"
"""A Sentinel that does not answer."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A primary, its replica, and the Sentinel that watches them."""

    primary: RedisServer
    replica: RedisServer
    sentinel: RedisServer
    url: str

    def replicated(self) -> None:
        """Wait until the replica has all that the primary has."""
        sent = _info(self.primary)["master_repl_offset"]
        eventually(lambda: _info(self.replica)["slave_repl_offset"] >= sent)

    def promoted(self) -> None:
        eventually(lambda: self.replica.command("ROLE")[0] == b"master")


@pytest.fixture
def watched() -> Iterator[Watched]:
    with ExitStack() as stack:

        def server(*options: str) -> tuple[RedisServer, str]:
            port = str(free_port())
            started = RedisServer("--port", port, "--bind", "127.0.0.1", *options)
            stack.callback(started.remove)
            return started, port

        primary, port = server("--repl-diskless-sync-delay", "0")
        replica, _ = server("--replicaof", "127.0.0.1", port)
        sentinel, sentinel_port = server("--sentinel")
        sentinel.command("SENTINEL", "MONITOR", NAME, "127.0.0.1", port, "1")
        for option, value in (("down-after-milliseconds", "1000"), ("failover-timeout", "1000")):
            sentinel.command("SENTINEL", "SET", NAME, option, value)
        eventually(lambda: sentinel.command("SENTINEL", "REPLICAS", NAME) != [])
        eventually(lambda: _info(replica)["master_link_status"] == "up")
        url = f"redis+sentinel://{NOBODY},127.0.0.1:{sentinel_port}/{NAME}"
        yield Watched(primary, replica, sentinel, url)


def _info(server: RedisServer) -> dict[str, Any]:
    found: dict[str, Any] = server.command("INFO", "replication")
    return found


def test_a_primary_that_dies_is_replaced(launch: Launch, watched: Watched, oracle: Oracle) -> None:
    one, two = (launch(redis_url=watched.url, redis_timeout=1.0) for _ in range(2))
    one.fill()
    eventually(lambda: two.http.get("/pools/default").json().get("size") == len(REPLIES))
    talk = Talk("s", oracle)
    for live in (one, two, one):
        talk.turn(live)
    watched.replicated()
    watched.primary.kill()
    assert talk.post(one, Talk.text(4)).status_code == 503
    eventually(lambda: not one.ready)
    assert one.http.get("/livez").is_success
    talk.turn(one, two)  # the one that was refused, once
    watched.promoted()
    eventually(lambda: one.ready and two.ready)
    talk.check(one, two)
    assert Live.ok(talk.post(two, Talk.text(3)))["replayed"]
    watched.primary.start()  # it takes itself for a primary, until the Sentinel comes by
    for live in (one, two):
        talk.turn(live)
    assert watched.primary.command("DBSIZE") == 0
    talk.check(one, two)


def test_a_primary_that_stood_still_gets_nothing_more(
    launch: Launch, watched: Watched, oracle: Oracle
) -> None:
    live = launch(redis_url=watched.url, redis_timeout=1.0)
    live.fill()
    talk = Talk("s", oracle)
    talk.turn(live)
    watched.replicated()
    watched.primary.signal(signal.SIGSTOP)
    try:
        talk.turn(live)
        assert talk.refused
    finally:
        watched.primary.signal(signal.SIGCONT)
    for _ in range(3):
        talk.turn(live)
    eventually(lambda: live.ready)
    talk.check(live)
    assert watched.replica.command("LLEN", session_key("default", "s", "posts")) == len(talk.said)


@pytest.mark.anyio
async def test_what_a_url_of_sentinels_says() -> None:
    url = "redis+sentinel://u:p%40@one,[::1]:7/shop?db=3&sentinel_password=q"
    async with connect(url, cluster=False, timeout=1.0) as client:
        pool = client.connection_pool
        assert pool.service_name == "shop"
        given = [pool.connection_kwargs[name] for name in ("username", "password", "db")]
        assert given == ["u", "p@", 3]
        asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
        assert [(each["host"], each["port"]) for each in asked] == [("one", 26379), ("::1", 7)]
        assert {(each["username"], each["password"]) for each in asked} == {(None, "q")}
    async with connect("rediss+sentinel://one/shop", cluster=False, timeout=1.0) as client:
        pool = client.connection_pool
        assert issubclass(pool.connection_class, SSLConnection)
        (one,) = pool.sentinel_manager.sentinels
        assert issubclass(one.connection_pool.connection_class, SSLConnection)

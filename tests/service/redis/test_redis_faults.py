"""A Redis that dies, forgets, is frozen, full, demoted, cut off or evicts: what is kept of it."""

import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis as blocking

from tests.service.conftest import Examined
from tests.support.messages import REPLIES, posts, problem, write_lines
from tests.support.oracle import Oracle
from tests.support.redis_keys import pool_key
from tests.support.redis_server import RedisServer, free_port
from tests.support.service import Launch, Live
from tests.support.talk import Talk
from tests.support.waiting import eventually
from tests.support.wire import wired

UNLIMITED = -1


def refused(live: Live, key: str) -> None:
    answer = live.try_turn("Is anybody there?", key)
    assert problem(answer) == (503, "state-unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    unavailable = {"operation": "session_read", "result": "unavailable"}
    committing = {"operation": "session_write", "result": "unavailable"}
    counted = [
        live.metric("turnwise_redis_operations_total", **e) for e in (unavailable, committing)
    ]
    assert sum(counted) >= 1


def test_a_frozen_redis_is_away_until_it_thaws(launch: Launch, redis_server: RedisServer) -> None:
    live = launch(redis_url=redis_server.url, redis_timeout=1.0)
    live.fill()
    live.try_turn("Hello", "first")
    redis_server.signal(signal.SIGSTOP)
    try:
        refused(live, "frozen")
        eventually(lambda: not live.ready)
    finally:
        redis_server.signal(signal.SIGCONT)
    eventually(lambda: live.ready)
    settled = Live.ok(live.try_turn("Is anybody there?", "frozen"))
    assert settled["turn"] == 2
    assert live.get("/sessions/s")["turns"] == 2


@pytest.mark.parametrize(
    ("fault", "repair"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("ACL SETUSER default -@write", "ACL SETUSER default +@write"),
    ],
    ids=["full", "demoted", "no replicas", "no rights"],
)
def test_a_redis_that_cannot_write_takes_no_turn_and_loses_none(
    launch: Launch, redis_server: RedisServer, fault: str, repair: str
) -> None:
    live = launch(redis_url=redis_server.url)
    live.fill()
    live.try_turn("Hello", "first")
    redis_server.command(*fault.split())
    refused(live, "refused")
    probes = live.increase(
        "turnwise_redis_operations_total", operation="probe", result="unavailable"
    )
    eventually(lambda: not live.ready and probes() > 0)  # also while no turn comes
    assert live.get("/sessions/s")["turns"] == 1
    redis_server.command(*repair.split())
    eventually(lambda: live.ready)
    assert Live.ok(live.try_turn("Is anybody there?", "refused"))["turn"] == 2


def test_a_primary_that_moves_behind_its_address_is_found_again(
    launch: Launch, redis_server: RedisServer, tmp_path: Path
) -> None:
    address = tmp_path / "redis"
    new = RedisServer()
    address.symlink_to(redis_server.socket)
    try:
        live = launch(redis_url=f"unix://{address}")
        live.fill()
        live.try_turn("Hello", "first")
        address.unlink()
        address.symlink_to(new.socket)
        redis_server.command("REPLICAOF", "127.0.0.1", "1")
        eventually(lambda: live.ready)
        live.fill()
        assert Live.ok(live.try_turn("Hello", "first"))["turn"] == 1
    finally:
        new.remove()


def test_a_redis_whose_disk_is_full_takes_no_turn_that_it_could_not_keep(
    launch: Launch, lasting_redis: RedisServer
) -> None:
    live = launch(redis_url=lasting_redis.url)
    live.fill()
    live.try_turn("Hello", "first")
    lasting_redis.limit_files(1)
    numbers = count()

    def full() -> bool:  # a write that fails is found out with the next one
        return live.http.put(f"/sessions/new-{next(numbers)}", json={}).status_code == 503

    eventually(full)
    refused(live, "full")
    eventually(lambda: not live.ready)
    lasting_redis.limit_files(UNLIMITED)
    eventually(lambda: live.try_turn("Is anybody there?", "full").is_success)
    told = [one["text"] for one in live.get("/sessions/s")["transcript"]]
    assert told == ["Hello", "Is anybody there?"]
    # While a busy disk syncs, Redis holds back what it writes, for up to two seconds.
    eventually(lambda: lasting_redis.command("INFO", "persistence")["aof_buffer_length"] == 0)
    lasting_redis.kill()
    lasting_redis.start()
    eventually(lambda: live.ready)
    assert live.get("/sessions/s")["turns"] == 2


# With `everysec`, it may lose the last second where the disk is slow.
@pytest.mark.parametrize("lasting_redis", ["always"], indirect=True)
def test_a_redis_that_dies_and_has_its_file_goes_on(
    launch: Launch, oracle: Oracle, lasting_redis: RedisServer
) -> None:
    live = launch(redis_url=lasting_redis.url)
    live.fill()
    talk = Talk("s", oracle)
    talk.turn(live)
    talk.turn(live)
    lasting_redis.kill()
    assert talk.post(live, Talk.text(3)).status_code == 503
    eventually(lambda: not live.ready)
    lasting_redis.start()
    eventually(lambda: live.ready)
    talk.turn(live)
    assert Live.ok(talk.post(live, Talk.text(2)))["replayed"]
    talk.check(live)
    assert live.metric("turnwise_redis_losses_total", what="database") == 0


def test_a_redis_that_dies_and_has_no_file_begins_anew_and_says_so(
    launch: Launch, redis_server: RedisServer, oracle: Oracle, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "replies.jsonl", *({"text": text} for text in REPLIES))
    one, two = (launch(redis_url=redis_server.url, default_pool=file) for _ in range(2))
    one.fill(pool="other")
    talk = Talk("s", oracle)
    for live in (one, two):
        talk.turn(live)
    redis_server.kill()
    eventually(lambda: not one.ready)
    assert one.http.get("/livez").is_success
    assert problem(one.http.get("/sessions/s")) == (503, "state-unavailable")
    for candidates in ({"candidates": REPLIES}, {"pool": "default"}):
        assert one.post("/rank", context=posts([("user", "Hello")]), **candidates)["ranking"]
    redis_server.start()
    for live in (one, two):
        eventually(lambda: live.metric("turnwise_redis_losses_total", what="database") == 1)  # noqa: B023
        eventually(lambda: live.ready)  # noqa: B023 - the pool that has to be there is again
        assert live.get("/pools/default")["size"] == len(REPLIES)
        eventually(lambda: live.http.get("/pools/other").status_code == 404)  # noqa: B023
        assert live.http.get("/sessions/s").status_code == 404
    assert problem(one.try_turn("And now?", expected_turn=3)) == (409, "turn-conflict")
    talk.said.clear()
    talk.turn(two)  # with a key that was used before all was lost
    talk.turn(one)
    talk.check(one, two)


def test_a_lost_pool_is_missed_until_it_is_back_also_by_a_replica_that_starts_later(
    launch: Launch, redis_server: RedisServer, examined: Examined
) -> None:
    def missed(live: Live) -> float:
        return live.metric("turnwise_missing_pools")

    one = launch(redis_url=redis_server.url)
    one.fill()
    one.fill(pool="other")
    eventually(lambda: len(one.services.followed_pools.names.listed) == 2)
    redis_server.command("FLUSHALL")
    eventually(lambda: missed(one) == 2)
    two = launch(redis_url=redis_server.url)
    for live in (one, two):
        assert live.ready  # turns on other pools are answered, and uploads get through
        assert live.get("/readyz")["warnings"] == [
            "missing since Redis lost data: default/default, default/other"
        ]
    assert "Redis lost it" in two.try_turn().json()["detail"]
    found = examined(redis_url=redis_server.url)
    assert found["pool default/other"].grade == "fail"
    two.fill()
    assert one.http.delete("/pools/other").status_code == 204
    for live in (one, two):
        eventually(lambda: missed(live) == 0)  # noqa: B023
        assert live.get("/readyz")["warnings"] == []
    found = examined(redis_url=redis_server.url)
    assert (found["pool default/default"].grade, "pool default/other" in found) == ("ok", False)


@pytest.mark.parametrize("lost", ["meta", "posts", "second", "answers"])
def test_a_part_of_a_session_that_redis_dropped_never_makes_an_answer_wrong(
    live: Live, oracle: Oracle, lost: str
) -> None:
    session = f"tw:session:{{{live.namespace}/s}}"
    counted = live.increase("turnwise_redis_losses_total", what="session")

    def drop() -> None:
        with blocking.Redis.from_url(live.redis_url) as redis:
            assert redis.unlink(f"{session}:{lost}")

    def written() -> int:
        with blocking.Redis.from_url(live.redis_url) as redis:
            return redis.llen(f"{session}:first")

    talk = Talk("s", oracle)
    for turns in range(1, 4):
        talk.turn(live)
        eventually(lambda done=turns: written() == done)  # by the service, when it is idle
    drop()
    begun = lost in {"meta", "posts"}  # without them nobody knows what was said
    if begun:
        talk.said.clear()
    told = live.http.get("/sessions/s")
    assert told.status_code == (404 if lost == "meta" else 200)
    goals = [{"text": "Bye"}, {"text": "Thanks"}]
    for path, body in (
        ("/rank", {"candidates": REPLIES}),
        ("/plan", {"goals": goals, "method": "chain_curved"}),
    ):
        answer = live.http.post(path, json=body | {"session_id": "s"})
        assert answer.status_code in ({200, 404, 409} if begun else {200}), answer.text
    scores = live.http.get("/sessions/s/scores", params={"ids": "r1"})
    assert scores.status_code in ({200, 404} if begun else {200})
    talk.turn(live, text="And then?")
    talk.turn(live, text="And after that?")
    talk.check(live)
    assert counted() >= 1 if begun else counted() == 0
    if lost == "answers":  # what was answered is forgotten, so that it cannot be answered again
        return
    drop()
    assert live.http.delete("/sessions/s/turns/last").status_code in {200, 404, 409}


def test_a_service_whose_default_pool_is_damaged_starts_so_that_it_can_be_mended(
    launch: Launch, redis_url: str, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "replies.jsonl", {"text": "Good morning"})
    launch(default_pool=file)
    with blocking.Redis.from_url(redis_url) as redis:
        redis.unlink(*redis.keys(pool_key("default", "default", "chunk:*")))
    live = launch(default_pool=file)
    assert live.ready
    assert live.get("/pools/default")["state"] == "damaged"
    assert live.http.delete("/pools/default").is_success


def test_a_service_waits_for_a_cluster_that_is_away(launch: Launch) -> None:
    live = launch(redis_url=f"redis://127.0.0.1:{free_port()}", redis_cluster=True)
    assert live.http.get("/livez").is_success
    answer = live.http.get("/readyz")
    assert answer.status_code == 503
    assert ["redis"] in [error["loc"] for error in answer.json()["errors"]]
    refused(live, "away")


def test_a_part_of_a_pool_that_redis_dropped_is_missed_not_passed_over(
    launch: Launch, redis_url: str
) -> None:
    def search(live: Live, pool: str) -> int:
        return live.http.post(f"/pools/{pool}/search", json={"text": "Hello"}).status_code

    one = launch()
    losses = {"meta": 404, "log": 503, "chunk": 503}
    for lost in losses:
        one.fill(pool=lost)
        with blocking.Redis.from_url(redis_url) as redis:
            assert redis.unlink(*redis.keys(pool_key("default", lost, f"{lost}*")))
    two = launch()
    eventually(lambda: two.ready)
    assert {lost: search(two, lost) for lost in losses} == losses
    eventually(lambda: two.metric("turnwise_redis_losses_total", what="pool") >= 2)
    eventually(lambda: two.metric("turnwise_pools", state="damaged") == 2)
    for lost in ("log", "chunk"):
        assert search(one, lost) == 200  # it has them all
        assert one.http.delete(f"/pools/{lost}").is_success
    for lost in losses:
        eventually(lambda: one.http.get(f"/pools/{lost}").status_code == 404)  # noqa: B023
        one.fill(pool=lost)
        eventually(lambda: search(two, lost) == 200)  # noqa: B023
    eventually(lambda: two.metric("turnwise_pools", state="damaged") == 0)


def test_a_redis_that_evicts_is_told_of(
    launch: Launch, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    live = launch(redis_url=redis_server.url)
    live.fill()
    assert live.metric("turnwise_redis_may_evict") == 0
    assert live.metric("turnwise_redis_memory_ratio") == 0
    used = redis_server.command("INFO", "memory")["used_memory"]
    redis_server.command("CONFIG", "SET", "maxmemory", str(used + 60_000))
    eventually(lambda: 0.5 < live.metric("turnwise_redis_memory_ratio") < 1.5)
    assert live.metric("turnwise_redis_may_evict") == 0  # it refuses instead
    redis_server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    eventually(lambda: live.metric("turnwise_redis_may_evict") == 1)
    assert "Redis may evict sessions and pools: allkeys-lru" in caplog.text
    seen = set()
    for number in range(60):
        for text in ("Hello", "Are you there?"):
            body = {"speaker": "user", "text": text}
            seen.add(live.http.post(f"/sessions/s{number % 20}/turn", json=body).status_code)
    assert redis_server.command("INFO", "stats")["evicted_keys"] > 0
    assert seen <= {200, 404, 503}
    redis_server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    eventually(lambda: live.metric("turnwise_redis_may_evict") == 0)


def test_of_two_replicas_one_is_cut_off(
    launch: Launch, redis_server: RedisServer, oracle: Oracle
) -> None:
    with wired(redis_server) as wire:
        here = launch(redis_url=redis_server.url)
        here.fill()
        there = launch(redis_url=wire.url, redis_timeout=1.0)
        eventually(lambda: there.http.get("/pools/default").is_success)
        talk = Talk("s", oracle)
        for live in (here, there):
            talk.turn(live)
        wire.mark = b"Heard by Redis only"
        text = "Heard by Redis only"
        assert talk.post(there, text).status_code == 503
        talk.acknowledged(text, replayed := Live.ok(talk.post(here, text)))
        assert replayed["replayed"]
        wire.cut()
        eventually(lambda: not there.ready)
        assert here.ready
        assert talk.post(there, "Heard by nobody").status_code == 503
        talk.turn(here)
        wire.mend()
        eventually(lambda: there.ready)
        assert Live.ok(talk.post(there, text))["replayed"]
        for live in (there, here):
            talk.turn(live)
        talk.check(here, there)


def test_all_that_redis_holds_may_go_while_requests_come(
    launch: Launch, redis_server: RedisServer
) -> None:
    live = launch(redis_url=redis_server.url)
    context = posts([("user", "Hello")])
    calls: list[tuple[str, str, dict[str, Any] | None]] = [
        ("POST", "/sessions/s/turn", {"speaker": "user", "text": "Hello"}),
        ("GET", "/sessions/s", None),
        ("GET", "/sessions/s/scores?ids=r1", None),
        ("POST", "/rank", {"session_id": "s", "pool": "default"}),
        ("POST", "/rank", {"context": context, "pool": "default"}),
        ("POST", "/plan", {"session_id": "s", "goals": [{"text": "Bye"}, {"text": "Thanks"}]}),
        ("POST", "/pools/default/search", {"text": "Hello"}),
        ("PUT", "/pools/default/candidates", [{"text": "Another reply."}]),  # type: ignore[list-item]
        ("GET", "/pools", None),
        ("DELETE", "/sessions/s/turns/last", None),
    ]
    seen = set()
    live.fill()
    live.turn("s", "user", "Hello")
    redis_server.command("FLUSHALL")
    for method, path, body in calls * 2:
        seen.add(live.http.request(method, path, json=body).status_code)
    eventually(lambda: live.http.get("/pools/default").status_code == 404)
    for method, path, body in calls:
        seen.add(live.http.request(method, path, json=body).status_code)
    assert seen <= {200, 404, 409}
    assert live.metric("turnwise_redis_losses_total", what="database") >= 1

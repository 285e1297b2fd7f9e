from typing import Any, cast

import pytest
from redis.asyncio import Redis, RedisCluster

from tests.support.redis_server import RedisServer
from turnwise.service.cli.doctor.pools import examine_pools
from turnwise.service.cli.doctor.redis import examine_redis, examine_server, examine_writes
from turnwise.service.observe.metrics import Metrics
from turnwise.service.redis.connection import WriteCheck, connect

GOOD: dict[str, Any] = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory_policy": "noeviction",
    "maxmemory": 0,
    "used_memory": 1 << 20,
    "aof_enabled": 1,
}


def grades(**changed: object) -> dict[str, str]:
    return {
        f.subject.removeprefix("r").strip(): f.grade for f in examine_server("r", GOOD | changed)
    }


def test_a_good_one_is_good() -> None:
    assert set(grades().values()) == {"ok"}


@pytest.mark.parametrize(
    ("changed", "subject", "grade"),
    [
        ({"redis_version": "6.0.16"}, "", "fail"),
        ({"redis_version": "6.2.0"}, "", "ok"),
        ({"role": "slave"}, "role", "fail"),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": 1 << 30}, "eviction", "fail"),
        ({"maxmemory_policy": "allkeys-lru"}, "eviction", "warn"),
        ({"maxmemory_policy": "volatile-ttl", "maxmemory": 1 << 30}, "eviction", "warn"),
        ({"aof_enabled": 0}, "persistence", "warn"),
        ({"aof_last_write_status": "err"}, "persistence", "fail"),
        ({"rdb_last_bgsave_status": "err"}, "persistence", "fail"),
        ({"maxmemory": (1 << 20) + 1}, "memory", "warn"),
        ({"maxmemory": 1 << 30}, "memory", "ok"),
        ({"connected_slaves": 2}, "failover", "warn"),
        ({"connected_slaves": 2, "min_slaves_good_slaves": 2}, "failover", "ok"),
    ],
)
def test_one_bad_value_is_one_bad_finding(
    changed: dict[str, object], subject: str, grade: str
) -> None:
    found = grades(**changed)
    assert found.pop(subject) == grade
    assert set(found.values()) == {"ok"}


def test_every_bad_finding_has_advice() -> None:
    bad = GOOD | {"redis_version": "5.0", "role": "slave", "maxmemory_policy": "x"}
    bad |= {"aof_enabled": 0, "maxmemory": 1, "connected_slaves": 1}
    findings = list(examine_server("r", bad))
    assert [finding.subject for finding in findings if not finding.advice] == []


@pytest.mark.anyio
async def test_a_real_one_is_read(redis: Redis) -> None:
    found = {finding.subject: finding for finding in await examine_redis(redis)}
    assert found["redis"].found.startswith("Valkey ")
    assert found["redis persistence"].grade == "warn"


@pytest.mark.anyio
async def test_a_user_that_may_not_ask_serves_all_the_same(redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "app", "on", ">pw", "~tw:*", "+@all", "-@dangerous")
    url = redis_server.url.replace("://", "://app:pw@")
    async with connect(url, cluster=False, timeout=5.0) as redis:
        assert await WriteCheck([redis], Metrics())()
        (finding,) = await examine_redis(redis)
        assert (finding.grade, "INFO" in finding.found) == ("warn", True)
        (finding,) = await examine_pools(redis, "of the model", pairwise=False, engine=None)
        assert finding.found == "none"


@pytest.mark.anyio
async def test_a_user_that_does_not_reach_the_pools_is_a_failure(redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "app", "on", ">pw", "~app:*", "+@all")
    url = redis_server.url.replace("://", "://app:pw@")
    async with connect(url, cluster=False, timeout=5.0) as redis:
        (finding,) = await examine_pools(redis, "of the model", pairwise=False, engine=None)
    assert (finding.subject, finding.grade) == ("pools", "fail")
    assert "tw:*" in finding.advice


@pytest.mark.anyio
async def test_a_server_that_answers_with_an_error_is_not_one_to_start(
    redis_server: RedisServer,
) -> None:
    redis_server.command("ACL", "SETUSER", "default", "-ping")
    try:
        async with connect(redis_server.url, cluster=False, timeout=5.0) as redis:
            (finding,) = await examine_redis(redis)
    finally:
        redis_server.command("ACL", "SETUSER", "default", "+ping")
    assert finding.grade == "fail"
    assert "docs/runbook.md" in finding.advice


@pytest.mark.anyio
async def test_writes_are_tried(redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "app", "on", ">pw", "~tw:*", "+@read", "+@scripting")
    reads = redis_server.url.replace("://", "://app:pw@")
    async with (
        connect(redis_server.url, cluster=False, timeout=5.0) as redis,
        connect(reads, cluster=False, timeout=5.0) as reader,
    ):
        assert (await examine_writes(redis)).grade == "ok"
        assert (await examine_writes(reader)).grade == "fail"
        redis_server.command("CONFIG", "SET", "maxmemory", "1")
        full = await examine_writes(redis)
    assert (full.grade, full.found.startswith("OOM ")) == ("fail", True)


class Primaries(RedisCluster):
    """Stands for a cluster of more than one primary, which a test cannot have."""

    def __init__(self) -> None:
        pass

    async def info(self, _: str | None, *, target_nodes: str) -> dict[str, dict[str, Any]]:
        assert target_nodes == "primaries"
        return {"10.0.0.1:6379": GOOD, "10.0.0.2:6379": GOOD | {"aof_enabled": 0}}


@pytest.mark.anyio
async def test_each_primary_of_a_cluster_is_read() -> None:
    found = await examine_redis(cast(Redis, Primaries()))
    bad = [finding.subject for finding in found if finding.grade != "ok"]
    assert bad == ["redis 10.0.0.2:6379 persistence"]


@pytest.mark.anyio
async def test_a_cluster_of_one_is_read_as_a_server(cluster_url: str) -> None:
    async with connect(cluster_url, cluster=True, timeout=5.0) as redis:
        found = await examine_redis(redis)
    assert found[0].subject == "redis"


@pytest.mark.anyio
@pytest.mark.parametrize("cluster", [False, True])
async def test_an_unreachable_server_is_a_failure(*, cluster: bool) -> None:
    redis = connect("redis://127.0.0.1:1", cluster=cluster, timeout=1.0)
    (finding,) = await examine_redis(redis)
    await redis.aclose()
    assert finding.grade == "fail"
    assert "correct TURNWISE_REDIS_URL" in finding.advice
    assert "unset" not in finding.advice  # a private Redis would begin without any data

"""Pools and aliases that Redis lost: who knows of them, and until when."""

from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.unit.pools.conftest import Replica, StartReplica
from turnwise.service.errors import PoolNotFound
from turnwise.service.pools import PoolKey, following
from turnwise.service.redis.connection import connect
from turnwise.service.wire.pools import PoolRequest

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_other_polls(
    start: StartReplica,  # noqa: ARG001 - sets a shorter time
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let replicas poll only when a test does: two polls at once could note earlier names last."""
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)


def missing(replica: Replica) -> list[str]:
    return sorted(map(str, replica.followed.missing.names))


async def misses(replica: Replica, *names: str) -> bool:
    """Poll, and return whether these names alone are missing."""
    await replica.follower.poll()
    return missing(replica) == [*names]


async def test_lost_names_are_missing_until_they_are_back_or_deleted(
    start: StartReplica, redis: Redis
) -> None:
    one = await start()
    for name in ("p", "q", "r"):
        await one.fill(name, "One.")
    for alias in ("shop", "bar"):
        await one.pools.point("n", alias, "q")
    await one.follower.poll()
    await redis.flushall()
    names = ("n/bar", "n/p", "n/q", "n/r", "n/shop")
    assert await misses(one, *names)
    later = await start()
    assert missing(later) == [*names]
    assert later.metric("turnwise_missing_pools") == 5
    with pytest.raises(PoolNotFound, match="Redis lost it"):
        await later.pools.view("n", "q")
    await later.fill("p", "Two.")
    await later.pools.drop("n", "q")
    await later.pools.drop("n", "shop")
    await later.pools.unpoint("n", "bar")
    assert await misses(one, "n/r")
    assert await misses(later, "n/r")
    with pytest.raises(PoolNotFound, match=r"there is no pool 'q' in namespace 'n'$"):
        await one.pools.drop("n", "q")
    await one.fill("r", "Two.")
    assert await misses(one)
    assert await misses(later)


async def test_names_are_noted_that_redis_loses_while_they_are_read(
    start: StartReplica, redis: Redis
) -> None:
    one = await start()
    await one.fill("q", "One.")
    await one.follower.poll()
    changes = await one.followed.directory.changes()
    await redis.flushall()
    await one.followed.missing.update(changes, frozenset())
    await one.follower.poll()
    assert missing(one) == ["n/q"]


async def test_a_pool_that_was_deleted_is_not_missing(start: StartReplica) -> None:
    one = await start()
    two = await start()
    await one.fill("q", "One.")
    await two.follower.poll()
    assert PoolKey("n", "q") in two.followed.names.listed
    await one.pools.drop("n", "q")
    assert await misses(two)
    assert PoolKey("n", "q") not in two.followed.names.listed
    assert await misses(one)


async def test_a_replica_that_starts_alone_knows_the_names_by_its_file(
    start: StartReplica, redis: Redis
) -> None:
    one = await start(data="kept")
    await one.fill("q", "One.")
    await one.follower.poll()
    await one.close()
    await redis.flushall()
    assert missing(await start(data="kept")) == ["n/q"]
    assert missing(await start(data="other")) == ["n/q"]  # which Redis has by now


async def test_a_file_of_names_that_cannot_be_read_is_written_again(
    start: StartReplica, tmp_path: Path
) -> None:
    file = tmp_path / "kept" / "names.json"
    file.parent.mkdir()
    file.write_text("broken")
    one = await start(data="kept")
    await one.fill("q", "One.")
    await one.follower.poll()
    assert "q" in file.read_text()


async def test_a_redis_that_went_back_to_an_earlier_state_has_lost_its_newest_pools(
    start: StartReplica, redis: Redis
) -> None:
    one = await start()
    await one.pools.create("n", "q", PoolRequest())
    earlier = await redis.get("tw:changes:{tw:born}")
    await one.pools.create("n", "r", PoolRequest())
    await one.follower.poll()
    await redis.hdel("tw:pools", "n/r")
    await redis.set("tw:changes:{tw:born}", earlier)
    assert await misses(one, "n/r")


async def test_a_cluster_keeps_the_missing_names_as_well(
    start: StartReplica, cluster_url: str
) -> None:
    one = await start(cluster_url, cluster=True)
    await one.fill("q", "One.")
    await one.pools.point("n", "shop", "q")
    key = PoolKey("n", "q")
    listed = await one.followed.directory.names_and_aliases()
    assert listed == ({key}, {PoolKey("n", "shop"): key})
    await one.follower.poll()
    async with connect(cluster_url, cluster=True, timeout=5.0) as redis:
        await redis.flushall()
    assert await misses(one, "n/q", "n/shop")
    await one.pools.unpoint("n", "shop")
    await one.pools.drop("n", "q")
    assert await misses(one)

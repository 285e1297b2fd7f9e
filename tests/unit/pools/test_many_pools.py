"""Many pools: what a replica asks Redis for, which pools it reads, and which it gives up."""

import asyncio
from time import time

import pytest
from redis.asyncio import Redis

from tests.support.redis_keys import pool_key
from tests.support.waiting import until
from tests.unit.pools.conftest import StartReplica, patch_records, some
from turnwise.service.errors import NamespaceFull
from turnwise.service.pools import PoolKey, following
from turnwise.service.pools.redis import records
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.wire.pools import PoolRequest

pytestmark = pytest.mark.anyio


async def test_a_poll_without_changes_sends_one_command_however_many_pools_there_are(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def commands() -> int:
        stats = await redis.info("commandstats")
        names = {"cmdstat_info", "cmdstat_client"}  # of this test's own client
        return sum(stat["calls"] for name, stat in stats.items() if name not in names)

    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    replica = await start()
    await replica.create()
    await redis.hset("tw:pools", mapping={f"n/p{number}": "x" for number in range(1000)})
    await replica.follower.poll()
    before = await commands()
    for _ in range(10):
        await replica.follower.poll()
    assert await commands() - before == 10


async def test_only_pools_that_are_asked_for_are_read(start: StartReplica) -> None:
    one = await start()
    for name in ("p", "q"):
        await one.pools.create("n", name, PoolRequest(description=f"pool {name}"))
        await one.pools.upsert("n", name, some("One.", "Two."))
        await one.pools.upsert("n", name, some("Three."))
        await one.pools.remove_many("n", name, [some("One.")[0].id])
    two = await start(ready=True)  # which has read p, its first pool
    before, after = await two.pools.list("n")
    assert (before.state, after.state) == ("ready", "unread")
    assert (after.version, after.size, after.description) == (3, 2, "pool q")
    assert after.created_at == one.info("q").created_at
    assert two.metric("turnwise_pool_candidates", namespace="n", pool="q") is None
    assert (await two.pools.info("n", "q")).state == "ready"
    await one.pools.upsert("n", "q", some("Four."))
    await until(lambda: two.version("q") == 4)


async def test_a_new_replica_first_reads_the_pools_that_requests_have_lately_named(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = "tw:in-use:{tw:born}"
    old = following.IDLE_SECONDS + 60
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one = await start()
    for name in ("p", "q", "r", "s"):
        await one.fill(name, "One.")
    await one.pools.drop("n", "s")
    await one.follower.poll()
    assert not await redis.exists(noted)  # changes alone cause no write
    monkeypatch.setattr(following, "NOTE_SECONDS", 0.0)
    await one.follower.poll()
    assert await redis.zrange(noted, 0, -1) == [b"n/p", b"n/q", b"n/r"]
    await redis.zadd(noted, {"n/r": time() - old, "n/s": time(), "n/t": time() - old})
    await one.pools.view("n", "q")
    await one.follower.poll()  # which forgets the old ones
    two = await start(ready=True)
    assert [info.state for info in await two.pools.list("n")] == ["ready", "ready", "unread"]
    scores = await redis.zrange(noted, 0, -1, withscores=True)
    await two.follower.poll()
    await two.close()
    assert await redis.zrange(noted, 0, -1, withscores=True) == scores  # no request named any there
    await one.pools.point("n", "shop", "r")
    await one.pools.view("n", "shop")
    await one.close()
    assert await redis.zrange(noted, 0, -1) == [b"n/p", b"n/s", b"n/q", b"n/r"]


async def test_the_bytes_of_a_namespace_include_pools_that_a_replica_has_not_read(
    start: StartReplica,
) -> None:
    one = await start()
    await one.fill("q", "One.", "Two.")
    held = one.followed.in_memory[PoolKey("n", "q")].candidate_bytes
    two = await start(max_pools_bytes=held + 1)
    await two.create()
    with pytest.raises(NamespaceFull, match=f"more than the limit of {held + 1}"):
        await two.upsert("Six.")
    assert [info.state for info in await two.pools.list("n")] == ["ready", "unread"]
    await one.pools.remove("n", "q", some("Two.")[0].id)
    assert (await two.upsert("Six.")).version == 1


async def test_a_pool_of_an_earlier_release_shows_what_is_stored(
    start: StartReplica, redis: Redis
) -> None:
    one = await start()
    await one.fill("q", "One.")
    await redis.hdel(pool_key("n", "q", "meta"), "size")
    two = await start()
    assert [info.size for info in await two.pools.list("n")] == [1]


async def test_a_change_whose_count_is_lost_is_found_later(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(_: Directory) -> None:
        pass

    patch_records(monkeypatch, "count_change", lose, Directory)
    monkeypatch.setattr(following, "FULL_POLL_SECONDS", 0.0)
    one = await start()
    two = await start()
    await one.create()
    await two.find()
    await one.upsert("One.")
    await until(lambda: two.version() == 1)


async def test_a_pool_that_nobody_asks_for_is_given_up_and_read_again(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(following, "FULL_POLL_SECONDS", 0.0)
    replica = await start()
    for name in ("p", "q"):
        await replica.fill(name, "One.")
    await replica.pools.point("n", "shop", "q")
    await replica.pools.view("n", "shop")
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.0)
    await replica.follower.poll()
    assert {info.state for info in await replica.pools.list("n")} == {"unread"}
    assert replica.gauges() == [None, None]
    assert replica.follower.ready
    await replica.follower.poll()  # which does not read the pool of the alias
    assert not replica.knows()
    assert [*(await replica.pools.view("n", "shop")).contents.candidates()] == some("One.")


async def test_few_chunks_are_read_at_once(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "CHUNK", 1)
    one = await start()
    for name in ("q", "r"):
        await one.fill(name, *map(str, range(8)))
    monkeypatch.setattr(records, "READERS", 3)
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    two = await start()
    reading = most = 0
    command = PoolRecords.execute

    async def count(self: PoolRecords, *args: object) -> object:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            return await command(self, *args)  # type: ignore[arg-type]
        finally:
            reading -= 1

    patch_records(monkeypatch, "execute", count)
    await asyncio.gather(*(two.pools.load("n", name) for name in ("q", "r")))
    assert 3 <= most < 8  # of sixteen; logs and revisions may be read meanwhile

"""Names that refer to other pools."""

import asyncio
from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.pools.conftest import (
    DirectEncoder,
    Replica,
    StartReplica,
    patch_records,
    some,
)
from turnwise.service.errors import Conflict, PoolNotFound, PoolNotReady
from turnwise.service.pools import following
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.wire.pools import PoolRequest

pytestmark = pytest.mark.anyio


async def served(replica: Replica, name: str = "shop") -> list[str]:
    return [c.text for c in (await replica.pools.view("n", name)).contents.candidates()]


async def test_a_poll_that_began_before_an_alias_moved_does_not_move_it_back(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one = await start()
    await one.fill("a", "a")
    await one.fill("b", "b")
    await one.pools.point("n", "shop", "a")
    aliases = Directory.aliases

    async def late(directory: Directory) -> Any:
        found = await aliases(directory)
        await one.pools.point("n", "shop", "b")
        await one.pools.point("n", "new", "a")
        return found

    patch_records(monkeypatch, "aliases", late, Directory)
    await one.follower.poll()
    assert await served(one) == ["b"]
    assert await served(one, "new") == ["a"]


@pytest.mark.parametrize("has_read", [False, True])
async def test_edits_by_an_alias_go_to_the_pool_that_it_stands_for_now(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch, has_read: bool
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one = await start()
    two = await start()
    await one.fill("a", "a")
    await one.fill("b", "b")
    await one.pools.point("n", "shop", "a")
    assert await served(two) == ["a"]
    if has_read:
        await two.pools.view("n", "b")
    await one.pools.point("n", "shop", "b")
    await two.pools.upsert("n", "shop", some("more"))
    assert await served(two) == ["b", "more"]
    assert await served(two, "a") == ["a"]
    assert await served(two, "b") == ["b", "more"]
    await two.pools.create("n", "shop", PoolRequest(description="described"))
    assert two.info("b").description == "described"


async def test_a_replica_serves_the_former_pool_until_it_has_read_the_new_one(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    await one.fill("a", "a")
    await one.fill("b", "b")
    await one.pools.point("n", "shop", "a")
    two = await start(fingerprint="other")
    assert await served(two) == ["a"]
    read = asyncio.Event()
    monkeypatch.setattr(DirectEncoder, "opened", read.wait)
    await one.pools.point("n", "shop", "b")

    def reads() -> bool:
        try:
            return two.info("b").state == "encoding"
        except PoolNotFound:
            return False

    await until(reads)
    assert await served(two) == ["a"]
    read.set()
    await until(lambda: two.info("b").state == "ready")
    assert await served(two) == ["b"]


async def test_a_name_that_another_replica_makes_an_alias_just_now_becomes_no_pool(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    two = await start()
    await one.fill("a", "a")
    create = PoolRecords.create

    async def create_late(self: PoolRecords, *args: Any) -> object:
        await two.pools.point("n", "shop", "a")
        return await create(self, *args)

    patch_records(monkeypatch, "create", create_late)
    with pytest.raises(Conflict, match="'shop' is the name of an alias"):
        await one.pools.create("n", "shop", PoolRequest())
    assert await served(one) == await served(two) == ["a"]
    assert await one.names() == ["a"]
    await one.pools.unpoint("n", "shop")
    with pytest.raises(PoolNotFound):
        await one.pools.load("n", "shop")


async def test_an_alias_of_a_pool_that_is_dropped_just_now_is_not_made(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    two = await start()
    await one.fill("a", "a")
    point = Directory.point

    async def point_late(self: Directory, *args: Any, **given: Any) -> None:
        await two.pools.drop("n", "a")
        await point(self, *args, **given)

    patch_records(monkeypatch, "point", point_late, Directory)
    with pytest.raises(PoolNotFound):
        await one.pools.point("n", "shop", "a")
    with pytest.raises(PoolNotFound):
        await served(one)


async def test_a_pool_that_is_just_being_dropped_gets_no_alias(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    two = await start()
    await one.fill("a", "a")
    await served(two, "a")
    drop = PoolRecords.drop

    async def drop_late(self: PoolRecords, *args: Any) -> object:
        with pytest.raises(PoolNotFound):  # although the other replica still has it
            await two.pools.point("n", "shop", "a")
        return await drop(self, *args)

    patch_records(monkeypatch, "drop", drop_late)
    await one.pools.drop("n", "a")
    assert await one.names() == []


async def test_an_alias_is_of_one_namespace(start: StartReplica) -> None:
    replica = await start()
    await replica.fill("a", "a")
    await replica.pools.point("n", "shop", "a")
    with pytest.raises((PoolNotFound, PoolNotReady)):
        await replica.pools.view("m", "shop")

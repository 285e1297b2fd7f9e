"""Pools and aliases that Redis lost: who knows of them, and until when."""

from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.unit.pools.conftest import Replica, StartReplica
from turnwise.service.pools import following
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

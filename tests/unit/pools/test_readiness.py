"""The pools that a replica waits for, and the one that must exist."""

import asyncio
from typing import cast

import pytest

from turnwise.service.pools.pool import Pool
from turnwise.service.pools.readiness import AwaitedPools, RequiredPool
from turnwise.service.pools.redis.values import PoolKey

pytestmark = pytest.mark.anyio


class _Pool:
    """A pool that takes until `go_on` to be filled."""

    def __init__(self) -> None:
        self.fills = 0
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def fill(self) -> None:
        self.fills += 1
        self.begun.set()
        await self.go_on.wait()


class _Read:
    """A pool that is read, or is being read."""

    key = PoolKey("n", "p")
    is_refused = False

    def __init__(self, *, is_awaited: bool) -> None:
        self.is_awaited = is_awaited


async def test_a_pool_that_is_opened_again_at_another_place_is_still_awaited() -> None:
    awaited = AwaitedPools(refused_seconds=60.0)
    awaited.begin([_Read.key])
    for is_awaited in (True, True, False):
        awaited.update({_Read.key: cast(Pool, _Read(is_awaited=is_awaited))})
        assert awaited.are_ready is not is_awaited


async def test_a_pool_that_takes_long_to_fill_is_not_filled_twice_at_once() -> None:
    pool = _Pool()
    required = RequiredPool(retry_seconds=0.0)
    required.require(pool.fill)
    first = asyncio.create_task(required.fill())
    await pool.begun.wait()
    assert not required.is_due
    pool.go_on.set()
    await first
    assert required.is_there
    assert pool.fills == 1


async def test_a_pool_that_redis_loses_while_it_is_filled_is_filled_again() -> None:
    pool = _Pool()
    required = RequiredPool(retry_seconds=60.0)
    required.require(pool.fill)
    first = asyncio.create_task(required.fill())
    await pool.begun.wait()
    required.note_loss()
    pool.go_on.set()
    await first
    assert not required.is_there
    assert required.is_due
    await required.fill()
    assert required.is_there
    assert pool.fills == 2

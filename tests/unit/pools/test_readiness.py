"""The pool that must exist is filled once at a time, and again after a loss."""

import asyncio

import pytest

from turnwise.service.pools.readiness import RequiredPool

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

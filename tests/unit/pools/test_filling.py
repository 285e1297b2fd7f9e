"""The pool that must exist is filled once at a time, and again after a loss."""

import asyncio

import pytest

from turnwise.service.pools.filling import Filling

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
    filling = Filling(retry_seconds=0.0)
    filling.require(pool.fill)
    first = asyncio.create_task(filling.run())
    await pool.begun.wait()
    assert not filling.is_due
    pool.go_on.set()
    await first
    assert filling.is_done
    assert pool.fills == 1


async def test_a_pool_that_redis_loses_while_it_is_filled_is_filled_again() -> None:
    pool = _Pool()
    filling = Filling(retry_seconds=60.0)
    filling.require(pool.fill)
    first = asyncio.create_task(filling.run())
    await pool.begun.wait()
    filling.start_again()
    pool.go_on.set()
    await first
    assert not filling.is_done
    assert filling.is_due
    await filling.run()
    assert filling.is_done
    assert pool.fills == 2

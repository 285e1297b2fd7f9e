import asyncio

import pytest

from turnwise.service.errors import DeadlineExceeded
from turnwise.service.selection.deadline import deadline

pytestmark = pytest.mark.anyio


async def test_work_that_takes_too_long_is_cancelled() -> None:
    with pytest.raises(DeadlineExceeded, match=r"not done within 0\.01 s"):
        async with deadline(0.01):
            await asyncio.Event().wait()


async def test_a_timeout_of_the_work_is_not_taken_for_the_deadline() -> None:
    with pytest.raises(TimeoutError, match="the disk"):
        async with deadline(60.0):
            raise TimeoutError("the disk does not answer")

import asyncio
import threading

import pytest

from tests.support.waiting import PATIENCE
from turnwise.service.api.services import SharedPages

pytestmark = pytest.mark.anyio


async def test_requests_that_wait_for_a_page_share_the_next_one() -> None:
    pages = SharedPages()
    go_on = threading.Event()
    made: list[bytes] = []

    def make() -> bytes:
        assert go_on.wait(PATIENCE)
        made.append(b"page %d" % len(made))
        return made[-1]

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(pages.get("metrics", make))
        await asyncio.sleep(0.01)
        later = [tasks.create_task(pages.get("metrics", make)) for _ in range(5)]
        await asyncio.sleep(0.01)
        go_on.set()
    assert first.result() == b"page 0"
    assert {task.result() for task in later} == {b"page 1"}
    assert await pages.get("metrics", make) == b"page 2"


async def test_pages_of_two_names_are_not_confused() -> None:
    pages = SharedPages()
    assert await pages.get("plain", lambda: b"plain") == b"plain"
    assert await pages.get("open", lambda: b"open") == b"open"

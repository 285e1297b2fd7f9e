import asyncio
import threading

import pytest

from tests.support.waiting import PATIENCE
from turnwise.service.api.services import SharedScrapes

pytestmark = pytest.mark.anyio


async def test_requests_that_wait_for_a_scrape_share_the_next_one() -> None:
    scrapes = SharedScrapes()
    go_on = threading.Event()
    made: list[bytes] = []

    def write() -> bytes:
        assert go_on.wait(PATIENCE)
        made.append(b"scrape %d" % len(made))
        return made[-1]

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(scrapes.get("metrics", write))
        await asyncio.sleep(0.01)
        later = [tasks.create_task(scrapes.get("metrics", write)) for _ in range(5)]
        await asyncio.sleep(0.01)
        go_on.set()
    assert first.result() == b"scrape 0"
    assert {task.result() for task in later} == {b"scrape 1"}
    assert await scrapes.get("metrics", write) == b"scrape 2"


async def test_scrapes_of_two_types_are_not_confused() -> None:
    scrapes = SharedScrapes()
    assert await scrapes.get("plain", lambda: b"plain") == b"plain"
    assert await scrapes.get("open", lambda: b"open") == b"open"

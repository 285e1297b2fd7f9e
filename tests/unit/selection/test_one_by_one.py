import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tests.support.waiting import PATIENCE
from turnwise.service.errors import DeadlineExceeded, Overloaded
from turnwise.service.observe.logs import namespace
from turnwise.service.observe.metrics import Metrics
from turnwise.service.selection.one_by_one import OneByOne

pytestmark = pytest.mark.anyio


class Worker:
    """Work that waits for `go_on`, and notes for whom it was done."""

    def __init__(self, limit: int) -> None:
        self.metrics = Metrics()
        self.thread = OneByOne("worker", self.metrics, PATIENCE, limit=limit)
        self.go_on = threading.Event()
        self.done: list[str] = []

    async def work(self, caller: str) -> None:
        namespace.set(caller)
        with self.thread.admit():
            await self.thread.run(lambda: self._note(caller))

    def _note(self, caller: str) -> None:
        assert self.go_on.wait(PATIENCE)
        self.done.append(caller)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker(limit=4)
    yield worker
    worker.go_on.set()
    await worker.thread.close()


async def test_namespaces_take_turns(worker: Worker) -> None:
    callers = ["greedy", "greedy", "greedy", "modest", "third"]
    async with asyncio.TaskGroup() as tasks:
        for caller in callers:
            tasks.create_task(worker.work(caller))
            await asyncio.sleep(0)
        worker.go_on.set()
    assert worker.done == ["greedy", "greedy", "modest", "third", "greedy"]


async def test_a_namespace_that_fills_the_line_leaves_room_for_others(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        for caller in ["greedy"] * 4:
            tasks.create_task(worker.work(caller))
            await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="4 requests wait for the worker"):
            await worker.work("greedy")
        tasks.create_task(worker.work("modest"))
        await asyncio.sleep(0)
        worker.go_on.set()
    assert sorted(worker.done) == ["greedy"] * 4 + ["modest"]
    rejected = {"reason": "queue_full"}
    sample = worker.metrics.registry.get_sample_value("turnwise_rejected_requests_total", rejected)
    assert sample == 1


async def test_work_that_nobody_waits_for_any_more_holds_up_nobody(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.work("first"))
        await asyncio.sleep(0)
        left = tasks.create_task(worker.work("left"))
        await asyncio.sleep(0)
        tasks.create_task(worker.work("last"))
        await asyncio.sleep(0)
        left.cancel()
        worker.go_on.set()
    assert worker.done == ["first", "last"]


async def test_work_that_takes_too_long_is_given_up() -> None:
    go_on = threading.Event()
    thread = OneByOne("worker", Metrics(), timeout=0.01)
    with thread.admit(), pytest.raises(DeadlineExceeded, match=r"within 0\.01 s"):
        await thread.run(go_on.wait)
    go_on.set()
    await thread.close()

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tests.support.waiting import PATIENCE, until
from turnwise.service.current_request import namespace
from turnwise.service.errors import Overloaded
from turnwise.service.observe.metrics import Metrics
from turnwise.service.threads import FairThreads, make_python_threads

pytestmark = pytest.mark.anyio


class Worker:
    """Work that waits for `go_on`, and notes for whom it was done."""

    def __init__(self, threads: int = 1) -> None:
        self.metrics = Metrics()
        self.threads = FairThreads(threads, "worker", self.metrics, limit=4)
        self.go_on = threading.Event()
        self.done: list[str] = []

    async def work(self, caller: str, name: str = "") -> None:
        namespace.set(caller)
        loop = asyncio.get_running_loop()
        with self.threads.admit():
            await loop.run_in_executor(self.threads, self._note, name or caller)

    def _note(self, name: str) -> None:
        assert self.go_on.wait(PATIENCE)
        self.done.append(name)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    yield worker
    worker.go_on.set()
    worker.threads.shutdown()


async def test_namespaces_take_turns(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        for caller in ["greedy", "greedy", "greedy", "modest", "third"]:
            tasks.create_task(worker.work(caller))
            await asyncio.sleep(0)
        worker.go_on.set()
    assert worker.done == ["greedy", "modest", "third", "greedy", "greedy"]


async def test_a_namespace_never_has_all_threads() -> None:
    worker = Worker(threads=2)
    async with asyncio.TaskGroup() as tasks:
        for caller in ["greedy"] * 3:
            tasks.create_task(worker.work(caller))
        await asyncio.sleep(0)
        namespace.set("modest")
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(worker.threads, worker.done.copy) == []
        worker.go_on.set()
    assert worker.done == ["greedy"] * 3
    worker.threads.shutdown()


async def test_a_namespace_uses_one_python_thread_while_others_use_theirs() -> None:
    threads = make_python_threads("worker", Metrics())
    running: list[str] = []
    go_on = threading.Event()

    def work(name: str) -> str:
        running.append(name)
        assert go_on.wait(PATIENCE)
        return namespace.get()

    async def run(name: str) -> str:
        namespace.set(name)
        return await threads.run(work, name)

    tasks = [asyncio.create_task(run(name)) for name in ("greedy", "greedy", "modest", "third")]
    await until(lambda: len(running) == 3)
    assert sorted(running) == ["greedy", "modest", "third"]
    go_on.set()
    assert await asyncio.gather(*tasks) == ["greedy", "greedy", "modest", "third"]
    threads.shutdown()


async def test_a_namespace_that_asks_for_too_much_leaves_room_for_others(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        for caller in ["greedy"] * 4:
            tasks.create_task(worker.work(caller))
            await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="the worker has too much to do"):
            await worker.work("greedy")
        tasks.create_task(worker.work("modest"))
        await asyncio.sleep(0)
        worker.go_on.set()
    assert sorted(worker.done) == ["greedy"] * 4 + ["modest"]
    rejected = {"reason": "queue_full"}
    sample = worker.metrics.registry.get_sample_value("turnwise_rejected_requests_total", rejected)
    assert sample == 1


async def test_work_that_nobody_waits_for_any_more_is_not_done(worker: Worker) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.work("a", "first"))
        await asyncio.sleep(0)
        left = tasks.create_task(worker.work("a", "left"))
        await asyncio.sleep(0)
        tasks.create_task(worker.work("a", "last"))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])  # else its work could begin first
        worker.go_on.set()
    assert worker.done == ["first", "last"]


async def test_an_error_of_the_work_is_raised_where_it_is_awaited(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(worker.threads, lambda: 1 // 0)
    worker.go_on.set()
    await worker.work("a")
    assert worker.done == ["a"]


async def test_the_end_drops_what_has_not_begun(worker: Worker) -> None:
    begun = asyncio.create_task(worker.work("a", "begun"))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(worker.work("a", "waits"))
    await asyncio.sleep(0)
    worker.threads.shutdown(wait=False, cancel_futures=True)
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    worker.go_on.set()
    await begun
    assert worker.done == ["begun"]


def test_a_heavy_request_counts_as_several_and_the_first_is_always_admitted() -> None:
    threads = FairThreads(1, "planner", Metrics(), limit=4)
    with threads.admit(9), pytest.raises(Overloaded, match="the planner has too much to do"):
        threads.admit().__enter__()
    with threads.admit(3), threads.admit(), pytest.raises(Overloaded):
        threads.admit().__enter__()
    with threads.admit(9):
        pass

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from turnwise.service.errors import DeadlineExceeded, Overloaded, StateUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.sessions.store import SessionKey
from turnwise.service.sessions.writers import SessionWriters

pytestmark = pytest.mark.anyio

KEY = SessionKey("n", "s-1")


class Door:
    """Attempts that wait until the door opens, and note who went through."""

    def __init__(self) -> None:
        self.opens = asyncio.Event()
        self.through: list[str] = []

    def attempt(self, name: str) -> Callable[[], Awaitable[str]]:
        async def go() -> str:
            await self.opens.wait()
            self.through.append(name)
            return name

        return go


async def begin(writers: SessionWriters, door: Door, name: str) -> asyncio.Task[str]:
    task = asyncio.create_task(writers.change(KEY, door.attempt(name)))
    await asyncio.sleep(0)
    return task


async def test_writers_of_a_session_go_in_order_of_arrival() -> None:
    writers = SessionWriters(Metrics(), timeout=60)
    door = Door()
    tasks = [await begin(writers, door, name) for name in "abc"]
    door.opens.set()
    assert await asyncio.gather(*tasks) == door.through == ["a", "b", "c"]


async def test_a_writer_of_another_session_does_not_wait() -> None:
    writers = SessionWriters(Metrics(), timeout=60)
    shut = Door()
    waiting = await begin(writers, shut, "waits")
    other = Door()
    other.opens.set()
    assert await writers.change(SessionKey("n", "s-2"), other.attempt("other")) == "other"
    shut.opens.set()
    await waiting


async def test_a_session_has_so_many_writers_and_no_more() -> None:
    metrics = Metrics()
    writers = SessionWriters(metrics, timeout=60, limit=2)
    door = Door()
    tasks = [await begin(writers, door, name) for name in "ab"]
    with pytest.raises(Overloaded, match="session 's-1' has 2 requests waiting"):
        await writers.change(KEY, door.attempt("c"))
    door.opens.set()
    await asyncio.gather(*tasks)
    assert await writers.change(KEY, door.attempt("d")) == "d"
    rejected = {"reason": "queue_full"}
    counted = metrics.registry.get_sample_value("turnwise_rejected_requests_total", rejected)
    assert counted == 1


async def test_a_writer_whose_client_left_makes_room() -> None:
    writers = SessionWriters(Metrics(), timeout=60, limit=2)
    door = Door()
    first = await begin(writers, door, "first")
    left = await begin(writers, door, "left")
    left.cancel()
    await asyncio.wait([left])
    last = await begin(writers, door, "last")
    door.opens.set()
    assert await asyncio.gather(first, last) == door.through == ["first", "last"]


async def test_a_writer_whose_turn_fails_lets_the_next_one_go() -> None:
    writers = SessionWriters(Metrics(), timeout=60)

    async def fail() -> str:
        raise ValueError("ours")

    door = Door()
    door.opens.set()
    failing = asyncio.create_task(writers.change(KEY, fail))
    following = await begin(writers, door, "next")
    with pytest.raises(ValueError, match="ours"):
        await failing
    assert await following == "next"


async def test_a_writer_does_not_wait_for_ever() -> None:
    writers = SessionWriters(Metrics(), timeout=0.01)
    door = Door()
    first = await begin(writers, door, "first")
    with pytest.raises(DeadlineExceeded, match=r"session 's-1' for 0\.01 s"):
        await writers.change(KEY, door.attempt("late"))
    door.opens.set()
    assert await first == "first"


async def test_a_writer_that_loses_a_race_tries_again_but_not_for_ever() -> None:
    writers = SessionWriters(Metrics(), timeout=60)
    attempts = iter([None, None, "landed"])

    async def late() -> str | None:
        return next(attempts)

    async def never() -> None:
        return None

    assert await writers.change(KEY, late) == "landed"
    with pytest.raises(StateUnavailable, match="too many changes of session 's-1'"):
        await writers.change(KEY, never)

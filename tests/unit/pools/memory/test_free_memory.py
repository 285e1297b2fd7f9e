"""Uploads, reads, folds and index builds that do not fit into memory, and how much is free."""

import asyncio
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from redis.asyncio import Redis

from tests.support.redis_keys import pool_key
from tests.support.waiting import until
from tests.unit.pools.conftest import StartReplica, patch_records, unit_vectors, with_pool
from turnwise.service.errors import NotEnoughMemory, PoolNotReady
from turnwise.service.pools import Candidate, following, pool
from turnwise.service.pools.memory import free_memory, upkeep
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.edits import Edit, join_edits
from turnwise.service.pools.memory.examples import Examples
from turnwise.service.pools.memory.flat import FlatIndex
from turnwise.service.pools.memory.free_memory import Memory, available_memory

LARGE = {"a": "b" * 4000}
MANY = [f"Reply {number}." for number in range(1100)]

Free = Callable[[float], None]


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Free:
    """Sets the bytes of memory that work may take."""
    return lambda left: monkeypatch.setattr(
        free_memory, "available_memory", lambda: free_memory.SPARE + left
    )


@pytest.mark.anyio
async def test_an_upload_that_does_not_fit_is_rejected_and_changes_nothing(
    start: StartReplica, redis: Redis, free: Free
) -> None:
    one = await with_pool(start, "First.")
    keys = await redis.keys("tw:*")
    free(1 << 20)
    with pytest.raises(NotEnoughMemory, match="2100 candidates needs 2 MB of memory, but 1 MB"):
        await one.upsert(*(f"Reply {number}." for number in range(2100)))
    assert (one.version(), await redis.keys("tw:*")) == (1, keys)
    await one.upsert(*MANY)  # what was promised is free again
    free(0)
    await one.remove("First.")
    assert one.version() == 3


@pytest.mark.anyio
async def test_a_pool_that_does_not_fit_is_read_once_there_is_memory(
    start: StartReplica,
    monkeypatch: pytest.MonkeyPatch,
    free: Free,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(pool, "RETRY_SECONDS", 0.0)
    one = await with_pool(start, *MANY)
    free(1 << 19)
    two = await start()
    await until(lambda: "reading pool 'p' needs 1 MB of memory, but 0 MB are free" in caplog.text)
    with pytest.raises(PoolNotReady):
        two.view()
    assert not two.follower.ready
    free(3 << 20)
    await until(lambda: two.follower.ready and two.follows(one))
    free(1 << 20)
    await one.remove(MANY[0])
    await until(lambda: two.follows(one))


@pytest.mark.anyio
async def test_a_fold_that_does_not_fit_is_left_to_another_replica(
    start: StartReplica,
    monkeypatch: pytest.MonkeyPatch,
    free: Free,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def write(*_: object) -> None:
        raise AssertionError

    one = await with_pool(start, *MANY)
    await one.remove(MANY[0])
    patch_records(monkeypatch, "stage", write)
    free(0)
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", -10)
    await until(lambda: "folding the log of pool 'p' needs 1 MB of memory" in caplog.text)


@pytest.mark.anyio
async def test_a_pool_too_large_for_an_index_keeps_exact_search(
    start: StartReplica,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    free: Free,
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(upkeep, "code_bytes", lambda _: 1 << 20)
    free(100 << 20)
    one = await with_pool(start, *MANY, exact_limit=1000)
    await until(lambda: "an index of pool 'p' needs 2201 MB of memory" in caplog.text)
    await one.remove(MANY[0])
    await asyncio.sleep(0.3)
    assert caplog.text.count("an index of pool") == 1
    info = one.info()
    assert (info.index, info.size, info.progress) == ("flat", 1099, None)


@pytest.mark.anyio
async def test_a_pool_that_is_larger_than_expected_is_given_up_before_memory_is_short(
    start: StartReplica,
    redis: Redis,
    free: Free,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await with_pool(start, *(Candidate.of(text, None, LARGE) for text in MANY))
    await redis.hset(pool_key("n", "p", "meta"), "bytes", 0)  # as old releases left it
    free(3 << 20)
    two = await start()
    await until(lambda: "reading pool 'p' needs 4 MB of memory" in caplog.text)
    assert (two.info().state, two.metric("turnwise_pools", state="loading")) == ("loading", 1)
    await two.fill("q", "Other pools go on.")
    monkeypatch.setattr(pool, "RETRY_SECONDS", 0.0)
    free(10 << 20)
    await until(lambda: two.follows(one))


@pytest.mark.anyio
async def test_a_pool_that_does_not_fit_does_not_keep_a_replica_down(
    start: StartReplica, free: Free, caplog: pytest.LogCaptureFixture
) -> None:
    await with_pool(start, *MANY)
    free(1 << 19)
    two = await start(refused_seconds=0)
    await until(lambda: two.follower.ready)
    assert "reading pool 'p' needs 1 MB of memory" in caplog.text
    with pytest.raises(PoolNotReady):
        two.view()
    await two.fill("q", "One.")
    assert len(two.contents("q")) == 1


def test_memory_that_is_used_is_no_longer_promised(free: Free) -> None:
    free(10 << 20)
    memory = Memory()
    with memory.admitted(6 << 20, "this") as admission:
        admission.use(4 << 20)
        free(6 << 20)
        assert memory.free == 4 << 20
        admission.use(4 << 20)
        free(2 << 20)
        assert memory.free == 2 << 20
        with pytest.raises(NotEnoughMemory, match="this needs 3 MB of memory, but 2 MB are free"):
            admission.use(3 << 20)


def test_what_is_promised_is_not_free(free: Free) -> None:
    free(10 << 20)
    admit = Memory().admitted
    with (
        admit(6 << 20, "this"),
        pytest.raises(NotEnoughMemory, match="but 4 MB are free"),
        admit(5 << 20, "that"),
    ):
        pass
    with admit(10 << 20, "this"):
        pass
    with pytest.raises(NotEnoughMemory), admit((10 << 20) + 1, "this"):
        pass


D = 384
N = 3000
# Bytes that other threads may allocate while the work is traced: the peak is that of the process.
ELSEWHERE = 1 << 20


def edit_of(ids: range, seed: int = 0, examples: int = 0) -> Edit:
    texts = tuple(f"Example {number}." for number in range(examples))
    candidates = [Candidate(str(id), "A text.", examples=texts) for id in ids]
    vectors = unit_vectors(len(ids), D, seed).astype(np.float16)
    return Edit(candidates, vectors, (), Examples.of(candidates, vectors.repeat(examples, axis=0)))


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    kept = work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return peak


def test_edits_are_joined_by_one_copy_of_their_vectors() -> None:
    edits = [edit_of(range(N)), edit_of(range(100, N + 100), 1)]
    size = 2 * D * (N + 100)
    assert size <= peak_of(lambda: join_edits(edits)) < 1.8 * size


def test_a_whole_log_becomes_a_base_without_a_copy() -> None:
    edits = [edit_of(range(N)), edit_of(range(N, N + 5), 1)]
    contents = Contents.empty(D).after(edits, FlatIndex)
    assert contents.base.index.vectors is edits[0].vectors


@pytest.mark.parametrize("examples", [0, 3])
@pytest.mark.parametrize("counts", [(N,), (N, 2000), (20, N)])
@pytest.mark.parametrize("before", [0, 2 * N])
def test_edits_take_no_more_memory_than_is_asked_for(
    before: int, counts: tuple[int, ...], examples: int
) -> None:
    contents = Contents.empty(D)
    if before:
        contents = contents.after([edit_of(range(before), examples=examples)], FlatIndex)

    made = [edit_of(range(50, 50 + count), seed, examples) for seed, count in enumerate(counts, 1)]

    def work() -> Contents:
        edits = [
            Edit(
                edit.candidates,
                edit.vectors.copy(),
                examples=edit.examples
                and replace(edit.examples, vectors=edit.examples.vectors.copy()),
            )
            for edit in made
        ]
        return contents.after(edits, FlatIndex)

    asked = contents.edit_bytes([edit.size for edit in made])
    assert peak_of(work) <= asked + ELSEWHERE


@pytest.fixture
def memory_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "CGROUP", tmp_path)
    return tmp_path


def test_the_machine_limits_memory_where_it_is_known(memory_files: Path) -> None:
    assert available_memory() == math.inf
    (memory_files / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable:    3 kB\n")
    assert available_memory() == 3072


@pytest.mark.parametrize(("limit", "left"), [("4096", 1301), ("max", 3072)])
def test_the_limit_of_a_container_limits_memory(memory_files: Path, limit: str, left: int) -> None:
    (memory_files / "meminfo").write_text("MemAvailable: 3 kB\n")
    (memory_files / "memory.max").write_text(f"{limit}\n")
    (memory_files / "memory.current").write_text("3000\n")
    (memory_files / "memory.stat").write_text("active_file 5\ninactive_file 200\n")
    assert available_memory() == left

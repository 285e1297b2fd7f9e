"""Interrupted uploads, folds, lost chunks, and indexing."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from tests.support.redis_keys import pool_key
from tests.support.waiting import until
from tests.unit.pools.conftest import (
    MANY,
    DirectEncoder,
    Replica,
    StartReplica,
    patch_records,
    with_pool,
)
from turnwise.service.errors import EncoderFailed, StateUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate, following, pool
from turnwise.service.pools.memory import ivf, local, upkeep
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.redis import records
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import NOWHERE, Log, PoolKey, Position

pytestmark = pytest.mark.anyio

KEY = PoolKey("n", "p")
META, LOG, FOLDING = (pool_key("n", "p", name) for name in ("meta", "log", "fold"))


async def chunks_of(redis: Redis) -> list[bytes]:
    return [key async for key in redis.scan_iter(pool_key("n", "p", "chunk:*"))]


async def expiring(redis: Redis) -> int:
    return sum([await redis.ttl(key) > 0 for key in await chunks_of(redis)])


async def log_has(redis: Redis, entries: int) -> None:
    """Wait until the log has this number of entries."""

    async def has() -> bool:
        return await redis.llen(LOG) == entries

    await until(has)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "CHUNK", 3)


@pytest.fixture
def early_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", 5)


async def edited(replica: Replica, edits: int) -> None:
    """Make a pool whose log adds, replaces and removes candidates."""
    await replica.create()
    for number in range(edits):
        upserts = [Candidate(str(number % 4), f"Reply {number}."), Candidate("same", "Same.")]
        await replica.upsert(*upserts)
    await replica.pools.remove("n", "p", "1")


async def test_progress_counts_distinct_texts_and_examples_together(start: StartReplica) -> None:
    one = await with_pool(start)
    steps: list[tuple[int, int]] = []
    candidates = [Candidate(str(number), f"Reply {number % 300}.") for number in range(400)]
    candidates[0] = replace(candidates[0], examples=("When?", "Where?"))
    candidates[1] = replace(candidates[1], examples=("When?",))
    await one.pools.upsert("n", "p", candidates, lambda *step: steps.append(step))
    assert steps == [(2, 302), (258, 302), (302, 302)]


@pytest.mark.usefixtures("short_chunks")
async def test_staged_chunks_that_are_not_committed_are_invisible_and_expire(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise asyncio.CancelledError

    one = await with_pool(start)
    monkeypatch.setattr(PoolRecords, "commit", die)
    with pytest.raises(asyncio.CancelledError):
        await one.upsert(*map(str, range(10)))
    assert len(await chunks_of(redis)) == await expiring(redis) == 4
    two = await start(ready=True)
    assert one.contents() == two.contents() == {}
    assert one.version() == 0


@pytest.mark.usefixtures("short_chunks")
async def test_an_upload_that_fails_halfway_leaves_no_chunk(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start)
    run = PoolRecords.run_script
    staged = 0

    async def fill_up(self: PoolRecords, operation: Any, script: str, *args: Any) -> object:
        nonlocal staged
        staged += script == "stage"
        if staged == 3:
            raise StateUnavailable("Redis is full")
        return await run(self, operation, script, *args)

    patch_records(monkeypatch, "run_script", fill_up)
    with pytest.raises(StateUnavailable, match="full"):
        await one.upsert(*map(str, range(10)))
    assert (await chunks_of(redis), one.version(), one.contents()) == ([], 0, {})


@pytest.mark.usefixtures("short_chunks")
async def test_staged_chunks_that_expired_are_staged_again(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start)
    stage = PoolRecords.stage
    staged = 0

    async def stage_and_lose(self: PoolRecords, *args: object) -> object:
        nonlocal staged
        entry = await stage(self, *args)  # type: ignore[arg-type]
        staged += 1
        if staged == 1:
            await redis.unlink(*await chunks_of(redis))
        return entry

    monkeypatch.setattr(PoolRecords, "stage", stage_and_lose)
    await one.upsert("1", "2")
    assert (staged, one.version()) == (2, 1)
    two = await start(ready=True)
    assert two.contents() == one.contents()


async def test_a_fold_shortens_the_log_and_changes_nothing(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    two = await start()
    await edited(one, 13)
    await two.find()
    await until(lambda: two.follows(one))
    before = one.contents()
    version = one.version()
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", 5)  # not before: a fold would leave the later edits
    await log_has(redis, 1)
    assert one.version() == version
    stored = await redis.hmget(META, "version", "stored")
    assert stored == [str(number).encode() for number in (version, len(before))]
    late = await start()
    await until(lambda: late.follower.ready and two.follows(one))
    assert one.contents() == two.contents() == late.contents() == before
    await two.upsert("After the fold.")
    await until(lambda: one.version() == late.version() == version + 1)
    assert one.contents() == late.contents() == two.contents()
    assert len(await chunks_of(redis)) - await expiring(redis) == 2


@pytest.mark.usefixtures("early_folds")
async def test_a_history_of_additions_is_folded(start: StartReplica, redis: Redis) -> None:
    one = await with_pool(start)
    for number in range(6):  # the fewest that are folded, so that none comes after
        await one.upsert(f"Reply {number}.")

    async def is_folded() -> bool:
        return await redis.hmget(META, "version", "base", "stored") == [b"6", b"5", b"6"]

    await until(is_folded)
    assert await redis.llen(LOG) == 1
    assert len(await chunks_of(redis)) - await expiring(redis) == 1


@pytest.mark.parametrize("entries", [1, 3])  # of one entry, whose fold keeps also the base
async def test_a_pool_that_is_folded_while_it_is_dropped_leaves_no_chunk(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    one = await with_pool(start)
    for number in range(entries):
        await one.upsert(f"Reply {number}.")
    candidates = one.view().contents.candidates()
    edit = Edit(candidates, np.zeros((len(candidates), 32), np.float16))
    drop = PoolRecords.drop
    outcomes = list[str]()

    async def fold_first(self: PoolRecords, key: PoolKey, log: Log) -> str:
        if not outcomes:
            staged = replace(await self.stage(key, edit), stamp=log.position.stamp)
            assert await self.fold(key, log, staged) == "ok"
        outcomes.append(await drop(self, key, log))
        return outcomes[-1]

    monkeypatch.setattr(PoolRecords, "drop", fold_first)
    await one.pools.drop("n", "p")
    assert outcomes == ["conflict", "ok"]
    assert len(await chunks_of(redis)) == await expiring(redis) == entries


async def test_a_fold_that_fails_changes_nothing(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = PoolRecords.fold
    found: list[object] = []

    async def fail(self: PoolRecords, *args: object) -> str:
        log = await redis.lrange(LOG, 0, -1)
        stored = await redis.hget(META, "stored")
        await redis.hset(META, "stored", "no number")
        with pytest.raises(ResponseError, match="not an integer"):
            await fold(self, *args)  # type: ignore[arg-type]
        await redis.hset(META, "stored", str(stored and stored.decode()))
        found[:] = [await redis.lrange(LOG, 0, -1) == log, await redis.hget(META, "base")]
        found.append(await expiring(redis))
        return "conflict"

    one = await start()
    await edited(one, 12)
    monkeypatch.setattr(PoolRecords, "fold", fail)
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", 5)
    await until(lambda: len(found) == 3)
    assert found == [True, b"0", 1]


async def test_edits_during_a_fold_stay(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    await edited(one, 12)
    fold = PoolRecords.fold

    async def edit_first(self: PoolRecords, *args: object) -> object:
        await one.upsert("Meanwhile.")
        return await fold(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PoolRecords, "fold", edit_first)
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", 5)
    await log_has(redis, 2)
    two = await start(ready=True)
    assert "Meanwhile." in {text for text, _ in two.contents().values()}
    assert (two.contents(), two.version()) == (one.contents(), 14)


@pytest.mark.usefixtures("early_folds")
async def test_a_replica_that_lags_by_less_than_the_tail_reads_only_what_is_new(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await redis.set(FOLDING, b"")  # nobody folds before this test does
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one = await start()
    two = await start()
    await edited(one, 13)
    await two.find()
    await until(lambda: two.follows(one))
    await one.upsert("Not polled yet.")
    behind = two.followed.get(KEY)
    waiting = asyncio.Event()
    monkeypatch.setattr(upkeep, "asyncio", SimpleNamespace(sleep=lambda _: waiting.wait()))
    await redis.delete(FOLDING)
    workers = Workers(1, Metrics())
    folding = asyncio.create_task(upkeep.fold(one.followed.get(KEY), workers))
    await until(lambda: redis.exists(FOLDING))
    read = partial(one.followed.records.read, PoolKey("n", "p"))
    log = await read(behind.position)
    assert log
    assert (log.has > 0, len(log.entries)) == (True, 1)
    await behind.refresh()
    waiting.set()
    await folding
    workers.close()
    assert await redis.llen(LOG) == 1
    log = await read(behind.position)
    assert log
    assert (log.has, log.entries) == (1, ())


@pytest.mark.usefixtures("early_folds")
async def test_a_replica_without_the_lock_does_not_fold(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await redis.set(FOLDING, b"")
    counted = Polls(monkeypatch)
    one = await start()
    await edited(one, 12)
    await counted.some_more()
    assert await redis.llen(LOG) == 13


@pytest.mark.usefixtures("short_chunks")
async def test_a_reader_whose_chunks_are_folded_keeps_what_it_has_encoded(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    await edited(one, 12)
    left = 2

    async def fold_away(reader: DirectEncoder) -> None:
        nonlocal left
        if reader is one.encoder or not left:
            return
        left -= 1
        for number in range(14):
            await one.upsert(f"Before fold {left}: {number}.")
        old = await chunks_of(redis)
        await redis.delete(FOLDING)
        with monkeypatch.context() as early:
            early.setattr(upkeep, "MIN_ENTRIES", 5)
            await log_has(redis, 1)
        await redis.unlink(*old)

    monkeypatch.setattr(DirectEncoder, "opened", fold_away)
    two = await start(fingerprint="other")
    await until(lambda: two.follower.ready and two.follows(one))
    assert left == 0
    assert len(two.encoder.candidates) == len(set(two.encoder.candidates))


class Polls:
    """Counts polls, and reads of whole logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.polls = self.whole = 0
        changes = Directory.changes
        read = PoolRecords.read

        async def count_poll(directory: Directory) -> object:
            self.polls += 1
            return await changes(directory)

        async def count_read(pools: PoolRecords, key: PoolKey, has: Position = NOWHERE) -> object:
            self.whole += has == NOWHERE
            return await read(pools, key, has)

        patch_records(monkeypatch, "changes", count_poll, Directory)
        patch_records(monkeypatch, "read", count_read)
        monkeypatch.setattr(following, "POLL_SECONDS", 0.01)

    async def some_more(self) -> None:
        enough = self.polls + 20
        await until(lambda: self.polls >= enough)


async def test_a_damaged_version_is_read_again_when_it_changes_and_after_a_while(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    await edited(one, 3)
    lost = (await chunks_of(redis))[0]
    await redis.rename(lost, "{n/p}:away")
    counted = Polls(monkeypatch)
    two = await start()
    await until(lambda: two.info().state == "damaged")
    await counted.some_more()
    assert counted.whole == 2  # the second one, for the pool may have been folded meanwhile
    await one.upsert("Later.")
    await until(lambda: counted.whole == 4)
    await counted.some_more()
    assert counted.whole == 4
    await redis.rename("{n/p}:away", lost)
    monkeypatch.setattr(pool, "RETRY_SECONDS", 0)
    await until(lambda: two.info().state == "ready")
    assert two.contents() == one.contents()


async def test_a_pool_on_which_the_model_fails_is_not_tried_at_every_poll(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start()
    await edited(one, 3)
    tries = 0

    async def fail(_: DirectEncoder) -> None:
        nonlocal tries
        tries += 1
        raise EncoderFailed("the model failed")

    monkeypatch.setattr(DirectEncoder, "opened", fail)
    counted = Polls(monkeypatch)
    await start(fingerprint="other")
    await until(lambda: tries > 0)
    await counted.some_more()
    assert (tries, counted.whole) == (1, 1)


async def test_a_replica_serves_what_it_has_until_it_can_read_a_later_version(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind(replica: Replica) -> float | None:
        return replica.metric("turnwise_pools", state="behind")

    async def lost(*_: object) -> None:
        return None

    one = await with_pool(start)
    two = await start(ready=True)
    with monkeypatch.context() as patched:
        patched.setattr(PoolRecords, "chunk", lost)
        await one.upsert("Lost.")
        await until(lambda: behind(two) == 1)
        assert (two.info().state, two.contents()) == ("ready", {})
    await one.upsert("Later.")
    await until(lambda: two.follows(one))
    assert behind(two) == 0


async def test_versions_that_redis_lost_are_forgotten(start: StartReplica, redis: Redis) -> None:
    """Of an append-only file that is written once a second, the last second may be gone."""
    one = await start()
    await edited(one, 3)
    meta: Any = await redis.hgetall(META)
    log = await redis.lrange(LOG, 0, -1)
    await one.upsert("Lost.")
    await redis.hset(META, mapping=meta)
    await redis.delete(LOG)
    await redis.rpush(LOG, *log)
    two = await start(ready=True)
    await two.upsert("Kept.")
    await until(lambda: one.follows(two))
    assert "Lost." not in {text for text, _ in one.contents().values()}


async def test_edits_while_an_index_is_built_are_in_it(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start, exact_limit=1000)
    sampled = asyncio.Event()
    go_on = asyncio.Event()
    build = Workers.build

    async def build_late(self: Workers, work: Callable[[], object]) -> object:
        sampled.set()
        await go_on.wait()
        return await build(self, work)

    monkeypatch.setattr(Workers, "build", build_late)
    await one.upsert(*MANY)
    await sampled.wait()
    await one.upsert(Candidate("new", "Reply 7."))
    await one.remove("Reply 8.")
    before = one.contents()
    go_on.set()
    await until(lambda: one.info().index == "ivf")
    assert one.contents() == before
    hits = await one.view().search(np.ones(32, np.float32), 1100)
    assert {hit.candidate.id for hit in hits} == before.keys()


async def test_a_pool_whose_index_cannot_be_built_is_searched_exactly(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0

    def fail(_: object) -> None:
        nonlocal tried
        tried += 1
        raise RuntimeError("the clusters are empty")

    monkeypatch.setattr(ivf, "train_lists", fail)
    one = await with_pool(start, *MANY, exact_limit=1000)
    await until(lambda: "the clusters are empty" in caplog.text)
    await until(lambda: one.follower.ready)
    await one.follower.poll()
    await one.followed.background.wait(("index", KEY), 5.0)
    assert (tried, one.info().index, one.info().state) == (1, "flat", "ready")
    assert len(await one.view().search(np.ones(32, np.float32), 5)) == 5


async def test_a_pool_that_shrinks_below_the_limit_is_searched_exactly_again(
    start: StartReplica,
) -> None:
    one = await with_pool(start, *MANY, exact_limit=1000)
    await until(lambda: one.info().index == "ivf")
    await one.pools.remove_many("n", "p", [Candidate.of(text).id for text in MANY[:100]])
    assert (one.info().index, one.info().exact, one.info().size) == ("flat", True, 1000)
    hits = await one.view().search(np.ones(32, np.float32), 1000)
    assert {hit.candidate.text for hit in hits} == {*MANY[100:]}


async def test_an_index_build_does_not_restore_the_contents_of_a_dropped_pool(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60)
    one = await start()
    await edited(one, 3)
    two = await start(ready=True)
    await one.pools.drop("n", "p")
    await one.create()
    await one.upsert("Another.")
    read = PoolRecords.read
    former = two.followed.get(KEY)
    building: list[asyncio.Task[None]] = []

    async def build_meanwhile(self: PoolRecords, *args: Any) -> Log | None:
        if not building:
            building.append(asyncio.create_task(former.replace_index(lambda contents: contents, 0)))
            await asyncio.sleep(0)
        return await read(self, *args)

    patch_records(monkeypatch, "read", build_meanwhile)
    await two.pools.load("n", "p")
    await building[0]
    assert two.contents() == one.contents()


async def test_progress_of_reading_and_indexing_is_reported(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[float | None] = []
    tell = local.LocalPool.set_progress

    def listen(self: local.LocalPool, progress: float | None) -> None:
        tell(self, progress)
        reported.append(self.info().progress)

    one = await with_pool(start)
    monkeypatch.setattr(records, "CHUNK", 100)
    await one.upsert(*(f"Reply {number}." for number in range(1100)))
    monkeypatch.setattr(local.LocalPool, "set_progress", listen)
    monkeypatch.setattr(ivf, "SLICE", 550)
    two = await start(exact_limit=1000)
    await until(lambda: two.info().index == "ivf")
    assert reported == [*(chunk / 11 for chunk in range(1, 12)), None, 0.5, 1.0, None]

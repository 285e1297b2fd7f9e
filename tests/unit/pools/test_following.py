import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from tests.support.redis_keys import pool_key
from tests.support.redis_server import RedisServer
from tests.support.waiting import until
from tests.unit.pools.conftest import StartReplica, patch_records, some, with_pool
from turnwise.service.errors import (
    InvalidRequest,
    NamespaceFull,
    NotEnoughMemory,
    Overloaded,
    PoolFull,
    PoolNotFound,
    PoolNotReady,
    ServiceError,
    StateUnavailable,
    StoreUnavailable,
)
from turnwise.service.pools import Candidate, followed, following
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.redis import directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import PoolKey, Revision
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.pools import PoolRequest

pytestmark = pytest.mark.anyio


async def test_each_distinct_text_is_encoded_once(start: StartReplica) -> None:
    replica = await with_pool(start, "One.", "Two.")
    more = [Candidate("x", "Two."), Candidate("y", "Three."), Candidate("z", "Three.")]
    await replica.upsert(*more)
    assert sorted(replica.encoder.candidates) == ["One.", "Three.", "Two."]


async def test_two_different_candidates_with_one_id_are_rejected(start: StartReplica) -> None:
    replica = await with_pool(start)
    with pytest.raises(InvalidRequest) as refused:
        await replica.pools.upsert(
            "n", "p", [Candidate("a", "One."), Candidate("b", "Two."), Candidate("a", "Three.")]
        )
    assert refused.value.errors[0].loc == (2, "id")
    assert "candidates 0 and 2" in refused.value.detail
    assert replica.contents() == {}


async def test_an_upload_beyond_the_limit_changes_nothing(start: StartReplica) -> None:
    replica = await start(max_pool_size=3)
    await replica.create()
    await replica.upsert("1", "2")
    with pytest.raises(PoolFull, match="limit of 3"):
        await replica.upsert("3", "4")
    assert len(replica.contents()) == 2
    await replica.upsert("1", "2", "3")
    assert len(replica.contents()) == 3


async def test_a_namespace_has_so_many_pools(start: StartReplica) -> None:
    one = await start(max_pools=2)
    two = await start(max_pools=2)
    await one.pools.create("n", "p", PoolRequest())
    await two.pools.create("n", "q", PoolRequest())
    with pytest.raises(NamespaceFull, match="namespace 'n' has 2 pools, and may have 2"):
        await one.pools.create("n", "r", PoolRequest())
    assert one.metric("turnwise_rejected_requests_total", reason="pools") == 1
    assert (await two.pools.create("n", "p", PoolRequest(description="anew"))).description == "anew"
    await two.pools.create("other", "r", PoolRequest())
    await one.pools.drop("n", "q")
    await two.pools.create("n", "r", PoolRequest())


async def test_the_pools_of_a_namespace_have_so_many_bytes(start: StartReplica) -> None:
    of_text = len("1") + 16  # a text of one letter and its id
    of_vector = 2 * 32
    replica = await start(max_pools_bytes=3 * (of_text + of_vector))
    await replica.create()
    await replica.upsert("1")
    await replica.fill("q", "2")
    with pytest.raises(NamespaceFull, match="would have 324 bytes, more than the limit of 243"):
        await replica.upsert("3", "4")
    assert len(replica.contents()) == 1
    assert replica.metric("turnwise_rejected_requests_total", reason="pools_bytes") == 1
    await replica.upsert("3")
    with pytest.raises(NamespaceFull):
        await replica.pools.upsert("n", "q", [Candidate.of("2", some("2")[0].id, {"a": "b"})])
    await replica.pools.create("other", "p", PoolRequest())
    await replica.pools.upsert("other", "p", some("3", "4"))
    await replica.remove("3")
    await replica.upsert("5")


@pytest.mark.parametrize("kind", ["pools", "aliases", "bytes"])
async def test_replicas_do_not_exceed_a_limit_of_a_namespace_together(
    start: StartReplica, cluster_url: str, kind: str
) -> None:
    candidate = len("1") + 16 + 2 * 32  # a text of one letter, its id and its vector
    limits = {"max_pools": 5, "max_aliases": 2, "max_pools_bytes": 2 * candidate}
    two = [await start(cluster_url, cluster=True, **limits) for _ in range(2)]
    for name in "pqr":
        await two[0].pools.create("n", name, PoolRequest())
    await asyncio.gather(*(replica.pools.load("n", name) for replica in two for name in "pqr"))

    def grow(pools: Pools, name: str) -> Awaitable[object]:
        if kind == "pools":
            return pools.create("n", f"new-{name}", PoolRequest())
        if kind == "aliases":
            return pools.point("n", f"new-{name}", name)
        return pools.upsert("n", name, some("1"))

    three = zip(two * 2, "pqr", strict=False)
    done = await asyncio.gather(
        *(grow(replica.pools, name) for replica, name in three), return_exceptions=True
    )
    assert [type(each) for each in done].count(NamespaceFull) == 1


async def test_a_replica_that_freezes_before_it_lists_a_pool_does_not_exceed_the_limit(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start, max_pools=2)
    two = await start(max_pools=2)
    create = PoolRecords.create

    async def freeze(*args: Any) -> object:
        monkeypatch.setattr(PoolRecords, "create", create)
        await redis.delete("tw:lock:n")  # as if it had expired
        await two.fill("q")
        return await create(*args)

    patch_records(monkeypatch, "create", freeze)
    with pytest.raises(NamespaceFull, match="namespace 'n' has 2 pools, and may have 2"):
        await one.fill("r")
    assert await two.names() == ["p", "q"]
    assert not await redis.exists(pool_key("n", "r", "meta"))


async def test_a_replica_that_freezes_before_it_commits_does_not_exceed_the_limit_of_bytes(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = len("1") + 16 + 2 * 32  # a text of one letter, its id and its vector
    one = await with_pool(start, max_pools_bytes=candidate)
    two = await start(max_pools_bytes=candidate)
    await two.fill("q")
    commit = PoolRecords.commit

    async def freeze(*args: Any) -> object:
        monkeypatch.setattr(PoolRecords, "commit", commit)
        monkeypatch.setattr(directory, "LOCK_SECONDS", 30.0)
        monkeypatch.setattr(directory, "WRITE_SECONDS", 20.0)
        while await redis.exists("tw:lock:n"):
            await asyncio.sleep(0.01)
        await two.pools.upsert("n", "q", some("2"))
        return await commit(*args)

    monkeypatch.setattr(directory, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(directory, "WRITE_SECONDS", 0.1)
    patch_records(monkeypatch, "commit", freeze)
    with pytest.raises(NamespaceFull):
        await one.upsert("1")
    assert (await one.find()).size == 0


async def test_a_namespace_has_so_many_edits_in_progress(start: StartReplica) -> None:
    replica = await with_pool(start, "One.")
    with replica.followed.resources.workers.edits.admit(32), pytest.raises(Overloaded):
        await replica.upsert("Two.")
    await replica.upsert("Three.")
    assert replica.version() == 2


async def test_a_thread_counts_the_bytes_of_a_namespace(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Contents.candidate_bytes
    threads = set[int]()

    def count(contents: Contents) -> int:
        threads.add(get_ident())
        return counted.__get__(contents)  # type: ignore[no-any-return,attr-defined]

    monkeypatch.setattr(Contents, "candidate_bytes", property(count))
    await with_pool(start, "One.", max_pools_bytes=1000)
    assert threads - {get_ident()} == threads != set()


@pytest.mark.parametrize(
    ("text", "version", "after"), [("{} More.", 3, "Two. More."), ("Two.", 2, "Two.")]
)
async def test_what_another_replica_changed_meanwhile_is_planned_again(
    start: StartReplica, redis: Redis, text: str, version: int, after: str
) -> None:
    one = await with_pool(start, Candidate("a", "One."))
    two = await start(ready=True)

    async def change_meanwhile() -> None:
        one.encoder.opened = opened  # type: ignore[method-assign]
        await two.upsert(Candidate("a", "Two."))

    opened = one.encoder.opened
    one.encoder.opened = change_meanwhile  # type: ignore[method-assign]
    edited = await one.pools.revise("n", "p", lambda c: Candidate("a", text.format(c.text)))
    assert (edited.version, edited.upserted) == (version, version - 2)
    assert one.contents() == {"a": (after, {})}
    chunks = [key async for key in redis.scan_iter(match="*:chunk:*")]
    assert len(chunks) == version  # none of the edit that was not committed


async def test_an_edit_that_is_cancelled_after_its_commit_reaches_every_replica(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FULL_POLL_SECONDS", 3600.0)
    one = await with_pool(start, "One.")
    two = await start()
    await until(lambda: two.follows(one))
    commit = PoolRecords.commit

    async def cancelled(*given: Any) -> Any:
        outcome = await commit(*given)
        edit.cancel()
        return outcome

    patch_records(monkeypatch, "commit", cancelled)
    edit = asyncio.create_task(one.upsert("Two."))
    with pytest.raises(asyncio.CancelledError):
        await edit
    await until(lambda: one.version() == two.version() == 2)


async def test_a_pool_that_is_dropped_while_an_edit_lands_leaves_no_series(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await with_pool(start)
    commit = PoolRecords.commit

    async def drop_after(self: PoolRecords, *edit: Any) -> str:
        outcome = await commit(self, *edit)
        await replica.pools.drop("n", "p")
        return outcome

    patch_records(monkeypatch, "commit", drop_after)
    await replica.upsert("One.")
    assert replica.gauges() == [None, None]


async def test_a_pool_whose_newest_version_an_edit_has_read_is_not_behind(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def admitted(*_: object) -> None:
        raise NotEnoughMemory("short")

    one = await with_pool(start, "One.")
    two = await start(ready=True)
    behind = partial(two.metric, "turnwise_pools", state="behind")
    with monkeypatch.context() as patched:
        patched.setattr(two.followed.resources.memory, "admitted", admitted)
        await one.upsert("Two.")
        await until(lambda: behind() == 1)
    await two.upsert("Three.")
    assert (len(two.contents()), behind()) == (3, 0)


async def test_a_pool_that_is_created_anew_during_a_poll_stays(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    replica = await with_pool(start, "One.")
    revisions = PoolRecords.revisions

    async def between(self: PoolRecords, keys: Sequence[PoolKey]) -> list[Revision | None]:
        await replica.pools.drop("n", "p")
        found = await revisions(self, keys)
        await replica.create("new")
        return found

    patch_records(monkeypatch, "revisions", between)
    await replica.follower.poll()
    assert replica.info().description == "new"


async def test_search_goes_on_without_redis_and_edits_come_back_with_it(
    start: StartReplica, redis_server: RedisServer
) -> None:
    replica = await start(redis_server.url)
    await replica.create()
    await replica.upsert("One.")
    redis_server.kill()
    hits = await replica.view().search(np.ones(32, np.float32), 1)
    assert [hit.candidate.text for hit in hits] == ["One."]
    for edit in (
        replica.upsert("Two."),
        replica.remove("One."),
        replica.pools.create("n", "q", PoolRequest()),
        replica.pools.drop("n", "p"),
    ):
        with pytest.raises(StateUnavailable):
            await edit
    redis_server.start()  # which comes back empty
    await until(lambda: not replica.knows())
    await replica.create()
    await replica.upsert("Three.")
    assert len(replica.contents()) == 1


async def test_a_service_that_starts_without_redis_becomes_ready_with_it(
    start: StartReplica, redis_server: RedisServer
) -> None:
    redis_server.kill()
    replica = await start(redis_server.url)
    assert not replica.follower.ready
    for ask in (replica.view, replica.info):
        with pytest.raises(StateUnavailable):
            ask()
    with pytest.raises(StateUnavailable):
        await replica.names()
    redis_server.start()
    await until(lambda: replica.follower.ready)


async def test_polls_that_fail_alike_are_logged_once(
    start: StartReplica,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    replica = await start(redis_server.url)
    failed = partial(
        replica.metric,
        "turnwise_redis_operations_total",
        operation="pool_read",
        result="unavailable",
    )
    redis_server.kill()
    await until(lambda: (failed() or 0) > 3)
    assert caplog.text.count("pools: Redis cannot be reached") == 1


@pytest.mark.parametrize(
    "error", [StateUnavailable("down"), StoreUnavailable("away"), NotEnoughMemory("short")]
)
async def test_a_pool_that_cannot_be_filled_at_the_start_is_filled_later(
    start: StartReplica, error: ServiceError
) -> None:
    replica = await start(fill_seconds=0.1)
    errors = [error]

    async def fill() -> None:
        if errors:
            raise errors.pop()
        await replica.fill("default", "One.")

    await replica.follower.keep_filled(fill)
    assert not replica.follower.ready
    await until(lambda: replica.follower.ready)
    assert replica.version("default") == 1


async def test_a_pool_that_is_being_encoded_is_not_half_there(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_pool(start, "One.", "Two.")
    closed = asyncio.Event()
    monkeypatch.setattr("tests.unit.pools.conftest.DirectEncoder.opened", closed.wait)
    two = await start(fingerprint="other")
    await until(lambda: two.info().state == "encoding")
    assert not two.follower.ready
    monkeypatch.setattr(followed, "FIRST_READ_SECONDS", 0.0)
    with pytest.raises(PoolNotReady, match="encoded for this replica's model"):
        two.view()
    with pytest.raises(PoolNotReady):
        await two.upsert("Three.")
    closed.set()
    await until(lambda: two.follower.ready)
    assert len(two.contents()) == 2


async def test_a_pool_that_is_dropped_while_it_is_read_does_not_delay_readiness(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start, "One.")
    monkeypatch.setattr("tests.unit.pools.conftest.DirectEncoder.opened", asyncio.Event().wait)
    two = await start(fingerprint="other")
    await until(lambda: two.info().state == "encoding")
    assert not two.follower.ready
    await one.pools.drop("n", "p")
    await until(lambda: two.follower.ready)


async def test_a_replica_that_starts_waits_for_the_pool_to_which_an_alias_is_moved(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start, "One.")
    await one.pools.point("n", "shop", "p")
    await one.fill("q", "Two.")
    encoder_works = asyncio.Event()
    monkeypatch.setattr("tests.unit.pools.conftest.DirectEncoder.opened", encoder_works.wait)
    two = await start(fingerprint="other")
    await one.pools.point("n", "shop", "q")
    await one.pools.drop("n", "p")
    await until(lambda: not two.knows())
    assert not two.follower.ready
    encoder_works.set()
    await until(lambda: two.follower.ready)
    assert two.contents("q") == one.contents("q")


async def test_a_pool_that_another_replica_has_just_made_is_read_at_once_or_is_not_ready(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one = await start(ready=True)
    two = await start(ready=True)
    await one.create()
    await one.upsert("One.")
    with monkeypatch.context() as patched:
        patched.setattr(followed, "FIRST_READ_SECONDS", 0.0)
        with pytest.raises(PoolNotReady):
            await two.pools.view("n", "p")
    assert [*(await two.pools.view("n", "p")).contents.candidates()] == some("One.")
    with pytest.raises(PoolNotFound):
        await two.pools.view("n", "nowhere")


async def test_a_pool_that_is_created_during_a_poll_stays(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FULL_POLL_SECONDS", 0.0)  # every poll asks for all revisions
    revisions = PoolRecords.revisions
    polled = asyncio.Event()

    async def create_first(self: PoolRecords, keys: Sequence[PoolKey]) -> object:
        if not replica.knows():
            await replica.create()
        found = await revisions(self, keys)
        asyncio.get_running_loop().call_soon(polled.set)
        return found

    replica = await start()
    patch_records(monkeypatch, "revisions", create_first)
    await polled.wait()
    assert await replica.names() == ["p"]


async def test_a_search_in_another_thread_finds_the_same(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await with_pool(start, "One.", "Two.", "Three.")
    view = replica.view()
    query = np.ones(32, np.float32)
    here = await view.search(query, 2)
    monkeypatch.setattr("turnwise.service.pools.memory.local_view.INLINE", 0)
    assert await view.search(query, 2) == here
    assert replica.metric("turnwise_stage_seconds_count", stage="search") == 2
    with pytest.raises(ValueError, match="finite"):
        await view.search(query * np.nan, 2)

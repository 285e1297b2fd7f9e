"""The replacement of all candidates of a pool in memory, batch by batch."""

import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from tests.support.redis_keys import pool_key
from tests.unit.pools.conftest import StartReplica, patch_records, some, unit_vectors, with_pool
from turnwise.service.errors import NamespaceFull, PoolFull, PoolNotReady
from turnwise.service.pools import Candidate, PoolEncoder
from turnwise.service.pools.candidate import Learned
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.redis import records
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import PoolKey
from turnwise.service.pools.view import CandidateBatch

pytestmark = pytest.mark.anyio

Batches = Callable[[PoolEncoder], AsyncIterator[CandidateBatch]]


def batch_of(candidates: Sequence[Candidate]) -> CandidateBatch:
    vectors = unit_vectors(len(candidates), 32).astype(np.float16)
    examples = sum(len(each.all_examples) for each in candidates)
    return CandidateBatch(candidates, vectors, unit_vectors(max(1, examples), 32)[:examples])


def batches_of(*batches: Sequence[Candidate]) -> Batches:
    async def batches_by(_: PoolEncoder) -> AsyncIterator[CandidateBatch]:
        for each in batches:
            yield batch_of(each)

    return batches_by


async def chunks_of(redis: Redis) -> list[bytes]:
    return [key async for key in redis.scan_iter(pool_key("n", "p", "chunk:*"))]


async def test_only_what_differs_is_written(start: StartReplica, redis: Redis) -> None:
    one = await with_pool(start, *some("A.", "B.", "C."), Candidate.of("D.", "d"))
    wanted = [*some("A.", "B."), Candidate.of("D!", "d"), Candidate.of("E.", examples=["Why?"])]
    edited = await one.pools.replace("n", "p", batches_of(wanted[:1], wanted[1:]))
    assert (edited.version, edited.upserted, edited.unchanged, edited.size) == (2, 2, 2, 4)
    assert len(await chunks_of(redis)) == 2
    again = await one.pools.replace("n", "p", batches_of(wanted))
    assert (again.version, again.upserted, again.unchanged) == (2, 0, 4)
    two = await start(ready=True)
    for replica in (one, two):
        found = {each.id: each for each in replica.view().contents.candidates()}
        assert found == {each.id: each for each in wanted}
        assert replica.view().contents.candidate_bytes == int(
            await redis.hget(pool_key("n", "p", "meta"), "bytes") or 0
        )
    assert not one.encoder.candidates[4:]


async def test_candidates_that_were_removed_or_changed_are_written(start: StartReplica) -> None:
    one = await with_pool(start, "A.", "B.")
    await one.remove("A.")
    await one.upsert(Candidate.of("B?", Candidate.of("B.").id))
    edited = await one.pools.replace("n", "p", batches_of(some("A.", "B.")))
    assert (edited.upserted, edited.size) == (2, 2)
    assert sorted(text for text, _ in one.contents().values()) == ["A.", "B."]


async def test_candidates_keep_what_they_have_learned(start: StartReplica) -> None:
    said = Learned("Where?", 1.0, "s")
    taught = Candidate.of("A.", "a", learned=[said])
    gone = Candidate.of("B.", "b", learned=[said])
    one = await with_pool(start, taught, gone)
    await one.pools.remove("n", "p", "b")
    await one.pools.replace(
        "n", "p", batches_of([Candidate.of("A!", "a"), Candidate.of("B.", "b")])
    )
    contents = one.view().contents
    assert [(each.text, each.learned) for each in map(contents.get, "ab") if each] == [
        ("A!", (said,)),
        ("B.", ()),
    ]
    assert contents.example_count == 1


async def test_a_pool_that_others_edit_meanwhile_is_replaced_all_the_same(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start, "A.")
    commit = PoolRecords.commit
    edits = iter(["C.", "D."])

    async def edit_first(*args: Any) -> Any:
        monkeypatch.setattr(PoolRecords, "commit", commit)
        if text := next(edits, None):
            await one.upsert(text)
            monkeypatch.setattr(PoolRecords, "commit", edit_first)
        return await commit(*args)

    monkeypatch.setattr(PoolRecords, "commit", edit_first)
    edited = await one.pools.replace("n", "p", batches_of(some("A.", "B.")))
    assert (edited.version, edited.size) == (4, 2)
    assert sorted(text for text, _ in one.contents().values()) == ["A.", "B."]
    assert len(await chunks_of(redis)) == 4


async def test_a_pool_that_is_folded_meanwhile_is_read_again(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start, "A.")
    await one.upsert("B.")
    edit = Edit(some("A.", "B."), np.zeros((2, 32), np.float16))
    chunk = PoolRecords.chunk
    is_folded = False

    async def fold_first(self: PoolRecords, key: PoolKey, name: str) -> object:
        nonlocal is_folded
        if not is_folded:
            is_folded = True
            log = await self.read(key)
            assert log
            staged = replace(await self.stage(key, edit), stamp=log.position.stamp)
            assert await self.fold(key, log, staged) == "ok"
            return None
        return await chunk(self, key, name)

    patch_records(monkeypatch, "chunk", fold_first)
    await one.pools.replace("n", "p", batches_of(some("B.")))
    assert [text for text, _ in one.contents().values()] == ["B."]


async def test_a_pool_of_which_redis_lost_a_part_is_left_alone(
    start: StartReplica, redis: Redis
) -> None:
    one = await with_pool(start, "A.")
    await redis.delete(*await chunks_of(redis))
    with pytest.raises(PoolNotReady, match="is lost in Redis"):
        await one.pools.replace("n", "p", batches_of(some("B.")))
    assert not await chunks_of(redis)


@pytest.mark.parametrize(
    ("limits", "error"),
    [({"max_pool_size": 3}, PoolFull), ({"max_pools_bytes": 300}, NamespaceFull)],
)
async def test_a_pool_that_would_be_too_large_does_not_change(
    start: StartReplica, limits: dict[str, int], error: type[Exception]
) -> None:
    one = await with_pool(start, "A.", **limits)
    with pytest.raises(error):
        await one.pools.replace("n", "p", batches_of(some("A.", "B."), some("C.", "D.")))
    assert [text for text, _ in one.contents().values()] == ["A."]
    assert one.version() == 1


async def test_vectors_of_another_model_are_replaced(start: StartReplica) -> None:
    await with_pool(start, "A.")
    other = await start(fingerprint="other")
    edited = await other.pools.replace("n", "p", batches_of(some("A.")))
    assert edited.upserted == 1
    third = await start(fingerprint="other", ready=True)
    assert len(third.contents()) == 1
    assert not third.encoder.candidates


async def test_chunks_of_a_long_replacement_do_not_expire(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "RENEW_SECONDS", 0.0)
    one = await with_pool(start)
    left: list[int] = []

    async def slow(_: PoolEncoder) -> AsyncIterator[CandidateBatch]:
        for text in ("A.", "B.", "C."):
            for name in await chunks_of(redis):
                left.append(await redis.ttl(name))
                await redis.expire(name, 60)
            yield batch_of(some(text))

    await one.pools.replace("n", "p", slow)
    assert len(left) == 3
    assert min(left) > 60


async def test_a_pool_is_replaced_in_the_memory_of_a_batch(start: StartReplica) -> None:
    one = await start()
    await one.create()
    await one.follower.close()  # a command follows no pools
    one.followed.forget(PoolKey("n", "p"))

    async def many(_: PoolEncoder) -> AsyncIterator[CandidateBatch]:
        for batch in range(20):
            texts = (f"{batch} {number} ".ljust(2000, "x") for number in range(200))
            yield batch_of(some(*texts))

    tracemalloc.start()
    edited = await one.pools.replace("n", "p", many)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert edited.size == 4000
    assert peak < 4 << 20  # the texts have 8 MB

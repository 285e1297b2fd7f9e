"""What the doctor says of pools as they are in Redis, without a service."""

import pytest
from redis.asyncio import Redis

from tests.support import qdrant
from tests.support.redis_keys import pool_key
from tests.unit.pools.conftest import patch_records
from turnwise.service.cli.doctor import Finding
from turnwise.service.cli.doctor.pools import examine_pools
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import Collection, PoolKey
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.redis.connection import connect
from turnwise.service.wire.pools import PoolRequest

pytestmark = pytest.mark.anyio

KEY = PoolKey("n", "p")


async def create(redis: Redis, collection: Collection | None = None) -> None:
    """Make an empty pool, in memory or in a collection of Qdrant."""
    records = PoolRecords(redis, Metrics(), fingerprint="tiny")
    request = PoolRequest(store="qdrant" if collection else "local")
    incarnation, _ = await records.create(KEY, request, collection)
    await Directory(redis, Metrics()).add(KEY, incarnation)


async def examined(redis: Redis, engine: CandidateStore | None = None) -> list[Finding]:
    return await examine_pools(redis, "tiny", pairwise=False, engine=engine)


async def test_an_empty_pool_is_a_warning_that_says_how_to_fill_it(redis: Redis) -> None:
    await create(redis)
    advice = "`turnwise pool load FILE --pool p`"
    assert await examined(redis) == [Finding("pool n/p", "warn", "empty", advice)]


@pytest.mark.parametrize("method", ["revisions", "read"])
async def test_a_pool_that_is_deleted_meanwhile_is_no_fault(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    await create(redis)
    original = getattr(PoolRecords, method)

    async def after_deletion(records: PoolRecords, *args: object) -> object:
        await redis.delete(pool_key("n", "p", "meta"))
        return await original(records, *args)

    patch_records(monkeypatch, method, after_deletion)
    assert await examined(redis) == [Finding("pool n/p", "ok", "is being deleted")]


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")
@pytest.mark.parametrize(("fingerprint", "grade"), [("tiny", "ok"), ("another", "fail")])
async def test_a_pool_in_a_store_has_to_be_of_the_model(
    redis: Redis, fingerprint: str, grade: str
) -> None:
    store = qdrant.make_store()
    await store.create("turnwise_p", 3)
    await create(redis, Collection("turnwise_p", fingerprint))
    (finding,) = await examined(redis, store)
    await store.close()
    assert (finding.grade, finding.found.endswith(", of another model")) == (grade, grade == "fail")
    assert ("load it into another pool" in finding.advice) == (grade == "fail")


async def test_without_redis_pools_cannot_be_examined() -> None:
    async with connect("redis://127.0.0.1:1", cluster=False, timeout=1.0) as redis:
        (finding,) = await examined(redis)
    assert (finding.subject, finding.grade) == ("pools", "fail")
    assert "Redis cannot be reached" in finding.found
    assert finding.advice == "see the checks of redis above"

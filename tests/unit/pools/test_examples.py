"""Examples of candidates, over a real Redis: their vectors are kept, and found."""

import json
import zlib

import pytest
from redis.asyncio import Redis

from tests.support.redis_keys import pool_key
from tests.support.waiting import until
from tests.unit.pools.conftest import Replica, StartReplica, with_pool
from turnwise.models.roles import Role, RoleText
from turnwise.service.pools import Candidate, PoolKey
from turnwise.service.pools.candidate import Learned
from turnwise.service.pools.memory import ivf, upkeep
from turnwise.service.pools.redis import records

pytestmark = pytest.mark.anyio

KEY = PoolKey("n", "p")
HOURS = Candidate.of("Nine to five.", "hours", examples=["When are you open?", "Opening times?"])
PAY = Candidate.of("By card.", "pay", examples=["How can I pay?"])
BYE = Candidate.of("Bye.", "bye")


async def find(replica: Replica, text: str, top_k: int = 5) -> list[tuple[str, str]]:
    """The ids and the best examples that the replica finds for an utterance."""
    inputs = [RoleText(text, Role.SAID)]
    (said,) = await replica.encoder.encode(inputs)
    hits = await replica.view().search_examples(said, top_k)
    return [(hit.candidate.id, hit.match.text) for hit in hits if hit.match]


async def test_an_example_is_encoded_once(start: StartReplica) -> None:
    one = await with_pool(start, HOURS, PAY)
    assert sorted(one.encoder.utterances) == sorted([*HOURS.examples, *PAY.examples])
    one.encoder.utterances.clear()
    learned = [Learned("Can I pay?", 5.0), Learned("Opening times?", 6.0)]
    more = Candidate.of("By card.", "pay", examples=PAY.examples, learned=learned)
    other = Candidate.of("By card, or cash.", "pay-2", examples=["Can I pay?"])
    await one.upsert(more, other)
    assert one.encoder.utterances == ["Can I pay?"]
    two = await start(ready=True)
    assert two.contents() == one.contents()
    assert (await find(two, "Can I pay?"))[0] == ("pay", "Can I pay?")


async def test_another_model_encodes_each_text_once_and_the_last_two_are_kept(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "CHUNK", 4)
    one = await with_pool(start)
    many = [
        Candidate.of(f"Reply {n % 7}.", str(n), examples=[f"Question {n % 4}?", "Any?"])
        for n in range(10)
    ]
    texts = {each.text for each in (BYE, *many)}
    await one.upsert(BYE, *many[:6])
    await one.upsert(*many[6:])
    chunks = [key async for key in redis.scan_iter(pool_key("n", "p", "chunk:*"))]
    names = [key.decode().rpartition(":")[2] for key in chunks]
    for model in ("two", "three"):
        replica = await start(fingerprint=model)
        await until(lambda replica=replica: replica.follower.ready)  # type: ignore[misc]
        questions = {f"Question {n}?" for n in range(4)} | {"Any?"}
        assert sorted(replica.encoder.utterances) == sorted(questions)
        assert sorted(replica.encoder.candidates) == sorted(texts)
        again = await start(fingerprint=model, ready=True)
        assert (again.encoder.utterances, again.encoder.candidates) == ([], [])
        assert await find(again, "Question 2?", 100) == await find(one, "Question 2?", 100)
        ids = [*map(str, range(10))]
        vectors = [await each.view().vectors(ids) for each in (one, replica, again)]
        assert all((each == vectors[0]).all() for each in vectors)
        assert all([await again.followed.records.has_vectors(KEY, name) for name in names])
    fields = {field for chunk in chunks for field in await redis.hkeys(chunk)}
    kept = {field for field in fields if field.startswith((b"examples:", b"vectors:"))}
    assert kept == {b"examples:two", b"examples:three", b"vectors:two", b"vectors:three"}


async def test_a_chunk_that_lost_its_vectors_of_examples_does_not_have_all(
    start: StartReplica, redis: Redis
) -> None:
    one = await with_pool(start, HOURS, BYE)
    (chunk,) = [key async for key in redis.scan_iter(pool_key("n", "p", "chunk:*"))]
    name = chunk.decode().rpartition(":")[2]
    assert await one.followed.records.has_vectors(KEY, name)
    await redis.hset(chunk, "examples:other", b"")
    await redis.hdel(chunk, "examples:tiny")
    assert await one.followed.records.has_vectors(KEY, name) is False
    two = await start(ready=True)
    assert sorted(two.encoder.utterances) == sorted(HOURS.examples)
    assert two.encoder.candidates == []


async def test_a_pool_without_examples_is_stored_as_before(
    start: StartReplica, redis: Redis
) -> None:
    await with_pool(start, "One.", "Two.")
    (chunk,) = [key async for key in redis.scan_iter(_type="hash") if b"chunk" in key]
    assert set(await redis.hkeys(chunk)) == {b"candidates", b"vectors:tiny"}
    rows = json.loads(zlib.decompress(await redis.hget(chunk, "candidates") or b""))
    assert [[text, metadata] for _, text, metadata in rows] == [["One.", {}], ["Two.", {}]]
    (entry,) = await redis.lrange(pool_key("n", "p", "log"), 0, -1)
    assert json.loads(entry).keys() == {"stamp", "chunks", "count", "removed"}
    assert not (await start(ready=True)).view().has_examples


async def test_a_fold_keeps_the_vectors_of_examples(
    start: StartReplica, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", 2)
    one = await with_pool(start, HOURS)
    await one.upsert(BYE)
    await one.upsert(PAY)

    async def is_folded() -> bool:
        return await redis.llen(pool_key("n", "p", "log")) == 1

    await until(is_folded)
    two = await start(ready=True)
    assert two.encoder.utterances == []
    assert await find(two, "Opening times?") == await find(one, "Opening times?")


async def test_many_examples_of_few_candidates_get_an_approximate_index_that_is_saved(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [
        Candidate.of(f"Reply {n}.", str(n), examples=[f"Question {n}-{m}?" for m in range(3)])
        for n in range(400)
    ]
    one = await with_pool(start, *many, exact_limit=1000, data="kept")
    await until(lambda: one.info().index == "ivf")
    info = one.info()
    assert (info.exact, (info.recall_at_10 or 0) > 0.9) == (False, True)
    await one.pools.remove("n", "p", "8")
    monkeypatch.setattr(ivf, "train_lists", None)
    two = await start(exact_limit=1000, data="kept", ready=True)
    assert two.info().index == "ivf"
    for replica in (one, two):
        assert (await find(replica, "Question 7-2?"))[0] == ("7", "Question 7-2?")
        assert (await find(replica, "Question 8-1?"))[0][0] != "8"

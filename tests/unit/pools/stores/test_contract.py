"""What a candidate store promises to pools, and each engine has to keep."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from secrets import token_hex
from typing import Any

import numpy as np
import pytest

from tests.support import qdrant
from tests.support.waiting import PATIENCE, until
from tests.unit.pools.conftest import unit_vectors
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate, Filter
from turnwise.service.pools.candidate import Learned
from turnwise.service.pools.stores import CandidateStore, connect_store, milvus
from turnwise.service.pools.stores.rows import name_examples
from turnwise.service.wire.fields import StoreName

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:.*(local|Local).*Qdrant.*|Local mode:UserWarning"),
]

METADATA: list[dict[str, Any]] = [
    {},
    {"topic": "hotel", "price": 10},
    {"topic": "taxi", "price": 20.5},
    {"topic": ["hotel", "bus"], "price": [5, 100]},
    {"price": [1, 2, 3, 4, 5, 60]},
    {"price": "10"},
    {"price": 10**400},
    {"price": True},
    {"flag": True},
    {"flag": 1},
    {"flag": 1.0},
    {"note": None},
    {"note": []},
    {"place": {"city": "Rome", "near": [{"name": "station", "km": 1}, {"name": "port", "km": 9}]}},
    {"place": {}},
    {"place.city": "Rome"},
    {"topic": 'say "no" \\ ünd\n'},
    {"from": "2026-03-01"},
    {"long": "x" * 500},
    {"list": [1, {"x": None}], "big": 2**70},
]
WHERES: list[dict[str, Any]] = [
    {"topic": "hotel"},
    {"topic": {"in": ["bus", "taxi", 7]}},
    {"topic": {"not": "hotel"}},
    {"topic": 'say "no" \\ ünd\n'},
    {"price": {"gte": 10}},
    {"price": {"gt": 5, "lt": 50}},
    {"price": {"gte": "1"}},
    {"price": {"lte": 10.0}},
    {"none": [{"price": {"gt": 5, "lt": 50}}]},
    {"none": [{"price": {"gt": 50}}, {"topic": "taxi"}]},
    {"flag": True},
    {"flag": 1},
    {"note": None},
    {"note": {"exists": True}},
    {"place": {"exists": True}},
    {"place": {"exists": False}},
    {"place.city": "Rome"},
    {"place.near.km": {"gt": 5, "lt": 10}},
    {"place.near.km": {"gt": 1, "lt": 9}},
    {"from": {"gte": "2026-01-01", "lt": "2027"}},
    {"none": [{"from": {"gte": "2026-01-01"}}]},
    {"long": "x" * 500},
    {"any": [{"topic": "taxi"}, {"all": [{"price": {"lt": 50}}, {"topic": "hotel"}]}]},
]
D = 16
CANDIDATES = [
    Candidate.of(
        f"Réponse {n}.",
        f"c{n:02}",
        metadata,
        examples=["Why?", "How?"][: n % 3],
        group=f"g{n}" if n % 2 else None,
        learned=[Learned("said", 1764250000.5, "s-1")] * (n % 2),
        body="# Body" if n % 4 else None,
    )
    for n, metadata in enumerate(METADATA)
]
VECTORS = unit_vectors(len(CANDIDATES), D).astype(np.float16)
QUERY = unit_vectors(1, D, seed=1)[0]
Connect = Callable[[], AbstractAsyncContextManager[CandidateStore]]


@pytest.fixture(scope="module", params=["milvus", "qdrant"])
def engine(request: pytest.FixtureRequest) -> StoreName:
    name: StoreName = request.param
    return name


@pytest.fixture(scope="module")
def connect(engine: StoreName, request: pytest.FixtureRequest) -> Connect:
    """Connects to the same data again, as each test has a loop of its own."""
    if engine == "qdrant":
        store = qdrant.make_store()
        return lambda: nullcontext(store)
    url = request.getfixturevalue("milvus_server").url

    @asynccontextmanager
    async def connect() -> AsyncIterator[CandidateStore]:
        store = connect_store(url, Metrics())
        yield store
        await store.close()

    return connect


@pytest.fixture(scope="module")
def collection(connect: Connect) -> Iterator[str]:
    """A collection with the candidates, which the tests share: to make one takes seconds."""
    name = f"turnwise_{token_hex(6)}"

    async def fill() -> None:
        async with connect() as store:
            await store.create(name, D)
            await store.upsert(name, CANDIDATES, VECTORS)

    async def drop() -> None:
        async with connect() as store:
            await store.drop(name)
            assert not {name, name_examples(name)} & {*await store.collections()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(milvus, "SECONDS", PATIENCE)
        asyncio.run(fill())
        yield name
        asyncio.run(drop())


@pytest.fixture
async def store(connect: Connect) -> AsyncIterator[CandidateStore]:
    async with connect() as store:
        yield store


async def ids_of(store: CandidateStore, collection: str) -> list[str]:
    return sorted([row.candidate.id async for batch in store.scan(collection) for row in batch])


async def test_candidates_and_vectors_come_back_as_they_were(
    store: CandidateStore, collection: str
) -> None:
    scanned = [row async for batch in store.scan(collection) for row in batch]
    fetched = await store.fetch(collection, [*(each.id for each in CANDIDATES), "nowhere"])
    for rows in (scanned, list(fetched.values())):
        found = {row.candidate.id: row for row in rows}
        assert [found[each.id].candidate for each in CANDIDATES] == CANDIDATES
        vectors = [found[each.id].vector for each in CANDIDATES]
        np.testing.assert_allclose(vectors, VECTORS, atol=2e-3)
    assert await store.count(collection) == len(CANDIDATES)


async def test_an_edit_is_read_at_once(store: CandidateStore, collection: str) -> None:
    before = await ids_of(store, collection)
    made = [Candidate.of("New.", "new"), Candidate.of("Newer.", "c00")]
    await store.upsert(collection, made, VECTORS[:2])
    assert await ids_of(store, collection) == [*before, "new"]
    assert (await store.fetch(collection, ["c00"]))["c00"].candidate == made[1]
    await store.remove(collection, ["new", "nowhere"])
    await store.remove(collection, [])
    await store.upsert(collection, CANDIDATES[:1], VECTORS[:1])
    assert await ids_of(store, collection) == before


async def test_a_search_finds_the_largest_inner_products_for_which_a_condition_holds(
    store: CandidateStore, collection: str
) -> None:
    async def search(k: int, where: dict[str, Any] | None = None) -> set[str]:
        condition = Filter.checked(where).condition if where else None
        rows = await store.search(collection, QUERY, k, 64, condition)
        return {row.candidate.id for row in rows}

    async def shows_all() -> bool:
        return await search(100) == {each.id for each in CANDIDATES}

    await until(shows_all)
    best = np.argsort(-(VECTORS.astype(np.float64) @ QUERY))[:5]
    assert await search(5) >= {CANDIDATES[index].id for index in best}
    found_too_much = 0
    for where in WHERES:
        wanted = {each.id for each in CANDIDATES if Filter.checked(where).accepts(each)}
        found = await search(100, where)
        assert found >= wanted, where
        found_too_much += len(found - wanted)
    assert found_too_much < len(WHERES)


async def test_pages_list_each_candidate_once(store: CandidateStore, collection: str) -> None:
    for where in ({"id": {"exists": False}}, {"price": {"exists": True}}):
        checked = Filter.checked(where)
        wanted = [each.id for each in CANDIDATES if checked.accepts(each)]
        listed: list[str] = []
        after = ""
        while page := await store.list_after(collection, after, 6, checked.condition):
            listed += [each.id for each in page]
            after = page[-1].id
        assert sorted(listed) == wanted
        assert await store.count(collection, checked.condition) == len(wanted)

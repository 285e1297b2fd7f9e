"""Pools in a candidate store, or in memory: what tests of both need.

A test names its engines by a mark (`any_store`, `any_engine`). Then `start_with`
starts replicas with the engine, `filled` starts one with a pool of some candidates, and `left`
returns the collections that the test has left in the engine.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, get_args

import numpy as np
import pytest

from tests.support import qdrant
from tests.support.milvus import MilvusServer
from tests.support.waiting import PATIENCE
from tests.unit.pools.conftest import Replica, StartReplica
from turnwise.models.arrays import Float32
from turnwise.service.errors import StoreUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate, Filter
from turnwise.service.pools.stores import CandidateStore, connect_store, milvus, remote
from turnwise.service.pools.stores.rows import name_examples
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import PoolRequest

StartWith = Callable[..., Awaitable[Replica]]
Fill = Callable[..., Awaitable[Replica]]
Left = Callable[[CandidateStore], Awaitable[set[str]]]


@pytest.fixture
def connected(
    engine: StoreName, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], CandidateStore | None]:
    """Returns the store of a replica; those of Qdrant share the client, which holds the data."""
    if engine == "local":
        return lambda: None
    if engine == "qdrant":
        client = qdrant.in_memory()
        return lambda: qdrant.make_store(client)
    monkeypatch.setattr(remote, "LAG_SECONDS", 1.0)
    server: MilvusServer = request.getfixturevalue("milvus_server")
    return lambda: connect_store(server.url, Metrics())


@pytest.fixture
def made() -> list[str]:
    """The names of all collections that the test has made; other tests use the same Milvus."""
    return []


@pytest.fixture
def left(made: list[str]) -> Left:
    """Returns the collections of the test that are still there."""

    async def left(store: CandidateStore) -> set[str]:
        names = [name for each in made for name in (each, name_examples(each))]
        return {*await store.collections()} & {*names}

    return left


@pytest.fixture
async def start_with(
    start: StartReplica, connected: Callable[[], CandidateStore | None], made: list[str]
) -> AsyncIterator[StartWith]:
    """Starts replicas with the engine of the test, and removes what they made in it."""
    stores: list[CandidateStore] = []

    async def start_with(**given: Any) -> Replica:
        store = connected()
        if store:
            stores.append(store)
            create = store.create

            async def recorded(collection: str, dimension: int) -> None:
                made.append(collection)
                await create(collection, dimension)

            store.create = recorded  # type: ignore[method-assign]
        return await start(store=store, **given)

    yield start_with
    for collection in made:
        with suppress(StoreUnavailable):
            await stores[0].drop(collection)
    for store in stores:
        await store.close()


@pytest.fixture(autouse=True)
def times_of_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pool's former collection go at once, and let Milvus answer as late as it must."""
    monkeypatch.setattr(remote, "LAG_SECONDS", 0.0)
    monkeypatch.setattr(milvus, "SECONDS", PATIENCE)


@pytest.fixture
def filled(start_with: StartWith, engine: StoreName) -> Fill:
    """Starts a replica whose pool is in the engine of the test, and has these candidates."""

    async def filled(*candidates: Candidate | str) -> Replica:
        replica = await start_with()
        await replica.pools.create("n", "p", PoolRequest(store=engine))
        await replica.upsert(*candidates)
        return replica

    return filled


async def searched(
    replica: Replica, query: Float32, k: int, where: Filter | None = None
) -> list[str]:
    """Return the ids of the best candidates."""
    view = await replica.pools.view("n", "p")
    return [hit.candidate.id for hit in await view.search(query, k, where)]


async def contents(replica: Replica) -> dict[str, Candidate]:
    scanned = replica.view().scan()
    return {each.id: each async for batch in scanned for each in batch.candidates}


def query_of(replica: Replica, seed: int = 0) -> Float32:
    query = np.random.default_rng(seed).standard_normal(replica.encoder.dimension)
    return query.astype(np.float32)


# Rules of pools, for which Milvus takes seconds each: `test_contract.py` tests its own code.
SLOW = pytest.param("milvus", marks=pytest.mark.nightly)
any_store = pytest.mark.parametrize("engine", ["local", "qdrant", SLOW])
any_engine = pytest.mark.parametrize("engine", ["qdrant", SLOW])


async def start_two(start_with: StartWith) -> tuple[Replica, Replica]:
    """Return two replicas, and a pool in memory that the first one made, with one candidate."""
    one = await start_with()
    two = await start_with()
    await one.create()
    await one.upsert("One.")
    return one, two


async def finds(replica: Replica, query: Float32, count: int) -> bool:
    """Whether a search finds so many candidates: an engine shows edits after a while."""
    return len(await searched(replica, query, 100)) == count


def both(collection: str) -> set[str]:
    """The names of a collection and of that of its examples."""
    return {collection, name_examples(collection)}


def store_of(replica: Replica) -> CandidateStore:
    (store,) = filter(None, map(replica.followed.opener.find_engine, get_args(StoreName)))
    return store

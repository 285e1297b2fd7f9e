"""Replicas that create, edit, move and delete pools at random do what dictionaries say."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from types import SimpleNamespace

import pytest
from redis.asyncio import Redis

from tests.support.waiting import until
from tests.unit.pools.conftest import Replica
from tests.unit.pools.stores.conftest import Left, StartWith, both, store_of
from turnwise.service.errors import CandidateNotFound, Conflict, InvalidRequest, PoolNotFound
from turnwise.service.pools import Candidate, PoolKey, PoolView, following
from turnwise.service.pools.memory import upkeep
from turnwise.service.pools.stores.remote_view import RemoteView
from turnwise.service.redis.connection import connect
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import PoolRequest

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:.*(local|Local).*Qdrant.*|Local mode:UserWarning"),
]

POOLS = "pqr"
ALIASES = "st"
NAMES = POOLS + ALIASES
"""The names: mostly of pools or mostly of aliases."""
IDS = "1234"
STEPS = 120
USUAL = 0.5
LOSSES = {40, 80}
"""The steps at which Redis loses its data."""

Contents = dict[str, Candidate]
Step = Callable[[Replica, str], Awaitable[None]]


class World:
    """What two replicas do, each step at one of them, and dictionaries that say what follows."""

    def __init__(self, start: StartWith, redis: Redis, engine: StoreName, seed: int) -> None:
        self.start = start
        self.redis = redis
        self.engine = engine
        self.random = Random(seed)  # noqa: S311
        self.replicas: list[Replica] = []
        self.pools: dict[str, SimpleNamespace] = {}
        self.aliases: dict[str, str] = {}
        self.missing: set[str] = set()
        self.versions: list[tuple[str, int, Contents]] = []
        """The name, the number and the contents of each version that a replica may have."""
        self.steps: list[str] = []

    async def run(self) -> None:
        self.replicas = [await self.start(), await self.start()]
        edits: list[Step] = [self.upsert, self.upsert, self.upsert_at_both, self.remove, self.move]
        aliases: list[Step] = [self.point, self.point, self.point, self.unpoint]
        others: list[Step] = [self.create, self.create, self.drop, self.view, self.view]
        others += [self.poll, self.poll, self.restart]
        for number in range(STEPS):
            step = self.random.choice([*edits, *aliases, *others])
            if number in LOSSES and self.engine == "local":
                step = self.lose
            replica = self.random.choice(self.replicas)
            usual = POOLS if step == self.create else ALIASES if step in aliases else NAMES
            name = self.choose(usual)
            self.steps.append(f"{step.__name__} {name} at {self.replicas.index(replica)}")
            await step(replica, name)
        await self.poll_both()

    async def create(self, replica: Replica, name: str) -> None:
        key = self.aliases.get(name, name)
        was_missing = key in self.missing
        self.missing.discard(key)
        if key not in self.pools:
            store = self.random.choice(["local", self.engine])
            self.pools[key] = SimpleNamespace(store=store, contents={}, version=0)
        pool = self.pools[key]
        pool.description = self.random.choice(["", "old", "new"])
        self.note(key)
        request = PoolRequest(description=pool.description, store=pool.store)
        info = await replica.pools.create("n", name, request)
        assert (info.name, info.description, info.store) == (key, pool.description, pool.store)
        assert (info.version, info.size) == (pool.version, len(pool.contents))
        if was_missing:
            await expect(PoolNotFound, f"no alias '{key}'", replica.pools.unpoint("n", key))

    async def upsert(self, replica: Replica, name: str) -> None:
        drawn = self.draw(IDS)
        edit = replica.pools.upsert("n", name, [*drawn.values()])
        if pool := await self.find(name, edit):
            changed = count_changes(pool.contents, drawn)
            self.edit(name, pool.contents | drawn)
            edited = await edit
            assert (edited.version, edited.size) == (pool.version, len(pool.contents))
            assert (edited.upserted, edited.unchanged) == (changed, len(drawn) - changed)
            await self.check(replica, name)

    async def upsert_at_both(self, _: Replica, name: str) -> None:
        """Let the replicas edit different candidates at once; either may be first."""
        key = self.aliases.get(name, name)
        if key not in self.pools:
            return
        pool = self.pools[key]
        before = pool.contents
        parts = [self.draw(IDS[:2]), self.draw(IDS[2:])]
        self.versions += [(key, pool.version + 1, before | part) for part in parts]
        for part in parts:
            self.edit(name, pool.contents | part)
        work = zip(self.replicas, parts, strict=True)
        edits = [replica.pools.upsert("n", name, [*part.values()]) for replica, part in work]
        edited = await asyncio.gather(*edits)
        assert [each.upserted for each in edited] == [count_changes(before, part) for part in parts]
        assert max(each.version for each in edited) == pool.version

    async def remove(self, replica: Replica, name: str) -> None:
        ids = self.draw(IDS).keys()
        edit = replica.pools.remove_many("n", name, ids)
        if pool := await self.find(name, edit):
            missing = len(ids - pool.contents.keys())
            self.edit(name, {id: each for id, each in pool.contents.items() if id not in ids})
            removed = await edit
            assert (removed.version, removed.size) == (pool.version, len(pool.contents))
            assert (removed.removed, removed.missing) == (len(ids) - missing, missing)
            await self.check(replica, name)
            vectors = (await replica.pools.view("n", name)).vectors([*ids])
            await expect(CandidateNotFound, "has no candidate", vectors)

    async def move(self, replica: Replica, name: str) -> None:
        if self.engine == "local":
            return
        move = replica.pools.move("n", name, self.engine)
        if pool := await self.find(name, move):
            if pool.store == "local":
                pool.store = self.engine
                pool.version += 1
            info = await move
            assert (info.store, info.version) == (pool.store, pool.version)
            await self.check(replica, name)

    async def drop(self, replica: Replica, name: str) -> None:
        drop = replica.pools.drop("n", name)
        if name in self.aliases:
            await expect(Conflict, f"is an alias of pool '{self.aliases[name]}'", drop)
        elif name in self.aliases.values():
            await expect(Conflict, f"points at pool '{name}'", drop)
        elif name in {*self.pools, *self.missing}:
            self.pools.pop(name, None)
            self.missing.discard(name)
            await drop
            await expect(PoolNotFound, f"no pool '{name}'", replica.pools.view("n", name))
        else:
            await expect(PoolNotFound, f"no pool '{name}'", drop)

    async def point(self, replica: Replica, name: str) -> None:
        """Create or move an alias, perhaps only if it points at a certain pool."""
        to = self.choose(POOLS)
        expected = self.random.choice([None, "p"])
        point = replica.pools.point("n", name, to, expected)
        if to in self.aliases:
            await expect(InvalidRequest, f"name its pool, '{self.aliases[to]}'", point)
        elif to not in self.pools:
            await expect(PoolNotFound, f"no pool '{to}'", point)
        elif name in self.pools:
            await expect(Conflict, f"'{name}' is a pool", point)
        elif expected and self.aliases.get(name) not in {expected, to}:
            await expect(Conflict, f"does not point at pool '{expected}'", point)
        else:
            self.aliases[name] = to
            self.missing.discard(name)
            await point
            assert (await replica.pools.view("n", name)).name == to

    async def unpoint(self, replica: Replica, name: str) -> None:
        unpoint = replica.pools.unpoint("n", name)
        if name in self.aliases or (name in self.missing and name not in self.pools):
            self.aliases.pop(name, None)
            self.missing.discard(name)
            await unpoint
            await expect(PoolNotFound, f"no pool '{name}'", replica.pools.view("n", name))
        else:
            await expect(PoolNotFound, f"no alias '{name}'", unpoint)

    async def view(self, replica: Replica, name: str) -> None:
        """Read a pool. A replica may have an earlier version of it until it polls."""
        try:
            view = await replica.pools.view("n", name)
        except PoolNotFound:
            assert name not in {*self.pools, *self.aliases}
            return
        if not isinstance(view, RemoteView):
            assert (view.name, view.version, await read(view)) in self.versions

    async def restart(self, replica: Replica, _: str) -> None:
        await replica.close()
        later = await self.start(ready=True)
        self.replicas[self.replicas.index(replica)] = later
        assert later.encoder.candidates == []

    async def lose(self, *_: object) -> None:
        """Let Redis lose its data, which both replicas have seen."""
        await self.poll_both()
        await self.redis.flushall()
        self.missing |= self.pools.keys() | self.aliases.keys()
        self.pools.clear()
        self.aliases.clear()
        await self.poll_both()

    async def poll_both(self) -> None:
        for replica in self.replicas:
            await self.poll(replica)

    async def poll(self, replica: Replica, *_: object) -> None:
        """Let a replica see what has changed, and compare all that it says."""
        await replica.follower.poll()
        pools = replica.followed.in_memory
        await until(lambda: all(p.revision == p.newest and not p.is_busy for p in pools.values()))
        infos = {
            each.name: (each.version, each.size, each.description, each.store, each.aliases)
            for each in await replica.pools.list("n")
        }
        of = {name: sorted(a for a, to in self.aliases.items() if to == name) for name in NAMES}
        assert infos == {
            name: (pool.version, len(pool.contents), pool.description, pool.store, of[name])
            for name, pool in self.pools.items()
        }
        aliases = {key_of(alias): key_of(to) for alias, to in self.aliases.items()}
        listed = await replica.followed.directory.names_and_aliases()
        assert listed == ({key_of(name) for name in self.pools}, aliases)
        assert {key.name for key in replica.followed.missing.names} == self.missing
        assert replica.metric("turnwise_missing_pools") == len(self.missing)
        for name in self.missing:
            await expect(PoolNotFound, "Redis lost it", replica.pools.view("n", name))
        for name in NAMES:
            key = key_of(name)
            assert replica.followed.resolve(key).name == self.aliases.get(name, name)
            if key in pools:
                pool = self.pools[name]
                assert replica.gauges(name) == [len(pool.contents), pool.version]
                await self.check(replica, name)
            else:
                assert replica.gauges(name) == [None, None]

    async def check(self, replica: Replica, name: str) -> None:
        """Check that a replica has the newest version of a pool, as it has after its own edits."""
        key = self.aliases.get(name, name)
        view = await replica.pools.view("n", name)
        assert (view.name, view.version) == (key, self.pools[key].version)
        assert await read(view) == self.pools[key].contents

    async def find(self, name: str, edit: Awaitable[object]) -> SimpleNamespace | None:
        """Return the pool of a name; if there is none, check that the edit says so."""
        pool = self.pools.get(self.aliases.get(name, name))
        if pool is None:
            await expect(PoolNotFound, f"no pool '{name}'", edit)
        return pool

    def choose(self, usual: str) -> str:
        """Return one of the usual names, and sometimes another one."""
        return self.random.choice(usual if self.random.random() < USUAL else NAMES)

    def draw(self, ids: str) -> Contents:
        def draw_one(id: str) -> Candidate:
            metadata = self.random.choice([None, {"n": 1}, {"n": 1.5}])
            return Candidate.of(self.random.choice(["One.", "Two."]), id, metadata)

        return {
            id: draw_one(id) for id in self.random.sample(ids, self.random.randint(1, len(ids)))
        }

    def edit(self, name: str, contents: Contents) -> None:
        """Expect other contents of a pool, in a new version unless they are the same."""
        key = self.aliases.get(name, name)
        pool = self.pools[key]
        if contents != pool.contents:
            pool.contents = contents
            pool.version += 1
            self.note(key)

    def note(self, key: str) -> None:
        self.versions.append((key, self.pools[key].version, self.pools[key].contents))


def key_of(name: str) -> PoolKey:
    return PoolKey("n", name)


def count_changes(before: Contents, drawn: Contents) -> int:
    return sum(before.get(id) != candidate for id, candidate in drawn.items())


async def expect(error: type[Exception], message: str, work: Awaitable[object]) -> None:
    with pytest.raises(error, match=message):
        await work


async def read(view: PoolView) -> Contents:
    return {each.id: each async for batch in view.scan() for each in batch.candidates}


@pytest.fixture(autouse=True)
def polls_by_hand_and_early_folds(
    start_with: StartWith,  # noqa: ARG001 - sets a shorter time
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", 1)


MILVUS = pytest.param("milvus", False, marks=pytest.mark.nightly)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("engine", "cluster"), [("local", False), ("local", True), ("qdrant", False), MILVUS]
)
async def test_replicas_do_what_dictionaries_say(
    start_with: StartWith,
    request: pytest.FixtureRequest,
    engine: StoreName,
    cluster: bool,
    seed: int,
) -> None:
    left: Left = request.getfixturevalue("left")
    url = request.getfixturevalue("cluster_url" if cluster else "redis_url")
    async with connect(url, cluster=cluster, timeout=5.0) as redis:
        world = World(partial(start_with, url=url, cluster=cluster), redis, engine, seed)
        try:
            await world.run()
        except BaseException as error:
            error.add_note("\n".join(world.steps))
            raise
        pools = world.replicas[0].pools
        views = [await pools.view("n", name) for name in world.pools]
        collections = [view.collection.name for view in views if isinstance(view, RemoteView)]
        if engine != "local":
            kept = await left(store_of(world.replicas[0]))
            assert kept == set[str]().union(*map(both, collections))
        for alias in world.aliases:
            await pools.unpoint("n", alias)
        for name in {*world.pools, *world.missing}:
            await pools.drop("n", name)
        stays = {key async for key in redis.scan_iter() if await redis.ttl(key) < 0}
        assert stays <= {b"tw:born", b"tw:changes:{tw:born}", b"tw:in-use:{tw:born}"}

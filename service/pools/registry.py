"""All pools, as this replica has them."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

from turnwise.service.errors import (
    CandidateNotFound,
    Conflict,
    InvalidRequest,
    PoolNotFound,
    PoolNotReady,
    StateUnavailable,
)
from turnwise.service.observe.metrics import Metrics, PoolState
from turnwise.service.pools.background import Background, Work, quietly
from turnwise.service.pools.candidate import Candidate, distinct
from turnwise.service.pools.contents import Contents
from turnwise.service.pools.encoding import PoolEncoder, Progress
from turnwise.service.pools.live import LivePool, Means
from turnwise.service.pools.log import Head, PoolKey
from turnwise.service.pools.snapshot import Snapshot
from turnwise.service.pools.store import PoolStore
from turnwise.service.pools.upkeep import build_index, fold, log_is_long, needs_index
from turnwise.service.pools.view import PoolView
from turnwise.service.pools.workers import Workers
from turnwise.service.state.redis import Redis
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import Edited, PoolInfo

POLL_SECONDS = 0.5

_log = logging.getLogger("turnwise.pools")


class Pools:
    """Follows every pool of Redis. Searching goes on from memory where Redis is away."""

    def __init__(
        self,
        redis: Redis,
        encoders: Mapping[EncoderName, PoolEncoder],
        metrics: Metrics,
        *,
        exact_limit: int,
        search_threads: int,
        max_pool_size: int,
    ) -> None:
        """Take what pools are made with.

        Args:
            redis: Where their logs are.
            encoders: Encode candidates, each those of the pools that name it. There is a default.
            metrics: Gets sizes and versions.
            exact_limit: Candidates up to which search is exact.
            search_threads: Threads that search one pool side by side.
            max_pool_size: Candidates of a pool.
        """
        self._metrics = metrics
        self._exact_limit, self._max_size = exact_limit, max_pool_size
        self._means = {
            name: Means(name, encoder, PoolStore(redis, metrics, fingerprint=encoder.fingerprint))
            for name, encoder in encoders.items()
        }
        self._store = self._means["default"].store
        self._lacking: set[PoolKey] = set()
        self._workers = Workers(search_threads)
        self._pools: dict[PoolKey, LivePool] = {}
        self._at_start: list[LivePool] | None = None
        self._background = Background()
        self._born: str | None = None
        self._fill: Work | None = None
        self._filled = True
        for state in get_args(PoolState):
            metrics.pools.labels(state).set_function(partial(self._count, state))

    async def start(self) -> None:
        """Find the pools, and begin to read them; where Redis is away, later."""
        await quietly(self._poll)
        self._background.begin("poll", self._poll_forever)

    async def keep_filled(self, fill: Work) -> None:
        """Do what fills a pool that has to be there: now, and whenever Redis lost its data."""
        self._fill, self._filled = fill, False
        try:
            await self._refill()
        except StateUnavailable as error:
            _log.warning("pools: %s", error)

    async def close(self) -> None:
        """Stop following."""
        await self._background.close()
        self._workers.close()

    @property
    def ready(self) -> bool:
        """Whether every pool that was there at the start is loaded, or cannot be."""
        return (
            self._filled
            and self._at_start is not None
            and all(
                pool.state in {"ready", "damaged"}
                for pool in self._at_start
                if self._pools.get(pool.key) is pool  # else it was removed meanwhile
            )
        )

    def view(self, namespace: str, name: str) -> PoolView:
        """Return the version of a pool that is here now.

        Raises:
            PoolNotFound: There is no such pool.
            PoolNotReady: It is not here yet.
            StateUnavailable: No pool is known, since Redis is away.
        """
        return self._pool(namespace, name).view()

    def info(self, namespace: str, name: str) -> PoolInfo:
        """Return what is known of a pool.

        Raises:
            PoolNotFound: There is no such pool.
            PoolNotReady: This replica lacks its encoder.
            StateUnavailable: No pool is known, since Redis is away.
        """
        return self._pool(namespace, name).info()

    async def find(self, namespace: str, name: str) -> PoolInfo:
        """Return what is known of a pool; one that another replica has just created is read first.

        Raises:
            PoolNotFound: There is no such pool.
            PoolNotReady: This replica lacks its encoder.
            ServiceError: What Redis and the encoder raise.
        """
        return (await self._found(namespace, name)).info()

    def list(self, namespace: str) -> list[PoolInfo]:
        """Return what is known of the pools of a namespace, by name.

        Raises:
            StateUnavailable: No pool is known, since Redis is away.
        """
        if not self._pools:
            self._check_known()
        return [
            pool.info() for key, pool in sorted(self._pools.items()) if key.namespace == namespace
        ]

    async def load(self, namespace: str, name: str) -> None:
        """Read one pool, and wait for it: for who works on one and follows none.

        Raises:
            PoolNotFound: There is no such pool.
            ServiceError: What Redis and the encoder raise.
        """
        key = PoolKey(namespace, name)
        try:
            (head,) = await self._store.heads([key])
            if head is None:
                raise _not_found(name)
            if pool := self._known(key, head.retrieval):
                await pool.refresh()
        except PoolNotFound:
            self._forget(key)
            raise

    async def create(
        self, namespace: str, name: str, description: str, retrieval: EncoderName | None = None
    ) -> PoolInfo:
        """Create an empty pool; where there is one of this name, describe it anew.

        Args:
            namespace: Whose pool.
            name: Of the pool.
            description: For people.
            retrieval: What it is encoded with: where left out, the default, or what it has.

        Raises:
            Conflict: There is one that is encoded with something else.
            InvalidRequest: This service has no such encoder.
            StateUnavailable: Redis is away.
        """
        if retrieval and retrieval not in self._means:
            raise InvalidRequest.field(_lacks(retrieval), "encoder")
        key = PoolKey(namespace, name)
        found = await self._store.create(key, description, retrieval)
        if retrieval not in {None, found}:
            raise Conflict(f"pool '{name}' is there, with the encoder '{found}'")
        pool = self._known(key, found) or self._pool(namespace, name)
        if pool.state == "ready" or not pool.busy:  # else it is being read, which takes long
            await pool.refresh()
        return pool.info()

    async def upsert(
        self,
        namespace: str,
        name: str,
        candidates: Sequence[Candidate],
        progress: Progress | None = None,
    ) -> Edited:
        """Add candidates, or replace those of the same ids: all in one new version, or none.

        Raises:
            InvalidRequest: Two that differ share an id.
            PoolFull: The pool would be larger than the limit.
            PoolNotFound: There is no such pool.
            PoolNotReady: It is not here yet.
            ServiceError: What Redis and the encoder raise.
        """
        pool = await self._found(namespace, name)
        wanted = await asyncio.to_thread(distinct, candidates)

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            return _changed(contents, wanted), []

        edited = await pool.edit(plan, {}, progress)
        return replace(edited, unchanged=len(wanted) - edited.upserted)

    async def remove(self, namespace: str, name: str, id: str) -> Edited:  # noqa: A002
        """Remove a candidate.

        Raises:
            CandidateNotFound: There is none of this id.
            PoolNotFound: There is no such pool.
            PoolNotReady: It is not here yet.
            StateUnavailable: Redis is away.
        """

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            if id not in contents:
                raise CandidateNotFound(f"pool '{name}' has no candidate '{id}'")
            return [], [id]

        return await (await self._found(namespace, name)).edit(plan, {})

    async def restore(
        self, namespace: str, name: str, snapshot: Snapshot, progress: Progress | None = None
    ) -> Edited:
        """Make a pool's candidates those of a snapshot, in one new version.

        Texts are encoded again where the snapshot's vectors are another model's.

        Raises:
            ServiceError: As `upsert`.
        """
        wanted = {candidate.id: candidate for candidate in snapshot.candidates}

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            gone = [c.id for c in contents.candidates() if c.id not in wanted]
            return _changed(contents, list(wanted.values())), gone

        pool = await self._found(namespace, name)
        vectors = snapshot.vectors_of(pool.encoder.fingerprint, pool.encoder.dimension)
        edited = await pool.edit(plan, vectors, progress)
        return replace(edited, unchanged=len(wanted) - edited.upserted)

    async def drop(self, namespace: str, name: str) -> None:
        """Remove a pool.

        Raises:
            PoolNotFound: There is no such pool.
            StateUnavailable: Redis is away.
        """
        key = PoolKey(namespace, name)
        while log := await self._store.read(key):
            if await self._store.drop(key, log) != "conflict":
                return self._forget(key)
        self._forget(key)
        raise _not_found(name)

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await quietly(self._poll)

    async def _poll(self) -> None:
        """Compare with Redis, and begin what has to be done: one slow pool keeps up no other."""
        await self._see_whether_all_is_lost()
        known = dict(self._pools)  # of a pool that is created from here on, the names may lack it
        names = await self._store.names()
        keys = sorted(names)
        for key, head in zip(keys, await self._store.heads(keys), strict=True):
            if head is None:
                await self._store.forget(key, names[key])
                self._forget_gone(key, known)
            elif (pool := self._known(key, head.retrieval)) and not pool.busy:
                self._background.begin(("read", key), partial(self._follow, pool, head))
        for key in known.keys() - names.keys():
            self._forget_gone(key, known)
        if self._at_start is None:
            self._at_start = list(self._pools.values())

    async def _see_whether_all_is_lost(self) -> None:
        born = await self._store.born()
        if self._born not in {None, born}:
            self._metrics.redis_losses.labels("database").inc()
            _log.error("Redis lost its data: %d pools, and all sessions", len(self._pools))
            self._filled = self._fill is None
        self._born = born
        if not self._filled:
            self._background.begin("fill", self._refill)

    async def _refill(self) -> None:
        if self._fill:
            await self._fill()
            self._filled = True

    def _count(self, state: PoolState) -> int:
        pools = self._pools.values()
        return sum(("behind" if pool.behind else pool.state) == state for pool in pools)

    async def _follow(self, pool: LivePool, head: Head) -> None:
        if not await pool.follow(head) or pool.forgotten:
            return
        if log_is_long(pool):
            self._background.begin(("fold", pool.key), partial(fold, pool, self._workers))
        if needs_index(pool, self._exact_limit):
            self._background.begin(("index", pool.key), partial(build_index, pool, self._workers))

    def _pool(self, namespace: str, name: str) -> LivePool:
        key = PoolKey(namespace, name)
        if key in self._lacking:
            raise PoolNotReady(f"pool '{name}' cannot be served: {_lacks('pairwise')}")
        if (pool := self._pools.get(key)) is None:
            self._check_known()
            raise _not_found(name)
        return pool

    async def _found(self, namespace: str, name: str) -> LivePool:
        if PoolKey(namespace, name) not in self._pools:
            await self.load(namespace, name)
        return self._pool(namespace, name)

    def _check_known(self) -> None:
        if self._at_start is None:
            raise StateUnavailable("what pools there are is not known yet: Redis is away")

    def _known(self, key: PoolKey, retrieval: EncoderName) -> LivePool | None:
        """Return a pool as it is made now; None where this replica lacks its encoder."""
        known, lacking = self._pools.get(key), key in self._lacking
        if known and known.retrieval == retrieval:
            return known
        self._forget(key)  # another pool of this name
        if (means := self._means.get(retrieval)) is None:
            if not lacking:
                _log.warning("pool %s cannot be served: %s", key.name, _lacks(retrieval))
            self._lacking.add(key)
            return None
        self._pools[key] = LivePool(
            key, means, self._workers, self._metrics,
            exact_limit=self._exact_limit, max_size=self._max_size,
        )  # fmt: skip
        return self._pools[key]

    def _forget_gone(self, key: PoolKey, known: Mapping[PoolKey, LivePool]) -> None:
        if self._pools.get(key) is known.get(key):  # else it was created anew meanwhile
            self._forget(key)

    def _forget(self, key: PoolKey) -> None:
        self._lacking.discard(key)
        if pool := self._pools.pop(key, None):
            pool.forgotten = True
            for gauge in (self._metrics.pool_candidates, self._metrics.pool_version):
                gauge.remove(*key)


def _lacks(retrieval: EncoderName) -> str:
    return f"this service has no encoder '{retrieval}': TURNWISE_PAIRWISE names its folder"


def _not_found(name: str) -> PoolNotFound:
    return PoolNotFound(f"there is no pool '{name}'")


def _changed(contents: Contents, wanted: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in wanted if contents.get(candidate.id) != candidate]

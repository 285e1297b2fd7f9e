"""All pools on this replica: their use cases, and following them in Redis."""

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
from turnwise.service.pools.candidate import Candidate, distinct
from turnwise.service.pools.contents import Contents
from turnwise.service.pools.encoding import PoolEncoder, Progress
from turnwise.service.pools.log import Head, PoolKey
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.snapshot import Snapshot
from turnwise.service.pools.store import PoolStore
from turnwise.service.pools.upkeep import build_index, fold, log_is_long, needs_index
from turnwise.service.pools.view import PoolView
from turnwise.service.pools.workers import Background, Work, Workers, log_errors
from turnwise.service.state.redis import Redis
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import Edited, PoolInfo

POLL_SECONDS = 0.5
FIRST_READ_SECONDS = 1.0
"""Seconds that a request waits for a pool that this replica has not read yet."""

_log = logging.getLogger("turnwise.pools")


class Pools:
    """Follows every pool in Redis; searches go on from memory while Redis is unavailable.

    Methods that name a pool raise PoolNotFound if it does not exist, and PoolNotReady if it has not
    been read yet or this replica lacks its encoder. Methods raise StateUnavailable if they need
    Redis and it is unavailable; those that are not async need it only until the first poll.
    """

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
        """Follow nothing yet.

        Args:
            redis: Connection to the Redis that holds the pools.
            encoders: Encoders by their names on the wire; `default` must be there.
            metrics: Gets the sizes and versions of pools.
            exact_limit: Number of candidates up to which search is exact.
            search_threads: Number of threads that search one pool in parallel.
            max_pool_size: Greatest number of candidates in a pool.
        """
        self._metrics = metrics
        self._exact_limit, self._max_size = exact_limit, max_pool_size
        self._backends = {
            name: Backend(name, encoder, PoolStore(redis, metrics, fingerprint=encoder.fingerprint))
            for name, encoder in encoders.items()
        }
        self._store = self._backends["default"].store
        self._without_encoder: set[PoolKey] = set()
        self._workers = Workers(search_threads)
        self._pools: dict[PoolKey, Pool] = {}
        self._at_start: list[Pool] | None = None
        self._background = Background()
        self._database_id: str | None = None
        self._fill: Work | None = None
        self._filled = True
        for state in get_args(PoolState):
            metrics.pools.labels(state).set_function(partial(self._count, state))

    async def start(self) -> None:
        """Find the pools and begin to read them; if Redis is unavailable, do so later."""
        await log_errors(self._poll)
        self._background.begin("poll", self._poll_forever)

    async def keep_filled(self, fill: Work) -> None:
        """Fill a pool that must exist: call `fill` now, and again whenever Redis lost its data."""
        self._fill, self._filled = fill, False
        try:
            await self._refill()
        except StateUnavailable as error:
            _log.warning("pools: %s", error)

    async def close(self) -> None:
        """Stop following the pools."""
        await self._background.close()
        self._workers.close()

    @property
    def ready(self) -> bool:
        """Whether every pool that existed at the start is read, or cannot be."""
        return (
            self._filled
            and self._at_start is not None
            and all(
                pool.state in {"ready", "damaged"}
                for pool in self._at_start
                if self._pools.get(pool.key) is pool  # else it was removed
            )
        )

    def view(self, namespace: str, name: str) -> PoolView:
        """Return the version of a pool that is here now."""
        return self._pool(namespace, name).view()

    async def found_view(self, namespace: str, name: str) -> PoolView:
        """Return the same, and first read a pool that another replica has just created.

        Raises:
            PoolNotFound: There is no such pool in Redis either.
            PoolNotReady: Reading takes longer than `FIRST_READ_SECONDS`; the next poll reads it.
        """
        try:
            async with asyncio.timeout(FIRST_READ_SECONDS):
                return (await self._found(namespace, name)).view()
        except TimeoutError:
            raise PoolNotReady(f"pool '{name}' is being read") from None

    def info(self, namespace: str, name: str) -> PoolInfo:
        """Return the description of a pool as clients get it."""
        return self._pool(namespace, name).info()

    async def find(self, namespace: str, name: str) -> PoolInfo:
        """Return the same, and first read a pool that another replica has just created."""
        return (await self._found(namespace, name)).info()

    def list(self, namespace: str) -> list[PoolInfo]:
        """Return the descriptions of the pools of a namespace, by name."""
        if not self._pools:
            self._check_known()
        return [
            pool.info() for key, pool in sorted(self._pools.items()) if key.namespace == namespace
        ]

    async def load(self, namespace: str, name: str) -> None:
        """Read one pool and wait for it; this works without `start`."""
        key = PoolKey(namespace, name)
        try:
            (head,) = await self._store.heads([key])
            if head is None:
                raise _not_found(name)
            if pool := self._open(key, head.encoder_name):
                await pool.refresh()
        except PoolNotFound:
            self._forget(key)
            raise

    async def create(
        self, namespace: str, name: str, description: str, encoder_name: EncoderName | None = None
    ) -> PoolInfo:
        """Create an empty pool; if there is one of this name, replace its description.

        Args:
            namespace: Namespace of the pool.
            name: Name of the pool.
            description: Text for people.
            encoder_name: The pool's encoder; by default that of the existing pool, or `default`.

        Raises:
            Conflict: The existing pool has another encoder.
            InvalidRequest: This service has no such encoder.
        """
        if encoder_name and encoder_name not in self._backends:
            raise InvalidRequest.field(_no_encoder(encoder_name), "encoder")
        key = PoolKey(namespace, name)
        found = await self._store.create(key, description, encoder_name)
        if encoder_name not in {None, found}:
            raise Conflict(f"pool '{name}' exists and has the encoder '{found}'")
        pool = self._open(key, found) or self._pool(namespace, name)
        if pool.state == "ready" or not pool.busy:  # else it is being read, which may take long
            await pool.refresh()
        return pool.info()

    async def upsert(
        self,
        namespace: str,
        name: str,
        candidates: Sequence[Candidate],
        progress: Progress | None = None,
    ) -> Edited:
        """Add candidates, or replace those with the same ids: all in one version, or none.

        Raises:
            InvalidRequest: Two different candidates share an id.
            PoolFull: The pool would exceed its limit.
            ServiceError: The encoder failed.
        """
        pool = await self._found(namespace, name)
        wanted = await asyncio.to_thread(distinct, candidates)

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            return _changed(contents, wanted), []

        edited = await pool.edit(plan, {}, progress)
        return replace(edited, unchanged=len(wanted) - edited.upserted)

    async def remove(self, namespace: str, name: str, id: str) -> Edited:  # noqa: A002
        """Remove a candidate; raises CandidateNotFound if the pool lacks it."""

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            if id not in contents:
                raise CandidateNotFound(f"pool '{name}' has no candidate '{id}'")
            return [], [id]

        return await (await self._found(namespace, name)).edit(plan, {})

    async def restore(
        self, namespace: str, name: str, snapshot: Snapshot, progress: Progress | None = None
    ) -> Edited:
        """Replace a pool's candidates by those of a snapshot, in one new version.

        The texts are encoded again if another model encoded the snapshot. Raises as `upsert`.
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
        """Delete a pool."""
        key = PoolKey(namespace, name)
        while log := await self._store.read(key):
            if await self._store.drop(key, log) != "conflict":
                return self._forget(key)
        self._forget(key)
        raise _not_found(name)

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await log_errors(self._poll)

    async def _poll(self) -> None:
        """Compare with Redis and start background work: a slow pool does not delay the others."""
        await self._check_database()
        known = dict(self._pools)  # the names may lack a pool that is created from here on
        names = await self._store.names()
        keys = sorted(names)
        for key, head in zip(keys, await self._store.heads(keys), strict=True):
            if head is None:
                await self._store.forget(key, names[key])
                self._forget_gone(key, known)
            elif (pool := self._open(key, head.encoder_name)) and not pool.busy:
                self._background.begin(("read", key), partial(self._follow, pool, head))
        for key in known.keys() - names.keys():
            self._forget_gone(key, known)
        if self._at_start is None:
            self._at_start = list(self._pools.values())

    async def _check_database(self) -> None:
        database_id = await self._store.database_id()
        if self._database_id not in {None, database_id}:
            self._metrics.redis_losses.labels("database").inc()
            _log.error("Redis lost its data: %d pools, and all sessions", len(self._pools))
            self._filled = self._fill is None
        self._database_id = database_id
        if not self._filled:
            self._background.begin("fill", self._refill)

    async def _refill(self) -> None:
        if self._fill:
            await self._fill()
            self._filled = True

    def _count(self, state: PoolState) -> int:
        pools = self._pools.values()
        return sum(("behind" if pool.behind else pool.state) == state for pool in pools)

    async def _follow(self, pool: Pool, head: Head) -> None:
        if not await pool.follow(head) or pool.forgotten:
            return
        if log_is_long(pool):
            self._background.begin(("fold", pool.key), partial(fold, pool, self._workers))
        if needs_index(pool, self._exact_limit):
            self._background.begin(("index", pool.key), partial(build_index, pool, self._workers))

    def _pool(self, namespace: str, name: str) -> Pool:
        key = PoolKey(namespace, name)
        if key in self._without_encoder:
            raise PoolNotReady(f"pool '{name}' cannot be served: {_no_encoder('pairwise')}")
        if (pool := self._pools.get(key)) is None:
            self._check_known()
            raise _not_found(name)
        return pool

    async def _found(self, namespace: str, name: str) -> Pool:
        if PoolKey(namespace, name) not in self._pools:
            await self.load(namespace, name)
        return self._pool(namespace, name)

    def _check_known(self) -> None:
        if self._at_start is None:
            raise StateUnavailable("the pools are not known yet, because Redis is unavailable")

    def _open(self, key: PoolKey, encoder_name: EncoderName) -> Pool | None:
        """Return the pool with this encoder; None if this replica lacks the encoder."""
        known, warned = self._pools.get(key), key in self._without_encoder
        if known and known.encoder_name == encoder_name:
            return known
        self._forget(key)  # an earlier pool of this name
        if (backend := self._backends.get(encoder_name)) is None:
            if not warned:
                _log.warning("pool %s cannot be served: %s", key.name, _no_encoder(encoder_name))
            self._without_encoder.add(key)
            return None
        self._pools[key] = Pool(
            key, backend, self._workers, self._metrics,
            exact_limit=self._exact_limit, max_size=self._max_size,
        )  # fmt: skip
        return self._pools[key]

    def _forget_gone(self, key: PoolKey, known: Mapping[PoolKey, Pool]) -> None:
        if self._pools.get(key) is known.get(key):  # else it was created anew
            self._forget(key)

    def _forget(self, key: PoolKey) -> None:
        self._without_encoder.discard(key)
        if pool := self._pools.pop(key, None):
            pool.forgotten = True
            for gauge in (self._metrics.pool_candidates, self._metrics.pool_version):
                gauge.remove(*key)


def _no_encoder(encoder_name: EncoderName) -> str:
    return f"this service has no encoder '{encoder_name}': TURNWISE_PAIRWISE names its folder"


def _not_found(name: str) -> PoolNotFound:
    return PoolNotFound(f"there is no pool '{name}'")


def _changed(contents: Contents, wanted: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in wanted if contents.get(candidate.id) != candidate]

"""The pools of this replica: finds them for requests, and reads those that it does not have yet."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import get_args

from redis.asyncio import Redis

from turnwise.service.current_request import namespace as acting
from turnwise.service.errors import PoolNotFound, PoolNotReady, StateUnavailable
from turnwise.service.observe.metrics import Metrics, ReplicaPoolState
from turnwise.service.pools.encoding import PoolEncoder
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.workers import Background, Work, Workers
from turnwise.service.pools.missing import MissingPools
from turnwise.service.pools.names import PoolNames
from turnwise.service.pools.namespace_limit import NamespaceLimit
from turnwise.service.pools.opener import PoolOpener
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.readiness import AwaitedPools
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import PoolKey, PoolMoved, Revision, not_found
from turnwise.service.pools.resources import PoolLimits, PoolResources
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.wire.fields import EncoderName

FIRST_READ_SECONDS = 1.0
"""Seconds that a request waits for a pool that this replica does not have in memory."""

_log = logging.getLogger("turnwise.pools")


class FollowedPools:
    """The pools of this replica. A pool is opened and read when a request first names it.

    A pool that is open is searched without Redis. What is new in Redis arrives here when a request
    calls `look_up`, or at the next poll of a `PoolFollower`.

    Attributes:
        in_memory: The open pools: those that are in memory, or are being read.
        names: The names and aliases of all pools, as Redis last said.
        missing: The names of pools and aliases that Redis lost.
        awaited: The pools that must be read before the replica is ready.
        directory: The names of all pools in Redis.
        records: The pools in Redis.
        opener: Makes pools, and knows the encoders and the store that they can have.
        resources: What all pools share: threads, memory, files, limits.
        background: The tasks that read pools, fold their logs and build their indexes.
    """

    def __init__(
        self,
        redis: Redis,
        encoders: Mapping[EncoderName, PoolEncoder],
        metrics: Metrics,
        limits: PoolLimits,
        *,
        search_threads: int,
        index_folder: Path,
        names_file: Path | None = None,
        store: CandidateStore | None = None,
        refused_seconds: float = 300.0,
    ) -> None:
        """Open no pool yet.

        Args:
            redis: Connection to the Redis that holds the pools.
            encoders: Encoders by their names on the wire; `default` must be there.
            metrics: Gets the sizes and versions of pools.
            limits: Limits of the pools in memory.
            search_threads: Number of threads that search one pool in parallel.
            index_folder: Folder for approximate indexes, which replicas may share.
            names_file: File for the names of all pools in this Redis, which replicas may share.
            store: An engine that keeps pools, in addition to those in memory.
            refused_seconds: Time for which pools that do not fit into memory are awaited.
        """
        backends = {
            name: Backend(encoder, PoolRecords(redis, metrics, fingerprint=encoder.fingerprint))
            for name, encoder in encoders.items()
        }
        self.in_memory: dict[PoolKey, Pool] = {}
        self.names = PoolNames()
        self.directory = Directory(redis, metrics)
        self.missing = MissingPools(self.directory, metrics, names_file)
        self.awaited = AwaitedPools(refused_seconds)
        self.records = backends["default"].records
        self.background = Background()
        self._metrics = metrics
        self.resources = self._make_resources(limits, search_threads, index_folder)
        self.opener = PoolOpener(backends, self.resources, store)
        for state in get_args(ReplicaPoolState):
            metrics.pools.labels(state).set_function(partial(self._count_pools, state))

    def _make_resources(
        self, limits: PoolLimits, search_threads: int, index_folder: Path
    ) -> PoolResources:
        """Return what the pools share."""
        workers = Workers(search_threads, self._metrics)
        admit_growth = None
        if limits.namespace_bytes is not None:
            admit_growth = NamespaceLimit(
                self.directory,
                self.records,
                self.in_memory,
                workers,
                self._metrics,
                limit=limits.namespace_bytes,
            ).admit_growth
        return PoolResources(
            workers=workers,
            memory=Memory(),
            files=IndexFiles(index_folder),
            limits=limits,
            metrics=self._metrics,
            count_change=self.directory.count_change,
            admit_growth=admit_growth,
        )

    async def close(self) -> None:
        """Stop the tasks and the threads of the pools."""
        await self.background.close()
        self.resources.workers.close()

    def get(self, key: PoolKey) -> Pool:
        """Return a pool as this replica has it.

        Raises:
            PoolNotFound: This replica knows no such pool.
            PoolNotReady: This replica cannot serve it.
        """
        obstacle = self.names.obstacles.get(key)
        if obstacle:
            raise PoolNotReady(f"pool '{key.name}' cannot be served: {obstacle}")
        pool = self.in_memory.get(key)
        if pool is None:
            self._check_known()
            raise self._not_found(key)
        return pool

    async def find(self, name: PoolKey, *, newest: bool = False) -> Pool:
        """Return a pool, and wait a moment if it is being read.

        Args:
            name: Name of the pool or of an alias.
            newest: Whether to ask Redis for the pool of the alias.

        Raises:
            PoolNotFound: There is no such pool in Redis either.
            PoolNotReady: This replica cannot serve it.
        """
        if newest:
            key = await self.directory.resolve(name)
            self.names.note_alias(name, key)
        else:
            key = self.resolve(name)
        if key not in self.in_memory:
            key = await self.look_up(name)
        end = monotonic() + FIRST_READ_SECONDS
        while True:
            pool = self.get(key)
            pool.asked_at = monotonic()
            if pool.state == "ready":
                return pool
            self.begin_read(pool)
            await self.background.wait(("read", pool), end - monotonic())
            if self.in_memory.get(key) is pool:
                return pool  # otherwise it was moved meanwhile: another one has its name

    def resolve(self, name: PoolKey) -> PoolKey:
        """Return the pool that a name refers to on this replica."""
        return self.names.resolve(name, self._has_read)

    async def look_up(self, name: PoolKey) -> PoolKey:
        """Ask Redis which pool a name refers to; open the pool, and return its key.

        A pool that this replica cannot serve is not opened.

        Raises:
            PoolNotFound: There is no such pool.
        """
        key = await self.directory.resolve(name)
        self.names.note_alias(name, key)
        (revision,) = await self.records.revisions([key])
        if revision is None:
            self.forget(key)
            raise self._not_found(key)
        self.open(key, revision)
        return key

    def list_unread(self, namespace: str) -> list[PoolKey]:
        """Return the pools of a namespace that this replica could read but has not read.

        Raises:
            StateUnavailable: The names are not known yet.
        """
        self._check_known()
        known = self.in_memory.keys() | self.names.obstacles.keys()
        return [key for key in self.names.listed if key.namespace == namespace and key not in known]

    def open(self, key: PoolKey, revision: Revision) -> None:
        """Open a pool at its newest revision, or note why this replica cannot serve it.

        A pool that has moved to another encoder or store is opened again there.
        """
        pool = self.in_memory.get(key)
        if pool and pool.newest.place == revision.place:
            pool.newest = revision
            return
        if pool:
            self.forget(key)
        if revision.store_name != "local":
            self.resources.files.remove(key)  # of a pool that was moved
        known_obstacle = self.names.obstacles.pop(key, None)
        obstacle = self.opener.find_obstacle(revision)
        if obstacle is None:
            self.in_memory[key] = self.opener.open(key, revision)
            return
        self.names.obstacles[key] = obstacle
        if obstacle != known_obstacle:
            _log.warning("pool %s cannot be served: %s", key.name, obstacle)

    def begin_read(self, pool: Pool) -> None:
        """Begin to read what is new in a pool, unless that has begun."""
        self._begin_work(("read", pool), pool, partial(self._follow, pool))

    def forget(self, key: PoolKey) -> None:
        """Drop a pool from memory, and its metrics."""
        self.names.forget(key)
        pool = self.in_memory.pop(key, None)
        if pool:
            pool.forgotten = True
        self._metrics.forget_pool(*key)

    def _not_found(self, key: PoolKey) -> PoolNotFound:
        if key in self.missing.names:
            lost = f"there is no pool {key.describe()}: Redis lost it; restore a backup"
            return PoolNotFound(lost)
        return not_found(key)

    def _check_known(self) -> None:
        if not self.awaited.are_known:
            raise StateUnavailable("the pools are not known yet, because Redis is unavailable")

    def _has_read(self, key: PoolKey) -> bool:
        pool = self.in_memory.get(key)
        return pool is not None and pool.state == "ready"

    async def _follow(self, pool: Pool) -> None:
        try:
            if await pool.follow():
                self.begin_upkeep(pool)
        finally:
            self.awaited.update(self.in_memory)

    def begin_upkeep(self, pool: Pool) -> None:
        """Begin the background tasks that a pool needs."""
        if pool.forgotten:
            return
        for name, work in pool.due_upkeep():
            self._begin_work((name, pool.key), pool, work)

    def _begin_work(self, task: tuple[str, object], pool: Pool, work: Work) -> None:
        """Begin a background task of a pool; if the pool was moved, open it at its new place."""

        async def run() -> None:
            acting.set(pool.key.namespace)  # in this task, for its share of the encoder
            try:
                await work()
            except PoolMoved:
                await self.look_up(pool.key)

        self.background.begin(task, run)

    def _count_pools(self, state: ReplicaPoolState) -> int:
        pools = self.in_memory.values()
        return sum(("behind" if pool.is_behind else pool.state) == state for pool in pools)

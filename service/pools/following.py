"""How a pool reaches every replica: each keeps its pools in memory as they are in Redis.

The replica that edits a pool appends the edit to the pool's log in Redis (`local`) and increments
the count of changes (`directory`). The others see the count within `POLL_SECONDS`, compare the
revisions of their pools with those in Redis, and read what is new (`replay`).
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import get_args

from turnwise.models.texts import write_count
from turnwise.service.errors import (
    NotEnoughMemory,
    PoolNotFound,
    PoolNotReady,
    StateUnavailable,
    Unavailable,
)
from turnwise.service.observe.logs import namespace as acting
from turnwise.service.observe.metrics import Metrics, ReplicaPoolState
from turnwise.service.pools.encoding import PoolEncoder
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.workers import Background, Work, Workers, log_errors
from turnwise.service.pools.missing import MissingPools
from turnwise.service.pools.names import PoolNames
from turnwise.service.pools.namespace_limit import NamespaceLimit
from turnwise.service.pools.opener import PoolOpener
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.readiness import AwaitedPools, RequiredPool
from turnwise.service.pools.redis.directory import Changes, Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import PoolKey, PoolMoved, Revision, not_found
from turnwise.service.pools.resources import PoolLimits, PoolResources
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.redis.connection import Redis
from turnwise.service.wire.fields import EncoderName

POLL_SECONDS = 0.5
FULL_POLL_SECONDS = 60.0
"""Seconds after which everything is compared, even if no change was counted."""
FIRST_READ_SECONDS = 1.0
"""Seconds that a request waits for a pool that this replica does not have in memory."""
IDLE_SECONDS = 6 * 3600.0
"""Seconds without a request after which a pool's memory is freed, and its note in Redis removed."""
NOTE_SECONDS = 60.0
"""Seconds after which a replica notes in Redis which pools requests have named."""

_log = logging.getLogger("turnwise.pools")


class FollowedPools:
    """Reads pools when they are first asked for, and then follows them in Redis.

    While Redis is unavailable, searches go on in memory. Pools that nobody asks for are dropped.

    Attributes:
        in_memory: The pools that are in memory, or are being read.
        names: The names and aliases of all pools, as Redis last said.
        missing: The names of pools and aliases that Redis lost.
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
        fill_seconds: float = 10.0,
    ) -> None:
        """Follow nothing yet.

        Args:
            redis: Connection to the Redis that holds the pools.
            encoders: Encoders by their names on the wire; `default` must be there.
            metrics: Gets the sizes and versions of pools.
            limits: Limits of the pools in memory.
            search_threads: Number of threads that search one pool in parallel.
            index_folder: Folder for approximate indexes, which replicas may share.
            names_file: File for the names of all pools in this Redis, which replicas may share.
            store: An engine that keeps pools, in addition to those in memory.
            refused_seconds: Time for which `ready` waits for pools that do not fit into memory.
            fill_seconds: Time after which a pool that could not be filled is filled again.
        """
        backends = {
            name: Backend(encoder, PoolRecords(redis, metrics, fingerprint=encoder.fingerprint))
            for name, encoder in encoders.items()
        }
        self.in_memory: dict[PoolKey, Pool] = {}
        self.names = PoolNames()
        self.directory = Directory(redis, metrics)
        self.missing = MissingPools(self.directory, metrics, names_file)
        self.records = backends["default"].records
        self.background = Background()
        self._metrics = metrics
        self._awaited = AwaitedPools(refused_seconds)
        self._first: Collection[PoolKey] = ()
        self._changes: Changes | None = None
        self._next_full_poll = 0.0
        self._noted_at = 0.0
        self._required = RequiredPool(fill_seconds)
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

    async def start(self, first: Collection[PoolKey] = ()) -> None:
        """Begin to read the first pools, and those that requests have lately named anywhere.

        If Redis is unavailable, do so later. `ready` waits for these pools.

        Args:
            first: Names of pools that are read in any case.
        """
        self._first = first
        await log_errors(self.poll)
        self.background.begin("poll", self._poll_forever)

    async def keep_filled(self, fill: Work) -> None:
        """Fill a pool that must exist: call `fill` now, and again whenever Redis lost its data."""
        self._required.require(fill)
        try:
            await self._required.fill()
        except (Unavailable, NotEnoughMemory) as error:  # a poll calls it again
            _log.warning("pools: %s", error)

    async def close(self) -> None:
        """Stop following the pools."""
        await self.background.close()
        if self._awaited.are_known:
            await self._note_in_use()
        self.resources.workers.close()

    @property
    def ready(self) -> bool:
        """Whether the required pool is there, and those in use at the start are read or given up.

        A replica that is ready stays so, unless Redis loses its data.
        """
        return self._required.is_there and self._awaited.are_ready

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
            if self._is_current(pool):
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

    def open(self, key: PoolKey, revision: Revision) -> Pool | None:
        """Return a pool, which gets its newest revision; None if this replica cannot serve it."""
        known = self.in_memory.get(key)
        if known:
            had = known.newest
            if (had.encoder_name, had.store_name) == (revision.encoder_name, revision.store_name):
                known.newest = revision
                return known
        if revision.store_name != "local":
            self.resources.files.remove(key)  # of a pool that was moved
        before = self.names.obstacles.get(key)
        obstacle = self.opener.find_obstacle(revision)
        if known or (before and not obstacle):
            self.forget(key)  # an earlier pool of this name
        if obstacle:
            if obstacle != before:
                _log.warning("pool %s cannot be served: %s", key.name, obstacle)
            self.names.obstacles[key] = obstacle
            return None
        self.in_memory[key] = self.opener.open(key, revision)
        return self.in_memory[key]

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

    def _is_current(self, pool: Pool) -> bool:
        return self.in_memory.get(pool.key) is pool

    def _check_known(self) -> None:
        if not self._awaited.are_known:
            raise StateUnavailable("the pools are not known yet, because Redis is unavailable")

    def _has_read(self, key: PoolKey) -> bool:
        pool = self.in_memory.get(key)
        return pool is not None and pool.state == "ready"

    async def _poll_forever(self) -> None:
        error = ""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            error = await log_errors(self.poll, known=error)

    async def poll(self) -> None:
        """Look for changes in Redis, and begin the work on each pool in the background."""
        self._awaited.update(self.in_memory)
        changes = await self.directory.changes()
        self._check_database(changes.database_id)
        if changes != self._changes or monotonic() > self._next_full_poll:
            await self._compare(changes)
            self._changes = changes
            self._next_full_poll = monotonic() + FULL_POLL_SECONDS
        if monotonic() > self._noted_at + NOTE_SECONDS:
            await self._note_in_use()
        for pool in list(self.in_memory.values()):
            if pool.is_busy:
                continue
            if pool.revision == pool.newest:
                self._begin_upkeep(pool)
            else:
                self.begin_read(pool)
        self._awaited.update(self.in_memory)

    async def _compare(self, changes: Changes) -> None:
        """Compare the pools and names here with those in Redis; drop the pools that are idle."""
        # Requests go on meanwhile. What they change here is newer than what Redis answers now.
        known = dict(self.in_memory)
        known_keys = known.keys() | self.names.obstacles.keys()
        known_aliases = self.names.aliases
        names = await self.directory.names()
        aliases = await self.directory.aliases()
        self.names.update_aliases(aliases, known_aliases)
        asked = {*self.names.asked_aliases}
        if not self._awaited.are_known:
            asked |= {*self._first, *await self.directory.in_use()}
        successors = self._awaited.find_successors(known_aliases, aliases)
        wanted = known_keys | {aliases.get(name, name) for name in asked} | successors
        keys = sorted(wanted & names.keys())
        for key, revision in zip(keys, await self.records.revisions(keys), strict=True):
            if revision is None:
                await self.directory.remove(key, names[key])
                self._forget_deleted(key, known)
            elif self.in_memory.get(key) is known.get(key):
                self.open(key, revision)
        for key in known_keys - names.keys():
            self._forget_deleted(key, known)
        self._awaited.add(successors)
        self.names.listed = names.keys()
        with suppress(StateUnavailable):  # a Redis that is full still lets replicas follow it
            await self.missing.update(changes, frozenset(names.keys() | aliases.keys()))
        if not self._awaited.are_known:
            self._awaited.begin(self.in_memory)
            self._noted_at = monotonic()  # no request has named these pools here
        for key, pool in known.items():
            is_idle = monotonic() - pool.asked_at > IDLE_SECONDS and not pool.is_busy
            if is_idle and self._is_current(pool):
                self.forget(key)

    async def _note_in_use(self) -> None:
        """Let new replicas know which pools requests have named here since the last note."""
        since = self._noted_at
        self._noted_at = monotonic()
        named = [key for key, pool in self.in_memory.items() if pool.asked_at > since]
        if named:
            await self.directory.note_in_use(named, IDLE_SECONDS)

    def _forget_deleted(self, key: PoolKey, known: Mapping[PoolKey, Pool]) -> None:
        """Forget a pool that Redis does not list, unless it was created again meanwhile."""
        if self.in_memory.get(key) is known.get(key):
            self.resources.files.remove(key)
            self.forget(key)

    def _check_database(self, database_id: str) -> None:
        if self._changes and self._changes.database_id != database_id:
            self._metrics.redis_losses.labels("database").inc()
            lost = write_count(len(self.names.listed), "pool")
            _log.error("Redis lost its data: %s, and all sessions", lost)
            self._required.note_loss()
            self._changes = None  # compare everything, even if the number is the same
        if self._required.is_due:
            self.background.begin("fill", self._required.fill)

    async def _follow(self, pool: Pool) -> None:
        try:
            if await pool.follow():
                self._begin_upkeep(pool)
        finally:
            self._awaited.update(self.in_memory)

    def _begin_upkeep(self, pool: Pool) -> None:
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

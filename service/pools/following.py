"""How a pool reaches every replica: each keeps its pools in memory as they are in Redis.

The replica that edits a pool appends the edit to the pool's log in Redis (`local`) and increments
the count of changes (`directory`). The others see the count within `POLL_SECONDS`, compare the
heads of their pools with those in Redis, and read what is new (`replay`).
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import get_args

from turnwise.service.errors import (
    NamespaceFull,
    NotEnoughMemory,
    PoolNotReady,
    StateUnavailable,
    Unavailable,
)
from turnwise.service.observe.logs import namespace as acting
from turnwise.service.observe.metrics import Metrics, ReplicaPoolState
from turnwise.service.pools.encoding import PoolEncoder
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.local import LocalPool
from turnwise.service.pools.memory.upkeep import build_index, fold, log_is_long, needs_index
from turnwise.service.pools.memory.workers import Background, Work, Workers, log_errors
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.redis.directory import Changes, Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import Head, PoolKey, PoolMoved, not_found
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.stores.remote import RemotePool
from turnwise.service.redis.connection import Redis
from turnwise.service.wire.fields import EncoderName, StoreName

POLL_SECONDS = 0.5
FULL_POLL_SECONDS = 60.0
"""Seconds after which everything is compared, though no change was counted."""
FIRST_READ_SECONDS = 1.0
"""Seconds that a request waits for a pool that this replica does not have in memory."""
IDLE_SECONDS = 6 * 3600.0
"""Seconds without a request after which a pool's memory is freed, and its note in Redis removed."""
FILL_SECONDS = 10.0
"""Seconds after which a pool that could not be filled is filled again."""
NOTE_SECONDS = 60.0
"""Seconds after which a replica notes in Redis which pools requests have named."""

_log = logging.getLogger("turnwise.pools")


class FollowedPools:
    """Reads pools when they are first asked for, and then follows them in Redis.

    While Redis is unavailable, searches go on in memory. Pools that nobody asks for are dropped.

    Attributes:
        in_memory: The pools that are in memory, or are being read.
        aliases: The pool of each alias, as Redis last said.
        directory: The names of all pools in Redis.
        records: The pools in Redis.
        backends: The encoders that pools can have, by their names on the wire.
        memory: Admits work on all pools.
        files: The trained indexes.
        background: The tasks that read pools, fold their logs and build their indexes.
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
        max_pools_bytes: int | None = None,
        index_folder: Path,
        store: CandidateStore | None = None,
    ) -> None:
        """Follow nothing yet.

        Args:
            redis: Connection to the Redis that holds the pools.
            encoders: Encoders by their names on the wire; `default` must be there.
            metrics: Gets the sizes and versions of pools.
            exact_limit: Number of candidates up to which search is exact.
            search_threads: Number of threads that search one pool in parallel.
            max_pool_size: Greatest number of candidates in a pool.
            max_pools_bytes: Most bytes of the candidates of a namespace's pools.
            index_folder: Folder for approximate indexes, which replicas may share.
            store: An engine that keeps pools, beside those in memory.
        """
        self.directory = Directory(redis, metrics)
        self.backends = {
            name: Backend(encoder, PoolRecords(redis, metrics, fingerprint=encoder.fingerprint))
            for name, encoder in encoders.items()
        }
        self.records = self.backends["default"].records
        self.memory = Memory()
        self.files = IndexFiles(index_folder)
        self.background = Background()
        self._metrics, self._store = metrics, store
        self._exact_limit, self._max_size = exact_limit, max_pool_size
        self._max_bytes = max_pools_bytes
        self._workers = Workers(search_threads)
        self._names: Collection[PoolKey] = ()
        self.aliases: dict[PoolKey, PoolKey] = {}
        self._stood_for: dict[PoolKey, PoolKey] = {}
        """The pool that each alias stood for when it was last asked for here."""
        self.in_memory: dict[PoolKey, Pool] = {}
        self._obstacles: dict[PoolKey, str] = {}
        """The pools that this replica cannot serve, and why."""
        self._first: Collection[PoolKey] = ()
        self._awaited: list[Pool] | None = None
        """The pools that `ready` still waits for; None before the first poll."""
        self._changes: Changes | None = None
        self._next_full_poll = 0.0
        self._noted_at = 0.0
        self._fill: Work | None = None
        self._filled, self._next_fill = True, 0.0
        for state in get_args(ReplicaPoolState):
            metrics.pools.labels(state).set_function(partial(self._count, state))

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
        self._fill, self._filled = fill, False
        try:
            await self._refill()
        except (Unavailable, NotEnoughMemory) as error:  # a poll calls it again
            _log.warning("pools: %s", error)

    async def close(self) -> None:
        """Stop following the pools."""
        await self.background.close()
        if self._awaited is not None:
            await self._note_in_use()
        self._workers.close()

    @property
    def ready(self) -> bool:
        """Whether every pool that was in use at the start is read and indexed, or is damaged.

        A pool that does not fit into memory is awaited: the replicas before this one may have room
        for it. Once it is ready, nothing that happens to this or another pool changes it.
        """
        if self._awaited is None:
            return False
        self._awaited = [pool for pool in self._awaited if self._is_awaited(pool)]
        return self._filled and not self._awaited

    def here(self, key: PoolKey) -> Pool:
        """Return a pool as it is here now.

        Raises:
            PoolNotFound: This replica knows no such pool.
            PoolNotReady: This replica cannot serve it.
        """
        if obstacle := self._obstacles.get(key):
            raise PoolNotReady(f"pool '{key.name}' cannot be served: {obstacle}")
        if (pool := self.in_memory.get(key)) is None:
            self._check_known()
            raise not_found(key)
        return pool

    async def found(self, name: PoolKey, *, newest: bool = False) -> Pool:
        """Return a pool, and wait a moment if it is being read.

        Args:
            name: Of the pool or an alias.
            newest: Whether to ask Redis for the pool of the alias.

        Raises:
            PoolNotFound: There is no such pool in Redis either.
            PoolNotReady: This replica cannot serve it.
        """
        key = await self.directory.resolve(name) if newest else self.target(name)
        if key not in self.in_memory:
            key = await self.look_up(name)
            if key in self.in_memory:
                self.begin_read(self.in_memory[key])
        pool = self.here(key)
        pool.asked_at = monotonic()
        if pool.state != "ready":
            await self.background.wait(("read", key), FIRST_READ_SECONDS)
        return pool

    async def look_up(self, name: PoolKey) -> PoolKey:
        """Return the pool of a name in Redis, which is open now if this replica can serve it.

        Raises:
            PoolNotFound: There is no such pool.
        """
        key = await self.directory.resolve(name)
        if key == name:
            self.aliases.pop(name, None)
        else:
            self.aliases[name] = key
        (head,) = await self.records.heads([key])
        if head is None:
            self.forget(key)
            raise not_found(key)
        self.open(key, head)
        return key

    def unread(self, namespace: str) -> list[PoolKey]:
        """Return the pools of a namespace that this replica has not read, and could.

        Raises:
            StateUnavailable: The names are not known yet.
        """
        self._check_known()
        here = self.in_memory.keys() | self._obstacles.keys()
        return [key for key in self._names if key.namespace == namespace and key not in here]

    def open(self, key: PoolKey, head: Head) -> Pool | None:
        """Return the pool that has this head now; None if this replica cannot serve it."""
        if known := self.in_memory.get(key):
            had = known.newest
            if (had.encoder_name, had.store_name) == (head.encoder_name, head.store_name):
                known.newest = head
                return known
        if head.store_name != "local":
            self.files.remove(key)  # of a pool that was moved
        obstacle, before = self.obstacle(head), self._obstacles.get(key)
        if known or (before and not obstacle):
            self.forget(key)  # an earlier pool of this name
        if obstacle:
            if obstacle != before:
                _log.warning("pool %s cannot be served: %s", key.name, obstacle)
            self._obstacles[key] = obstacle
            return None
        self.in_memory[key] = self.new(key, head)
        return self.in_memory[key]

    def new(self, key: PoolKey, head: Head) -> Pool:
        """Return a pool that has read nothing from Redis yet."""
        backend = self.backends[head.encoder_name]
        if engine := self.engine(head.store_name):
            return RemotePool(
                key, backend, engine, self._workers, self._metrics,
                newest=head, count_change=self.directory.count_change,
            )  # fmt: skip
        return LocalPool(
            key, backend, self._workers, self.memory, self._metrics,
            newest=head, exact_limit=self._exact_limit, max_size=self._max_size,
            check_growth=self._check_growth if self._max_bytes else None,
        )  # fmt: skip

    def begin_read(self, pool: Pool) -> None:
        """Begin to read what is new of a pool, unless that has begun."""
        self.background.begin(("read", pool.key), partial(self._follow, pool))

    def obstacle(self, head: Head) -> str | None:
        """Return why this replica cannot serve a pool; None if it can."""
        if head.encoder_name not in self.backends:
            return no_encoder(head.encoder_name)
        if head.store_name != "local" and self.engine(head.store_name) is None:
            return no_store(head.store_name)
        return None

    def engine(self, store: StoreName) -> CandidateStore | None:
        """Return the candidate store of this name; None if this service has none."""
        return self._store if self._store and self._store.name == store else None

    def forget(self, key: PoolKey) -> None:
        """Drop a pool from memory, and its metrics."""
        self._obstacles.pop(key, None)
        self._stood_for = {alias: to for alias, to in self._stood_for.items() if to != key}
        if pool := self.in_memory.pop(key, None):
            pool.forgotten = True
        self._metrics.forget_pool(*key)

    def _is_awaited(self, pool: Pool) -> bool:
        if self.in_memory.get(pool.key) is not pool or pool.state == "damaged":
            return False
        if isinstance(pool, LocalPool) and pool.state == "ready":
            return needs_index(pool, self._exact_limit)
        return pool.state in {"loading", "encoding"}

    def _check_known(self) -> None:
        if self._awaited is None:
            raise StateUnavailable("the pools are not known yet, because Redis is unavailable")

    def target(self, name: PoolKey) -> PoolKey:
        """Return the pool that a name stands for here.

        An alias that was moved stands for its former pool until the new one has been read.
        """
        if (to := self.aliases.get(name)) is None:
            self._stood_for.pop(name, None)
            return name
        former = self._stood_for.get(name, to)
        if former != to and self._has_read(former) and not self._has_read(to):
            return former
        self._stood_for[name] = to
        return to

    def _has_read(self, key: PoolKey) -> bool:
        pool = self.in_memory.get(key)
        return pool is not None and pool.state == "ready"

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await log_errors(self.poll)

    async def poll(self) -> None:
        """Look for changes in Redis, and start background work: no pool delays the others."""
        changes = await self.directory.changes()
        self._check_database(changes.database_id)
        if changes != self._changes or monotonic() > self._next_full_poll:
            await self._compare()
            self._changes, self._next_full_poll = changes, monotonic() + FULL_POLL_SECONDS
        if monotonic() > self._noted_at + NOTE_SECONDS:
            await self._note_in_use()
        for pool in list(self.in_memory.values()):
            if pool.busy:
                continue
            if pool.head == pool.newest:
                self._keep_up(pool)
            else:
                self.begin_read(pool)

    async def _compare(self) -> None:
        """Read all names, and the heads of the pools in memory; give up those that are idle."""
        known = dict(self.in_memory)  # the names may lack a pool that is created from here on
        here = known.keys() | self._obstacles.keys()
        names, self.aliases = await self.directory.names(), await self.directory.aliases()
        asked = {*self._stood_for}
        if self._awaited is None:
            asked |= {*self._first, *await self.directory.in_use()}
        wanted = here | {self.aliases.get(name, name) for name in asked}
        keys = sorted(wanted & names.keys())
        for key, head in zip(keys, await self.records.heads(keys), strict=True):
            if head is None:
                await self.directory.remove(key, names[key])
                self._forget_gone(key, known)
            else:
                self.open(key, head)
        for key in here - names.keys():
            self._forget_gone(key, known)
        self._names = names.keys()
        if self._awaited is None:
            self._awaited = list(self.in_memory.values())
            self._noted_at = monotonic()  # no request has named these pools here
        for key, pool in known.items():
            if monotonic() - pool.asked_at > IDLE_SECONDS and not pool.busy:
                self.forget(key)

    async def _note_in_use(self) -> None:
        """Let new replicas know which pools requests have named here since the last note."""
        since, self._noted_at = self._noted_at, monotonic()
        if named := [key for key, pool in self.in_memory.items() if pool.asked_at > since]:
            await self.directory.note_in_use(named, IDLE_SECONDS)

    def _forget_gone(self, key: PoolKey, known: Mapping[PoolKey, Pool]) -> None:
        if self.in_memory.get(key) is known.get(key):  # else it was created anew
            self.files.remove(key)
            self.forget(key)

    def _check_database(self, database_id: str) -> None:
        if self._changes and self._changes.database_id != database_id:
            self._metrics.redis_losses.labels("database").inc()
            _log.error("Redis lost its data: %d pools, and all sessions", len(self._names))
            self._filled, self._next_fill = self._fill is None, 0.0
            self._changes = None  # compare everything, even if the number is the same
        if not self._filled and monotonic() > self._next_fill:
            self.background.begin("fill", self._refill)

    async def _refill(self) -> None:
        if self._fill:
            self._next_fill = monotonic() + FILL_SECONDS
            await self._fill()
            self._filled = True

    async def _follow(self, pool: Pool) -> None:
        acting.set(pool.key.namespace)  # in this task, for its share of the encoder
        try:
            if await pool.follow():
                self._keep_up(pool)
        except PoolMoved:
            await self.look_up(pool.key)

    def _keep_up(self, pool: Pool) -> None:
        """Begin to fold a long log, and to build a missing index."""
        if pool.forgotten:
            return
        if isinstance(pool, RemotePool):
            if pool.needs_measuring:
                self.background.begin(("measure", pool.key), pool.measure)
            return
        assert isinstance(pool, LocalPool)  # noqa: S101 - there is no other
        if log_is_long(pool):
            self.background.begin(("fold", pool.key), partial(fold, pool, self._workers))
        if needs_index(pool, self._exact_limit):
            build = partial(build_index, pool, self._workers, self.files)
            self.background.begin(("index", pool.key), build)

    async def _check_growth(self, namespace: str, growth: int) -> None:
        names = {*await self.directory.names(), *self.in_memory}
        keys = [key for key in names if key.namespace == namespace]
        here = [(key, pool) for key in keys if (pool := self.in_memory.get(key))]
        read = await self._workers.edit(lambda: {key: pool.candidate_bytes for key, pool in here})
        unread = [key for key in keys if not read.get(key)]
        summaries = await self.records.summaries(unread)
        size = growth + sum(read.values()) + sum(one.bytes for one in summaries if one)
        most = self._max_bytes
        if growth > 0 and most is not None and size > most:
            self._metrics.rejected_requests.labels("pools_bytes").inc()
            raise NamespaceFull(
                f"the pools of namespace '{namespace}' would have {size} bytes, more than the "
                f"limit of {most}; nothing was changed"
            )

    def _count(self, state: ReplicaPoolState) -> int:
        pools = self.in_memory.values()
        return sum(("behind" if pool.behind else pool.state) == state for pool in pools)


def no_encoder(name: EncoderName) -> str:
    """Return what to do about an encoder that this service lacks."""
    return f"this service has no encoder '{name}': TURNWISE_PAIRWISE names its folder"


def no_store(name: StoreName) -> str:
    """Return what to do about a candidate store that this service lacks."""
    return f"this service has no candidate store '{name}': TURNWISE_STORE_URL names it"

"""The pools on this replica: their use cases, reading them, and following them in Redis."""

import asyncio
import logging
import math
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeVar, get_args

from turnwise.service.errors import (
    CandidateNotFound,
    Conflict,
    InvalidRequest,
    NamespaceFull,
    PoolNotFound,
    PoolNotReady,
    StateUnavailable,
    StoreUnavailable,
)
from turnwise.service.observe.logs import namespace as acting
from turnwise.service.observe.metrics import Metrics, PoolState, Rejected
from turnwise.service.pools.candidate import Candidate, distinct
from turnwise.service.pools.collections import empty_collection, filled_collection
from turnwise.service.pools.directory import Changes, Directory
from turnwise.service.pools.encoding import PoolEncoder, Progress
from turnwise.service.pools.index_files import IndexFiles
from turnwise.service.pools.local import LocalPool
from turnwise.service.pools.log import Head, PoolKey, PoolMoved, Summary
from turnwise.service.pools.memory import Memory
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.records import PoolRecords
from turnwise.service.pools.remote import RemotePool
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.upkeep import build_index, fold, log_is_long, needs_index
from turnwise.service.pools.view import Batch, PoolView
from turnwise.service.pools.workers import Background, Work, Workers, log_errors
from turnwise.service.state.redis import Redis
from turnwise.service.wire.fields import EncoderName, StoreName
from turnwise.service.wire.pools import Edited, PoolInfo, PoolRequest, Removed

POLL_SECONDS = 0.5
FULL_POLL_SECONDS = 60.0
"""Seconds after which everything is compared, though no change was counted."""
FIRST_READ_SECONDS = 1.0
"""Seconds that a request waits for a pool that this replica does not have in memory."""
STORE_SECONDS = 1.0
"""Interval at which readiness asks the candidate store, and the time that this may take."""
IDLE_SECONDS = 6 * 3600.0
"""Seconds without a request after which a pool's memory is freed."""

_log = logging.getLogger("turnwise.pools")

_Result = TypeVar("_Result")


class Pools:
    """Reads pools when they are first asked for, and then follows them in Redis.

    Searches go on from memory while Redis is unavailable. A pool that nobody asks for is given up.

    Methods that name a pool also take an alias of it. They raise PoolNotFound if the pool does not
    exist, and PoolNotReady if it has not been read yet or this replica lacks its encoder. Methods
    raise StateUnavailable if they need Redis and it is unavailable; those that are not async need
    it only until the first poll.
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
        max_pools: int | None = None,
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
            max_pools: Greatest number of pools of a namespace.
            max_pools_bytes: Most bytes of the candidates of a namespace's pools.
            index_folder: Folder for approximate indexes, which replicas may share.
            store: An engine that keeps pools, beside those in memory.
        """
        self._files = IndexFiles(index_folder)
        self._metrics = metrics
        self._directory = Directory(redis, metrics)
        self._exact_limit, self._max_size = exact_limit, max_pool_size
        self._max_pools, self._max_bytes = max_pools, max_pools_bytes
        self._backends = {
            name: Backend(
                name, encoder, PoolRecords(redis, metrics, fingerprint=encoder.fingerprint)
            )
            for name, encoder in encoders.items()
        }
        self._records, self._store = self._backends["default"].records, store
        self._store_answers: bool | None = None
        self._store_asked = -math.inf
        self._unserved: dict[PoolKey, str] = {}
        """The pools that this replica cannot serve, and why."""
        self._workers = Workers(search_threads)
        self.memory = Memory()
        """Admits work on all of them."""
        self._names: Collection[PoolKey] = ()
        self._aliases: dict[PoolKey, PoolKey] = {}
        self._served: dict[PoolKey, PoolKey] = {}
        """The pool that each alias stood for when it was last asked for here."""
        self._pools: dict[PoolKey, Pool] = {}
        """The pools that are in memory, or are being read."""
        self._heads: dict[PoolKey, Head] = {}
        """The heads of these pools in Redis."""
        self._first: Collection[PoolKey] = ()
        self._at_start: list[Pool] | None = None
        self._background = Background()
        self._changes: Changes | None = None
        self._next_full_poll = 0.0
        self._fill: Work | None = None
        self._filled = True
        for state in get_args(PoolState):
            metrics.pools.labels(state).set_function(partial(self._count, state))

    async def start(self, first: Collection[PoolKey] = ()) -> None:
        """Begin to read the first pools, and those that were in use when the service last stopped.

        If Redis is unavailable, do so later. `ready` waits for these pools.

        Args:
            first: Names of pools that are read in any case.
        """
        self._first = first
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
        if self._at_start is not None and self._changes:
            self._files.note_in_use(self._changes.database_id, self._pools)
        await self._background.close()
        self._workers.close()

    @property
    def ready(self) -> bool:
        """Whether every pool that was in use at the last stop is read and indexed, or cannot be.

        Once it is, nothing that happens to this or another pool changes it.
        """
        if self._at_start is None:
            return False
        self._at_start = [pool for pool in self._at_start if self._is_awaited(pool)]
        return self._filled and not self._at_start

    def _is_awaited(self, pool: Pool) -> bool:
        if self._pools.get(pool.key) is not pool or pool.state == "damaged":
            return False
        if isinstance(pool, LocalPool) and pool.state == "ready":
            return needs_index(pool, self._exact_limit)
        return pool.state in {"loading", "encoding"}

    async def store_answers(self) -> bool | None:
        """Return whether the candidate store answered within the last second; None without one."""
        if self._store and monotonic() - self._store_asked > STORE_SECONDS:
            try:
                async with asyncio.timeout(STORE_SECONDS):
                    await self._store.ping()
                self._store_answers = True
            except (StoreUnavailable, TimeoutError) as error:
                _log.warning("the candidate store does not answer: %s", error or "timed out")
                self._store_answers = False
            self._store_asked = monotonic()
        return self._store_answers

    def view(self, namespace: str, name: str) -> PoolView:
        """Return the version of a pool that is here now."""
        return self._pool(self._target(PoolKey(namespace, name))).view()

    async def found_view(self, namespace: str, name: str) -> PoolView:
        """Return the same, and first read a pool that is not in memory.

        Raises:
            PoolNotFound: There is no such pool in Redis either.
            PoolNotReady: Reading takes longer than `FIRST_READ_SECONDS`; it goes on.
        """
        return (await self._found(PoolKey(namespace, name))).view()

    def info(self, namespace: str, name: str) -> PoolInfo:
        """Return the description of a pool as clients get it."""
        return self._info(self._pool(self._target(PoolKey(namespace, name))))

    async def find(self, namespace: str, name: str) -> PoolInfo:
        """Return the same, and begin to read a pool that is not in memory."""
        return self._info(await self._found(PoolKey(namespace, name)))

    async def list(self, namespace: str) -> list[PoolInfo]:
        """Return the descriptions of the pools of a namespace, by name; read none of them."""
        self._check_known()
        found = [
            self._info(pool) for pool in self._pools.values() if pool.key.namespace == namespace
        ]
        here = self._pools.keys() | self._unserved.keys()
        unread = [key for key in self._names if key.namespace == namespace and key not in here]
        for key, summary in zip(unread, await self._records.summaries(unread), strict=True):
            if summary and not self._obstacle(summary):
                found.append(self._unread(key, summary))
        return sorted(found, key=lambda info: info.name)

    async def load(self, namespace: str, name: str) -> None:
        """Read one pool and wait for it; this works without `start`."""
        key = await self._look_up(PoolKey(namespace, name))
        if pool := self._pools.get(key):
            try:
                await pool.refresh()
            except PoolNotFound:
                self._forget(key)
                raise

    async def create(self, namespace: str, name: str, request: PoolRequest) -> PoolInfo:
        """Create an empty pool; if there is one of this name, change the settings that are given.

        Args:
            namespace: Namespace of the pool.
            name: Name of the pool.
            request: The settings; and the encoder and the store of the pool, by default those of
                the existing pool, or `default` and `local`.

        Raises:
            Conflict: The existing pool has another encoder or store.
            InvalidRequest: This service has no such encoder or store.
            NamespaceFull: The namespace has as many pools as it may have.
            StoreUnavailable: The candidate store is away.
        """
        encoder, store = request.encoder, request.store
        if encoder and encoder not in self._backends:
            raise InvalidRequest.field(_no_encoder(encoder), "encoder")
        if store and self._engine(store) is None and store != "local":
            raise InvalidRequest.field(_no_store(store), "store")
        key = await self._directory.resolve(PoolKey(namespace, name))
        if self._max_pools is not None:
            await self._check_number(key, self._max_pools)
        incarnation, found = await self._created(key, request)
        await self._directory.add(key, incarnation)
        await self._directory.count_change()
        if encoder not in {None, found.encoder_name}:
            raise Conflict(f"pool '{key.name}' exists and has the encoder '{found.encoder_name}'")
        if store not in {None, found.store_name}:
            raise Conflict(f"pool '{key.name}' exists and is in the store '{found.store_name}'")
        if pool := self._open(key, found):
            if pool.state == "ready":
                await pool.refresh()
            else:  # which may take long
                self._background.begin(("read", key), pool.refresh)
        return self._info(await self._found(key))

    async def _created(self, key: PoolKey, request: PoolRequest) -> tuple[str, Head]:
        """Create a pool, with an empty collection if it is one in the candidate store."""
        engine = self._engine(request.store or "local")
        if engine is None or (await self._records.heads([key]))[0]:
            return await self._records.create(key, request)
        encoder = self._backends[request.encoder or "default"].encoder
        collection = await empty_collection(key, engine, encoder)
        try:
            incarnation, head = await self._records.create(key, request, collection)
            made = await self._records.stored(key)
        except BaseException:
            await engine.drop(collection.name)
            raise
        if made is None or made.collection.name != collection.name:  # another one was first
            await engine.drop(collection.name)
        return incarnation, head

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
            NamespaceFull: The pools of the namespace would exceed theirs.
            NotEnoughMemory: The candidates would not fit into this replica's memory.
            ServiceError: The encoder failed.
        """
        wanted = await asyncio.to_thread(distinct, candidates)
        return await self._edited(namespace, name, lambda pool: pool.upsert(wanted, progress))

    async def remove(self, namespace: str, name: str, id: str) -> Edited:  # noqa: A002
        """Remove a candidate; raises CandidateNotFound if the pool lacks it."""
        removed = await self.remove_many(namespace, name, [id])
        if not removed.removed:
            raise CandidateNotFound(f"pool '{name}' has no candidate '{id}'")
        return Edited(removed.version, 0, 0, removed.size)

    async def remove_many(self, namespace: str, name: str, ids: Collection[str]) -> Removed:
        """Remove all candidates with these ids in one version; ignore ids that the pool lacks."""
        return await self._edited(namespace, name, lambda pool: pool.remove(ids))

    async def replace(
        self, namespace: str, name: str, batches: Callable[[PoolEncoder], AsyncIterable[Batch]]
    ) -> Edited:
        """Replace all candidates of a pool, in one new version; raises as `upsert`.

        Args:
            namespace: Namespace of the pool.
            name: Name of the pool.
            batches: Returns candidates with distinct ids, and their vectors by an encoder.
        """
        return await self._edited(namespace, name, lambda pool: pool.replace(batches(pool.encoder)))

    async def move(self, namespace: str, name: str, to: StoreName) -> PoolInfo:
        """Copy a pool into the candidate store, and let its name stand for the copy.

        Turns go on meanwhile. Edits of a pool in memory are copied as well.

        Args:
            namespace: Namespace of the pool.
            name: Name of the pool, or an alias of it.
            to: The store, which must be an engine.

        Raises:
            InvalidRequest: This service has no such engine.
            Conflict: The pool was edited while it was copied out of another candidate store.
            StoreUnavailable: The engine is away.
        """
        engine = self._engine(to)
        if engine is None:
            raise InvalidRequest.field(_no_store(to), "store")
        await self.load(namespace, name)
        pool = await self._found(PoolKey(namespace, name), newest=True)
        if isinstance(pool, RemotePool):
            read, view = pool.known, pool.view()
            filled = await filled_collection(pool.key, engine, pool.encoder, view.scan())
            await pool.stand_for(filled, engine, read, await engine.count(filled.name))
        else:
            assert isinstance(pool, LocalPool)  # noqa: S101 - there is no other
            await pool.move_to(engine)
            await self._directory.count_change()
        moved = self._pools[await self._look_up(pool.key)]
        await moved.refresh()
        return self._info(moved)

    async def drop(self, namespace: str, name: str) -> None:
        """Delete a pool.

        Raises:
            Conflict: The name is an alias, or an alias points at the pool.
        """
        key = PoolKey(namespace, name)
        for alias, to in (await self._directory.aliases()).items():
            if alias == key:
                raise Conflict(f"'{name}' is an alias of pool '{to.name}'; delete the alias")
            if to == key:
                raise Conflict(f"alias '{alias.name}' points at pool '{name}'; move it first")
        while log := await self._records.read(key):
            stored = await self._records.stored(key)
            if await self._records.drop(key, log) != "conflict":
                if stored and (engine := self._engine(stored.head.store_name)):
                    await engine.drop(stored.collection.name)
                self._files.remove(key)
                await self._directory.remove(key, log.position.incarnation)
                await self._directory.count_change()
                return self._forget(key)
        self._forget(key)
        raise _not_found(key)

    async def point(
        self, namespace: str, alias: str, to: str, expected: str | None = None
    ) -> PoolInfo:
        """Create an alias, or point it at another pool; return the pool.

        Every replica goes on with the former pool until it has read the other one.

        Args:
            namespace: Namespace of both.
            alias: Name of the alias.
            to: Name of the pool.
            expected: The pool that the alias should point at now; None for any or none.

        Raises:
            InvalidRequest: `to` is an alias itself.
            Conflict: A pool has the name `alias`, or the alias does not point at `expected`.
        """
        name, target = PoolKey(namespace, alias), PoolKey(namespace, to)
        pool = await self._found(target, newest=True)  # and begin to read it
        if pool.key != target:
            message = f"'{to}' is an alias; name its pool, '{pool.key.name}'"
            raise InvalidRequest.field(message, "to")
        former = PoolKey(namespace, expected) if expected else None
        await self._directory.point(name, target, former)
        await self._directory.count_change()
        self._aliases[name] = target
        return self._info(pool)

    async def unpoint(self, namespace: str, alias: str) -> None:
        """Delete an alias, and not its pool; raises PoolNotFound if there is no such alias."""
        name = PoolKey(namespace, alias)
        await self._directory.unpoint(name)
        await self._directory.count_change()
        self._aliases.pop(name, None)

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await log_errors(self._poll)

    async def _poll(self) -> None:
        """Look for changes in Redis, and start background work: no pool delays the others."""
        changes = await self._directory.changes()
        self._check_database(changes.database_id)
        if changes != self._changes or monotonic() > self._next_full_poll:
            await self._compare(changes.database_id)
            self._changes, self._next_full_poll = changes, monotonic() + FULL_POLL_SECONDS
        for key, head in list(self._heads.items()):
            if (pool := self._pools.get(key)) is None or pool.busy:
                continue
            if pool.head == head:
                self._keep_up(pool)
            else:
                self._begin_read(pool, head)

    async def _compare(self, database_id: str) -> None:
        """Read all names, and the heads of the pools in memory; give up those that are idle."""
        known = dict(self._pools)  # the names may lack a pool that is created from here on
        names, self._aliases = await self._directory.names(), await self._directory.aliases()
        asked = {*self._served}
        if self._at_start is None:
            asked |= {*self._first, *self._files.in_use(database_id)}
        wanted = known.keys() | {self._aliases.get(name, name) for name in asked}
        keys = sorted(wanted & names.keys())
        for key, head in zip(keys, await self._records.heads(keys), strict=True):
            if head is None:
                await self._directory.remove(key, names[key])
                self._forget_gone(key, known)
            elif self._open(key, head):
                self._heads[key] = head
        for key in known.keys() - names.keys():
            self._forget_gone(key, known)
        self._names = names.keys()
        if self._at_start is None:
            self._at_start = list(self._pools.values())
        for key, pool in known.items():
            if monotonic() - pool.asked_at > IDLE_SECONDS and not pool.busy:
                self._forget(key)

    def _check_database(self, database_id: str) -> None:
        if self._changes and self._changes.database_id != database_id:
            self._metrics.redis_losses.labels("database").inc()
            _log.error("Redis lost its data: %d pools, and all sessions", len(self._names))
            self._filled = self._fill is None
            self._changes = None  # compare everything, even if the number is the same
        if not self._filled:
            self._background.begin("fill", self._refill)

    async def _refill(self) -> None:
        if self._fill:
            await self._fill()
            self._filled = True

    async def _check_number(self, key: PoolKey, most: int) -> None:
        names = await self._directory.names()
        has = sum(other.namespace == key.namespace for other in names)
        if key not in names and has >= most:
            raise self._namespace_full(
                "pools", f"namespace '{key.namespace}' has {has} pools, and may have {most}"
            )

    async def _check_growth(self, namespace: str, growth: int) -> None:
        names = {*await self._directory.names(), *self._pools}
        keys = [key for key in names if key.namespace == namespace]
        read = {key: pool.candidate_bytes for key in keys if (pool := self._pools.get(key))}
        unread = [key for key in keys if not read.get(key)]
        summaries = await self._records.summaries(unread)
        size = growth + sum(read.values()) + sum(one.bytes for one in summaries if one)
        most = self._max_bytes
        if growth > 0 and most is not None and size > most:
            raise self._namespace_full(
                "pools_bytes",
                f"the pools of namespace '{namespace}' would have {size} bytes, more than the "
                f"limit of {most}; nothing was changed",
            )

    def _namespace_full(self, what: Rejected, detail: str) -> NamespaceFull:
        self._metrics.rejected_requests.labels(what).inc()
        return NamespaceFull(detail)

    def _count(self, state: PoolState) -> int:
        pools = self._pools.values()
        return sum(("behind" if pool.behind else pool.state) == state for pool in pools)

    def _begin_read(self, pool: Pool, head: Head) -> None:
        self._background.begin(("read", pool.key), partial(self._follow, pool, head))

    async def _follow(self, pool: Pool, head: Head) -> None:
        acting.set(pool.key.namespace)  # in this task, for its share of the encoder
        try:
            if await pool.follow(head):
                self._keep_up(pool)
        except PoolMoved:
            await self._look_up(pool.key)

    def _keep_up(self, pool: Pool) -> None:
        """Begin to fold a long log, and to build a missing index."""
        if pool.forgotten:
            return
        if isinstance(pool, RemotePool):
            if pool.needs_measuring:
                self._background.begin(("measure", pool.key), pool.measure)
            return
        assert isinstance(pool, LocalPool)  # noqa: S101 - there is no other
        if log_is_long(pool):
            self._background.begin(("fold", pool.key), partial(fold, pool, self._workers))
        if needs_index(pool, self._exact_limit):
            build = partial(build_index, pool, self._workers, self._files)
            self._background.begin(("index", pool.key), build)

    def _target(self, name: PoolKey) -> PoolKey:
        """Return the pool that a name stands for here.

        An alias that was moved stands for its former pool until the new one has been read.
        """
        if (to := self._aliases.get(name)) is None:
            self._served.pop(name, None)
            return name
        former = self._served.get(name, to)
        if former != to and self._has_read(former) and not self._has_read(to):
            return former
        self._served[name] = to
        return to

    def _has_read(self, key: PoolKey) -> bool:
        pool = self._pools.get(key)
        return pool is not None and pool.state == "ready"

    def _pool(self, key: PoolKey) -> Pool:
        if obstacle := self._unserved.get(key):
            raise PoolNotReady(f"pool '{key.name}' cannot be served: {obstacle}")
        if (pool := self._pools.get(key)) is None:
            self._check_known()
            raise _not_found(key)
        return pool

    async def _found(self, name: PoolKey, *, newest: bool = False) -> Pool:
        """Return a pool, and wait a moment if it is being read.

        Args:
            name: Of the pool or an alias.
            newest: Whether to ask Redis for the pool of the alias.
        """
        key = await self._directory.resolve(name) if newest else self._target(name)
        if key not in self._pools:
            key = await self._look_up(name)
            if key in self._pools:
                self._begin_read(self._pools[key], self._heads[key])
        pool = self._pool(key)
        pool.asked_at = monotonic()
        if pool.state != "ready":
            await self._background.wait(("read", key), FIRST_READ_SECONDS)
        return pool

    async def _look_up(self, name: PoolKey) -> PoolKey:
        """Return the pool of a name in Redis, which is open now if this replica has its encoder."""
        key = await self._directory.resolve(name)
        if key == name:
            self._aliases.pop(name, None)
        else:
            self._aliases[name] = key
        (head,) = await self._records.heads([key])
        if head is None:
            self._forget(key)
            raise _not_found(key)
        if self._open(key, head):
            self._heads[key] = head
        return key

    async def _edited(
        self, namespace: str, name: str, edit: Callable[[Pool], Awaitable[_Result]]
    ) -> _Result:
        while True:
            pool = await self._found(PoolKey(namespace, name), newest=True)
            try:
                edited = await edit(pool)
            except PoolMoved:
                await self._look_up(pool.key)
                if other := self._pools.get(pool.key):
                    await other.refresh()
                continue
            if isinstance(pool, LocalPool):  # one in a candidate store counts its edits itself
                await self._directory.count_change()
            return edited

    def _info(self, pool: Pool) -> PoolInfo:
        aliases = sorted(alias.name for alias, to in self._aliases.items() if to == pool.key)
        return replace(pool.info(), aliases=aliases)

    def _unread(self, key: PoolKey, summary: Summary) -> PoolInfo:
        return replace(
            self._info(self._new(key, summary)),
            state="unread",
            version=summary.version,
            size=summary.size,
            created_at=summary.created_at,
            **summary.settings._asdict(),
        )

    def _check_known(self) -> None:
        if self._at_start is None:
            raise StateUnavailable("the pools are not known yet, because Redis is unavailable")

    def _open(self, key: PoolKey, head: Head) -> Pool | None:
        """Return the pool with this head; None if this replica cannot serve it."""
        known = self._pools.get(key)
        if known and (known.encoder_name, _store_name(known)) == (
            head.encoder_name,
            head.store_name,
        ):
            return known
        obstacle, before = self._obstacle(head), self._unserved.get(key)
        if known or before:
            self._forget(key)  # an earlier pool of this name
        if obstacle:
            if obstacle != before:
                _log.warning("pool %s cannot be served: %s", key.name, obstacle)
            self._unserved[key] = obstacle
            return None
        self._pools[key] = self._new(key, head)
        return self._pools[key]

    def _obstacle(self, head: Head | Summary) -> str | None:
        """Return why this replica cannot serve a pool; None if it can."""
        if head.encoder_name not in self._backends:
            return _no_encoder(head.encoder_name)
        if head.store_name != "local" and self._engine(head.store_name) is None:
            return _no_store(head.store_name)
        return None

    def _engine(self, store: StoreName) -> CandidateStore | None:
        return self._store if self._store and self._store.name == store else None

    def _new(self, key: PoolKey, head: Head | Summary) -> Pool:
        backend = self._backends[head.encoder_name]
        if engine := self._engine(head.store_name):
            return RemotePool(
                key, backend, engine, self._workers, self._metrics,
                count_change=self._directory.count_change,
            )  # fmt: skip
        return LocalPool(
            key, backend, self._workers, self.memory, self._metrics,
            exact_limit=self._exact_limit, max_size=self._max_size,
            check_growth=self._check_growth if self._max_bytes else None,
        )  # fmt: skip

    def _forget_gone(self, key: PoolKey, known: Mapping[PoolKey, Pool]) -> None:
        if self._pools.get(key) is known.get(key):  # else it was created anew
            self._files.remove(key)
            self._forget(key)

    def _forget(self, key: PoolKey) -> None:
        self._unserved.pop(key, None)
        self._heads.pop(key, None)
        self._served = {alias: to for alias, to in self._served.items() if to != key}
        if pool := self._pools.pop(key, None):
            pool.forgotten = True
            self._metrics.forget_pool(*key)


def _no_encoder(encoder_name: EncoderName) -> str:
    return f"this service has no encoder '{encoder_name}': TURNWISE_PAIRWISE names its folder"


def _not_found(key: PoolKey) -> PoolNotFound:
    return PoolNotFound(f"there is no pool '{key.name}'")


def _no_store(store: StoreName) -> str:
    return f"this service has no candidate store '{store}': TURNWISE_STORE_URL names it"


def _store_name(pool: Pool) -> StoreName:
    return pool.store.name if isinstance(pool, RemotePool) else "local"

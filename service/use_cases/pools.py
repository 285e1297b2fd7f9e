"""The use cases of pools: what a request, or a command, does with them."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from turnwise.service.errors import (
    CandidateNotFound,
    Conflict,
    InvalidRequest,
    NamespaceFull,
    PoolNotFound,
    StateUnavailable,
)
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.candidate import Candidate, remove_duplicates
from turnwise.service.pools.encoding import EncodingProgress, PoolEncoder
from turnwise.service.pools.followed import FollowedPools
from turnwise.service.pools.opener import explain_missing_encoder, explain_missing_store
from turnwise.service.pools.pool import Pool, Revise
from turnwise.service.pools.redis.values import PoolKey, PoolMoved, Revision, Summary
from turnwise.service.pools.stores.new_collection import create_collection, drop_unused
from turnwise.service.pools.view import CandidateBatch, PoolView
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import Edited, PoolInfo, PoolRequest, Removed

_Result = TypeVar("_Result")


class Pools:
    """Reads, searches and changes pools, in memory and in the candidate store.

    Methods that name a pool also take an alias of it. They raise PoolNotFound if the pool does not
    exist, and PoolNotReady if it has not been read yet or this replica lacks its encoder. Without
    Redis they raise StateUnavailable; `view` and `info` do not need it for a pool in memory. Edits
    raise Overloaded if the namespace has too many at once.
    """

    def __init__(
        self,
        followed: FollowedPools,
        metrics: Metrics,
        *,
        max_pools: int | None = None,
        max_aliases: int | None = None,
    ) -> None:
        """Work on the pools that this replica follows.

        Args:
            followed: These pools.
            metrics: Counts what is rejected.
            max_pools: Greatest number of pools of a namespace; None for no limit.
            max_aliases: Greatest number of aliases of a namespace; None for no limit.
        """
        self._followed = followed
        self._metrics = metrics
        self._max_pools = max_pools
        self._max_aliases = max_aliases
        self._opener = followed.opener
        self._directory = followed.directory
        self._records = followed.records

    async def view(self, namespace: str, name: str) -> PoolView:
        """Return the current version of a pool; first read the pool if it is not in memory.

        Raises:
            PoolNotFound: There is no such pool in Redis either.
            PoolNotReady: Reading takes longer than `FIRST_READ_SECONDS`; it goes on.
        """
        return (await self._followed.find(PoolKey(namespace, name))).view()

    async def info(self, namespace: str, name: str) -> PoolInfo:
        """Return the description of a pool; begin to read it if it is not in memory."""
        return self._describe(await self._followed.find(PoolKey(namespace, name)))

    async def list(self, namespace: str) -> list[PoolInfo]:
        """Return the descriptions of the pools of a namespace, by name; read none of them."""
        unread = self._followed.list_unread(namespace)
        pools = self._followed.in_memory.values()
        infos = [pool.info() for pool in pools if pool.key.namespace == namespace]
        for key, summary in zip(unread, await self._records.summaries(unread), strict=True):
            if summary and not self._opener.find_obstacle(summary.revision):
                infos.append(self._describe_unread(key, summary))
        aliases_of = self._followed.names.aliases_of
        named = [replace(info, aliases=aliases_of(PoolKey(namespace, info.name))) for info in infos]
        return sorted(named, key=lambda info: info.name)

    async def load(self, namespace: str, name: str) -> None:
        """Read one pool and wait for it, also before this replica follows the pools in Redis."""
        while True:
            key = await self._followed.look_up(PoolKey(namespace, name))
            try:
                if pool := self._followed.in_memory.get(key):
                    await pool.refresh()
            except PoolMoved:
                continue
            except PoolNotFound:
                self._followed.forget(key)
                raise
            return

    async def create(self, namespace: str, name: str, request: PoolRequest) -> PoolInfo:
        """Create an empty pool, or change the settings of an existing one, and begin to read it.

        Raises as `write_settings`.
        """
        key = await self.write_settings(namespace, name, request)
        pool = self._followed.in_memory.get(key)
        if pool and pool.state == "ready":
            await self.load(*key)
        elif pool:
            self._followed.begin_read(pool)  # it may take long
        return self._describe(await self._followed.find(key))

    async def write_settings(self, namespace: str, name: str, request: PoolRequest) -> PoolKey:
        """Create an empty pool, or change the given settings of an existing one.

        Returns the key of the pool, which is not read.

        Args:
            namespace: Namespace of the pool.
            name: Name of the pool.
            request: The settings; and the encoder and the store of the pool, by default those of
                the existing pool, or `default` and `local`.

        Raises:
            Conflict: The existing pool has another encoder or store.
            InvalidRequest: This service has no such encoder or store.
            NamespaceFull: The namespace has as many pools as it may have.
            StoreUnavailable: The candidate store does not answer.
        """
        encoder = request.encoder
        store = request.store
        if encoder and encoder not in self._opener.backends:
            raise InvalidRequest.field(explain_missing_encoder(encoder), "encoder")
        if store and store != "local" and self._opener.find_engine(store) is None:
            raise InvalidRequest.field(explain_missing_store(store), "store")
        key = await self._directory.resolve(PoolKey(namespace, name))
        if self._max_pools is not None:
            await self._directory.check_number(key, self._max_pools)
        revision = await self._create(key, request)
        await self._directory.count_change()
        if encoder and encoder != revision.encoder_name:
            raise Conflict(
                f"pool '{key.name}' exists and has the encoder '{revision.encoder_name}'"
            )
        if store and store != revision.store_name:
            raise Conflict(f"pool '{key.name}' exists and is in the store '{revision.store_name}'")
        self._followed.open(key, revision)
        return key

    async def _create(self, key: PoolKey, request: PoolRequest) -> Revision:
        """Create a pool and list it, or change the settings of an existing one."""
        incarnation, revision = await self._make_record(key, request)
        try:
            await self._directory.add(key, incarnation, most=self._max_pools)
        except (Conflict, NamespaceFull):
            await self._delete(key)  # it was never listed
            raise
        return revision

    async def _make_record(self, key: PoolKey, request: PoolRequest) -> tuple[str, Revision]:
        """Create the record of a pool, and an empty collection if the pool is in a store.

        Returns:
            The incarnation of the pool, and its revision.
        """
        engine = self._opener.find_engine(request.store or "local")
        if engine is None or (await self._records.revisions([key]))[0]:
            return await self._records.create(key, request)
        encoder = self._opener.backends[request.encoder or "default"].encoder
        collection = await create_collection(key, engine, encoder)
        try:
            return await self._records.create(key, request, collection)
        finally:  # another replica may have created the pool first, with its own collection
            await drop_unused(self._records, key, engine, collection.name)

    async def upsert(
        self,
        namespace: str,
        name: str,
        candidates: Sequence[Candidate],
        progress: EncodingProgress | None = None,
    ) -> Edited:
        """Add candidates, or replace those with the same ids: all in one version, or none.

        Raises:
            InvalidRequest: Two different candidates share an id.
            PoolFull: The pool would exceed its limit.
            NamespaceFull: The pools of the namespace would exceed theirs.
            NotEnoughMemory: The candidates would not fit into this replica's memory.
            ServiceError: The encoder failed.
        """
        wanted = await asyncio.to_thread(remove_duplicates, candidates)
        return await self._edit(namespace, name, lambda pool: pool.upsert(wanted, progress))

    async def add_examples(
        self,
        namespace: str,
        name: str,
        candidates: Sequence[Candidate],
        progress: EncodingProgress | None = None,  # noqa: ARG002 - as `upsert` has it
    ) -> Edited:
        """Add the examples of candidates to those with the same ids; all in one version, or none.

        A candidate keeps at most `MOST_EXAMPLES`: first those that it has, then the new ones.

        Raises:
            InvalidRequest: Two different candidates share an id.
            CandidateNotFound: The pool lacks one of the ids.
        """
        wanted = {each.id: each for each in await asyncio.to_thread(remove_duplicates, candidates)}
        view = await self.view(namespace, name)
        found = await view.fetch(list(wanted))
        for id, candidate in zip(wanted, found, strict=True):
            if candidate is None:
                raise CandidateNotFound(f"pool '{view.name}' has no candidate '{id}'")
        edited = await self.revise(
            namespace, name, lambda each: each.add_examples(wanted[each.id].examples), list(wanted)
        )
        return replace(edited, unchanged=len(wanted) - edited.upserted)

    async def revise(
        self, namespace: str, name: str, revise: Revise, ids: Sequence[str] | None = None
    ) -> Edited:
        """Replace candidates by what `revise` returns, in one version; raises as `upsert`.

        An equal candidate changes nothing. Ids that the pool lacks are ignored; None means all.
        """
        return await self._edit(namespace, name, lambda pool: pool.revise(revise, ids))

    async def remove(self, namespace: str, name: str, id: str) -> Edited:
        """Remove a candidate; raises CandidateNotFound if the pool lacks it."""
        removed = await self.remove_many(namespace, name, [id])
        if not removed.removed:
            raise CandidateNotFound(f"pool '{name}' has no candidate '{id}'")
        return Edited(removed.version, 0, 0, removed.size)

    async def remove_many(self, namespace: str, name: str, ids: Iterable[str]) -> Removed:
        """Remove all candidates with these ids in one version; ignore ids that the pool lacks."""
        return await self._edit(namespace, name, lambda pool: pool.remove(ids))

    async def replace(
        self,
        namespace: str,
        name: str,
        batches: Callable[[PoolEncoder], AsyncIterable[CandidateBatch]],
    ) -> Edited:
        """Replace all candidates of a pool, in one new version; raises as `upsert`.

        A pool that is not in memory is not read. `batches` returns candidates with distinct ids and
        their vectors by an encoder; it is called again if others edit the pool meanwhile.
        """
        with self._followed.resources.workers.edits.admit():
            while True:
                key = await self._followed.look_up(PoolKey(namespace, name))
                pool = self._followed.get(key)
                with suppress(PoolMoved):
                    return await pool.replace(partial(batches, pool.encoder))

    async def move(self, namespace: str, name: str, to: StoreName) -> PoolInfo:
        """Copy a pool from memory into the candidate store, and point its name at the copy.

        Turns and edits go on meanwhile. A pool that is in the store already stays as it is.

        Raises:
            InvalidRequest: This service has no such engine.
            StoreUnavailable: The engine does not answer.
        """
        engine = self._opener.find_engine(to)
        if engine is None:
            raise InvalidRequest.field(explain_missing_store(to), "store")
        await self.load(namespace, name)
        pool = await self._followed.find(PoolKey(namespace, name), newest=True)
        with suppress(PoolMoved):  # another replica was first
            await pool.move_to(engine)
        await self.load(*pool.key)
        return await self.info(*pool.key)

    async def drop(self, namespace: str, name: str) -> None:
        """Delete a pool; if an earlier deletion failed halfway, finish it.

        A pool or an alias that Redis lost is no longer missing.

        Raises:
            Conflict: The name is an alias, or an alias points at the pool.
        """
        key = PoolKey(namespace, name)
        listed_incarnation, was_missing = await self._directory.unlist(key)
        try:
            deleted_incarnation = await self._delete(key)
        except BaseException:
            if listed_incarnation:
                with suppress(Conflict, StateUnavailable):  # then a retry still finds the pool
                    await self._directory.add(key, listed_incarnation)
            raise
        if deleted_incarnation:  # another replica may have listed it again meanwhile
            await self._directory.remove(key, deleted_incarnation)
        self._followed.forget(key)
        if not (listed_incarnation or deleted_incarnation or was_missing):
            raise PoolNotFound(f"there is no pool {key.describe()}")
        self._followed.resources.files.remove(key)
        await self._directory.count_change()

    async def _delete(self, key: PoolKey) -> str | None:
        """Delete a pool's record and its candidates; return its incarnation if there was one."""
        while log := await self._records.read(key):
            stored = await self._records.stored(key)
            if stored and (engine := self._opener.find_engine(stored.revision.store_name)):
                await engine.drop(stored.collection.name)  # while the record still names it
            if await self._records.drop(key, log) != "conflict":
                return log.position.incarnation
        return None

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
            NamespaceFull: The alias would be new, and the namespace has as many as it may have.
        """
        name = PoolKey(namespace, alias)
        target = PoolKey(namespace, to)
        pool = await self._followed.find(target, newest=True)  # and begin to read it
        if pool.key != target:
            message = f"'{to}' is an alias; name its pool, '{pool.key.name}'"
            raise InvalidRequest.field(message, "to")
        former = PoolKey(namespace, expected) if expected else None
        await self._directory.point(name, target, former, most=self._max_aliases)
        self._followed.names.note_alias(name, target)
        await self._directory.count_change()
        return self._describe(pool)

    async def unpoint(self, namespace: str, alias: str) -> None:
        """Delete an alias, and not its pool; raises PoolNotFound if there is no such alias."""
        name = PoolKey(namespace, alias)
        await self._directory.unpoint(name)
        self._followed.names.note_alias(name, name)
        await self._directory.count_change()

    async def _edit(
        self, namespace: str, name: str, edit: Callable[[Pool], Awaitable[_Result]]
    ) -> _Result:
        """Edit the newest version of a pool; begin again if the pool moves to another store."""
        with self._followed.resources.workers.edits.admit():
            while True:
                pool = await self._followed.find(PoolKey(namespace, name), newest=True)
                try:
                    return await edit(pool)
                except PoolMoved:
                    await self.load(*pool.key)

    def _describe(self, pool: Pool) -> PoolInfo:
        return replace(pool.info(), aliases=self._followed.names.aliases_of(pool.key))

    def _describe_unread(self, key: PoolKey, summary: Summary) -> PoolInfo:
        return replace(
            self._opener.open(key, summary.revision).info(),
            state="unread",
            version=summary.version,
            size=summary.size,
            created_at=summary.created_at,
            **summary.revision.settings._asdict(),
        )

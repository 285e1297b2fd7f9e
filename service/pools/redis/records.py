"""Reads and writes pools in Redis: each has a log of edits, and chunks of candidates.

The keys of a pool share a hash tag: `meta` (hash), `log` (list of entries), `chunk:NAME` (hash: the
candidates, their vectors by each model, and those of their examples if they have any). A pool in a
candidate store has only `meta`, which names its `store` and `collection`. Nothing else says which
collection a pool has.

Entry i of the log makes version base + 1 + i; a fold replaces the oldest entries by one. Each
version has a random stamp, because a Redis that lost its last second of writes may use a version
number twice.

Staged chunks expire. The script that commits an entry removes the expiry of its chunks, so a
version is written whole or not at all, and chunks that are never committed disappear.
"""

import asyncio
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic, time
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import LockError

from turnwise.service.errors import StateUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.encoding import Kind
from turnwise.service.pools.memory.edits import Edit, split_edit
from turnwise.service.pools.memory.examples import Size
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.redis.commands import Commands
from turnwise.service.pools.redis.values import (
    NOWHERE,
    SETTINGS,
    Chunk,
    Collection,
    Entry,
    Log,
    Outcome,
    PoolKey,
    Position,
    Revision,
    StoredPool,
    Summary,
    pack_candidates,
    pack_settings,
    unpack_settings,
)
from turnwise.service.redis.connection import redis_errors
from turnwise.service.wire.fields import EncoderName, StoreName
from turnwise.service.wire.pools import PoolRequest

CHUNK = 2000
"""Vectors in a chunk, of candidates and examples, which take 1.7 MB with the default model."""

READERS = 8
"""Chunks that are read at once, of all pools."""
_STAGED_SECONDS = 900
RENEW_SECONDS = 300
"""Seconds of staging after which the chunks so far get `_STAGED_SECONDS` again."""
_GRACE_SECONDS = 120
_LOCK_SECONDS = 120
EDIT_SECONDS = 15.0
"""Seconds after which the lock of edits expires if its replica has ended."""


class PoolRecords(Commands):
    """Commands on pools; each raises StateUnavailable if Redis is unavailable."""

    def __init__(self, redis: Redis, metrics: Metrics, *, fingerprint: str) -> None:
        super().__init__(redis, metrics)
        self.fingerprint = fingerprint
        self._fields = {
            "candidates": f"vectors:{fingerprint}",
            "examples": f"examples:{fingerprint}",
        }
        self._readers = asyncio.Semaphore(READERS)

    async def revisions(self, keys: Sequence[PoolKey]) -> list[Revision | None]:
        """Return the revision of each pool's newest version, or None if there is no such pool."""
        found = await self._read_metas(keys, *_REVISION_FIELDS)
        return [_read_revision(fields) for fields in found]

    async def summaries(self, keys: Sequence[PoolKey]) -> list[Summary | None]:
        """Return a summary of each pool, or None if there is no such pool."""
        fields = ("version", "size", "bytes", "stored", "created_at", *_REVISION_FIELDS)
        return [_read_summary(found) for found in await self._read_metas(keys, *fields)]

    async def create(
        self, key: PoolKey, request: PoolRequest, collection: Collection | None = None
    ) -> tuple[str, Revision]:
        """Create a pool, or change settings of an existing one.

        Returns the incarnation of the pool and its revision.

        An existing pool whose encoder or store is not the one requested does not change.

        Args:
            key: The pool.
            request: Its settings, encoder and store.
            collection: The new, empty collection of a new pool in a candidate store.
        """
        made = [collection.name, collection.fingerprint] if collection else ["", ""]
        arguments = [
            secrets.token_hex(8),
            time(),
            request.encoder or "",
            request.store or "",
            *made,
            *pack_settings(request),
        ]
        incarnation, *found = await self.run_script("pool_write", "create", _keys(key), arguments)
        revision = _read_revision(found)
        assert revision  # the script made the pool
        return incarnation.decode(), revision

    async def stored(self, key: PoolKey) -> StoredPool | None:
        """Return a pool in a candidate store; None if there is no such pool, or no store has it."""
        (found,) = await self._read_metas([key], *_STORED_FIELDS, *_REVISION_FIELDS)
        meta = {
            name: value.decode()
            for name, value in zip(_STORED_FIELDS, found, strict=False)
            if value
        }
        revision = _read_revision(found[len(_STORED_FIELDS) :])
        if revision is None or "collection" not in meta:
            return None
        return StoredPool(
            revision,
            Position(meta["incarnation"], int(meta["version"]), revision.stamp),
            int(meta.get("size", 0)),
            float(meta["created_at"]),
            Collection(
                meta["collection"],
                meta["fingerprint"],
                width=int(meta["width"]) if "width" in meta else None,
                recall=float(meta["recall"]) if "recall" in meta else None,
                measured=int(meta.get("measured", 0)),
            ),
        )

    @asynccontextmanager
    async def lock_edits(self, key: PoolKey) -> AsyncIterator[None]:
        """Let no other replica edit a pool in a candidate store until the block ends."""
        async with self.hold_lock(_key(key, "edit"), EDIT_SECONDS) as held:
            renewing = asyncio.create_task(self._renew_lock(held.lock))
            try:
                yield
            finally:
                renewing.cancel()

    async def _renew_lock(self, lock: Lock) -> None:
        """Let a lock expire later, again and again: an edit of many candidates takes long."""
        with suppress(LockError):
            while True:
                await asyncio.sleep(EDIT_SECONDS / 3)
                with suppress(StateUnavailable):
                    await self.execute("pool_write", lock.reacquire())

    async def count_edit(self, key: PoolKey, collection: str, size: int) -> int | None:
        """Count an edit of a pool in a candidate store; return its version.

        Returns None if the pool is in another collection now, or was deleted.
        """
        arguments = [collection, secrets.token_hex(8), size]
        version = await self.run_script("pool_write", "count_edit", [_key(key, "meta")], arguments)
        return int(version) or None

    async def note_recall(self, key: PoolKey, collection: Collection) -> None:
        """Store the measured recall of a collection, unless the pool is in another one now."""
        arguments = [
            collection.name,
            collection.width or "",
            collection.recall or "",
            collection.measured,
            secrets.token_hex(8),
        ]
        await self.run_script("pool_write", "note_recall", [_key(key, "meta")], arguments)

    async def move(
        self,
        key: PoolKey,
        read: Position,
        log: Log | None,
        *,
        store: StoreName,
        collection: Collection,
        size: int,
    ) -> bool:
        """Point a pool at another collection, if it has not changed since it was read.

        Args:
            key: The pool.
            read: The version that the collection holds.
            log: Its whole log if it was a local pool; its chunks expire.
            store: The candidate store with the collection.
            collection: The collection.
            size: Number of candidates in it.
        """
        keys = _keys(key, log.chunks if log else ())
        arguments = [
            read.incarnation,
            read.stamp,
            _first_chunk(log),
            secrets.token_hex(8),
            store,
            collection.name,
            collection.fingerprint,
            size,
            _GRACE_SECONDS,
        ]
        return await self._change("move", keys, arguments) == "ok"

    async def read(self, key: PoolKey, has: Position = NOWHERE) -> Log | None:
        """Return the log from a reader's position on, or None if there is no such pool."""
        found = await self.run_script("pool_read", "read", _keys(key), list(has))
        return Log.from_redis(*found) if found else None

    async def chunk(self, key: PoolKey, name: str) -> Chunk | None:
        """Return a chunk, with its vectors if it has this model's.

        Returns None if the chunk is gone because the pool was folded or dropped.
        """
        fields = ["candidates", *self._fields.values()]
        async with self._readers:
            found = await self.execute(
                "pool_read", self._redis.hmget(_chunk_key(key, name), fields)
            )
        return Chunk(*found) if found[0] is not None else None

    async def has_vectors(self, key: PoolKey, name: str) -> bool | None:
        """Return whether a chunk has all vectors by this model; None if the chunk is gone."""
        found = await self.execute("pool_read", self._redis.hkeys(_chunk_key(key, name)))
        fields = {field.decode() for field in found}
        if not fields:
            return None
        needed = {self._fields["candidates"]}
        if any(field.startswith("examples:") for field in fields):
            needed.add(self._fields["examples"])
        return needed <= fields

    async def put_vectors(self, key: PoolKey, name: str, vectors: Float16, kind: Kind) -> None:
        """Add this model's vectors of a chunk's candidates, or of their examples, to the chunk."""
        arguments = [self._fields[kind], vectors.tobytes()]
        await self.run_script("pool_write", "put_vectors", [_chunk_key(key, name)], arguments)

    async def stage(self, key: PoolKey, edit: Edit) -> Entry:
        """Write an edit's chunks, which no reader sees until `commit`."""

        async def whole() -> AsyncIterator[Edit]:
            yield edit

        return await self.stage_parts(key, whole())

    async def stage_parts(self, key: PoolKey, parts: AsyncIterable[Edit]) -> Entry:
        """Write the chunks of an edit that comes in parts, which change different candidates."""
        chunks: list[str] = []
        removed: list[str] = []
        size = Size(0, 0)
        renewed_at = monotonic()
        try:
            async for part in parts:
                for edit in split_edit(part, CHUNK):
                    chunks.append(secrets.token_hex(8))
                    await self._stage_chunk(key, chunks[-1], edit)
                    if monotonic() > renewed_at + RENEW_SECONDS:
                        await self._renew(key, chunks)
                        renewed_at = monotonic()
                removed += part.removed
                size = Size.total([size, part.size])
        except BaseException:
            await self.discard(key, chunks)
            raise
        return Entry(secrets.token_hex(8), chunks, size.candidates, removed, size.examples)

    async def _stage_chunk(self, key: PoolKey, name: str, edit: Edit) -> None:
        packed = await asyncio.to_thread(pack_candidates, edit.candidates)
        fields = ["candidates", packed, self._fields["candidates"], edit.vectors.tobytes()]
        if edit.examples:
            fields += [self._fields["examples"], edit.examples.vectors.tobytes()]
        arguments = [_STAGED_SECONDS, *fields]
        await self.run_script("pool_write", "stage", [_chunk_key(key, name)], arguments)

    async def _renew(self, key: PoolKey, chunks: Iterable[str]) -> None:
        """Let staged chunks expire later: writing all chunks of a large edit takes long."""
        pipeline = self._redis.pipeline(transaction=False)
        for name in chunks:
            pipeline.expire(_chunk_key(key, name), _STAGED_SECONDS)
        await self.execute("pool_write", pipeline.execute())

    async def discard(self, key: PoolKey, chunks: Iterable[str]) -> None:
        """Delete staged chunks that will not be committed."""
        if names := [_chunk_key(key, name) for name in chunks]:
            await self.execute("pool_write", self._redis.unlink(*names))

    async def commit(
        self,
        key: PoolKey,
        read: Position,
        entry: Entry,
        totals: tuple[int, int],
        until: float | None = None,
    ) -> Outcome:
        """Append an entry if the newest version is still the one read, and the time is not over.

        Args:
            key: The pool.
            read: The version that the writer has read.
            entry: The entry.
            totals: Number and bytes of the candidates that the entry results in.
            until: Time that `Directory.lock` yields; None without a lock.
        """
        keys = _keys(key, entry.chunks)
        arguments = [
            read.incarnation,
            read.stamp,
            entry.stamp,
            entry.to_json(),
            entry.count,
            *totals,
            until or "",
        ]
        return await self._change("commit", keys, arguments)

    async def fold(self, key: PoolKey, log: Log, entry: Entry) -> Outcome:
        """Replace all entries of a log, which was read from its start, by one entry."""
        keys = _keys(key, (*entry.chunks, *log.chunks))
        arguments = [
            log.position.incarnation,
            log.base,
            len(log.entries),
            log.position.stamp,
            entry.to_json(),
            len(entry.chunks),
            entry.count - sum(folded.count for folded in log.entries),
            _GRACE_SECONDS,
        ]
        return await self._change("fold", keys, arguments)

    async def lock_upkeep(self, key: PoolKey) -> bool:
        """Return whether this replica got the lock for work that only one of them need do.

        It expires after a while.
        """
        lock = self._redis.set(_key(key, "fold"), b"", nx=True, ex=_LOCK_SECONDS)
        return bool(await self.execute("pool_write", lock))

    async def drop(self, key: PoolKey, log: Log) -> Outcome:
        """Delete a pool whose log was read from its start, if it has not changed since."""
        arguments = [log.position.incarnation, log.position.stamp, _first_chunk(log)]
        return await self._change("drop", _keys(key, log.chunks), arguments)

    async def _read_metas(self, keys: Sequence[PoolKey], *fields: str) -> list[list[bytes | None]]:
        if not keys:
            return []
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hmget(_key(key, "meta"), *fields)
        found: list[list[bytes | None]] = await self.execute("pool_read", pipeline.execute())
        return found

    async def _change(self, script: str, keys: list[str], arguments: list[Any]) -> Outcome:
        """Run a script that changes a pool only if it is as its caller has read it."""
        with redis_errors(self._metrics, "pool_write") as counted:
            outcome: Outcome = (await self._script[script](keys, arguments)).decode()
            if outcome != "ok":
                counted.result = "conflict"
        return outcome


def _first_chunk(log: Log | None) -> str:
    return next(iter(log.entries[0].chunks), "") if log and log.entries else ""


_STORED_FIELDS = (
    "incarnation",
    "version",
    "size",
    "created_at",
    "collection",
    "fingerprint",
    "width",
    "recall",
    "measured",
)
_REVISION_FIELDS = ("stamp", "noted", "encoder", "store", *SETTINGS)


def _read_revision(found: Sequence[bytes | None]) -> Revision | None:
    stamp, noted, encoder, store, *settings = found
    if stamp is None:
        return None
    return Revision(
        stamp.decode(),
        unpack_settings(settings),
        cast(EncoderName, encoder.decode() if encoder else "default"),
        cast(StoreName, store.decode() if store else "local"),
        noted.decode() if noted else "",
    )


def _read_summary(found: list[bytes | None]) -> Summary | None:
    version, size, in_bytes, stored, created_at, *rest = found
    revision = _read_revision(rest)
    if version is None or stored is None or created_at is None or revision is None:
        return None
    # Version 0.1 wrote no size. It stored at least as many candidates.
    return Summary(
        revision, int(version), int(size or stored), int(in_bytes or 0), float(created_at)
    )


def _key(key: PoolKey, name: str) -> str:
    return f"tw:pool:{{{key}}}:{name}"


def _keys(key: PoolKey, chunks: Iterable[str] = ()) -> list[str]:
    return [_key(key, "meta"), _key(key, "log"), *(_chunk_key(key, name) for name in chunks)]


def _chunk_key(key: PoolKey, name: str) -> str:
    return _key(key, f"chunk:{name}")

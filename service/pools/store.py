"""One pool in Redis: a log of edits, and chunks of candidates beside it.

The keys of a pool share a hash tag: `meta` (hash), `log` (list of entries), `chunk:NAME` (hash: the
candidates, and their vectors by each model). Entry i of the log makes version base + 1 + i; a fold
replaces the oldest entries by one. Each version has a random stamp, because a Redis that lost its
last second of writes may use a version number twice.

Staged chunks expire. The script that commits an entry removes the expiry of its chunks, so a
version is written whole or not at all, and chunks that are never committed disappear.
"""

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from time import time
from typing import Any, cast

from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.commands import Commands
from turnwise.service.pools.contents import Edit
from turnwise.service.pools.index import Float16
from turnwise.service.pools.log import (
    NOWHERE,
    SETTINGS,
    Entry,
    Head,
    Log,
    Outcome,
    PoolKey,
    Position,
    Summary,
    pack_candidates,
    pack_settings,
    unpack_settings,
)
from turnwise.service.state.redis import Redis, redis_errors
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import PoolRequest

CHUNK = 2000
"""Candidates in a chunk, which take 1.7 MB with the default model."""

_READERS = 8
"""Chunks that are read at once, of all pools."""
_STAGED_SECONDS = 900
_GRACE_SECONDS = 120
_LOCK_SECONDS = 120


class PoolStore(Commands):
    """Commands on pools; each raises StateUnavailable if Redis is unavailable."""

    def __init__(self, redis: Redis, metrics: Metrics, *, fingerprint: str) -> None:
        super().__init__(redis, metrics)
        self._field = f"vectors:{fingerprint}"
        self._readers = asyncio.Semaphore(_READERS)

    async def heads(self, keys: Sequence[PoolKey]) -> list[Head | None]:
        """Return the head of each pool's newest version, or None if there is no such pool."""
        found = await self._metas(keys, "stamp", "encoder", *SETTINGS)
        return [_head(*fields) for fields in found]

    async def summaries(self, keys: Sequence[PoolKey]) -> list[Summary | None]:
        """Return a summary of each pool, or None if there is no such pool."""
        fields = ("version", "size", "bytes", "stored", "created_at", "encoder", *SETTINGS)
        return [_summary(found) for found in await self._metas(keys, *fields)]

    async def create(self, key: PoolKey, request: PoolRequest) -> tuple[str, EncoderName]:
        """Create a pool, or change settings of an existing one; return its incarnation and encoder.

        An existing pool that has another encoder than the one requested does not change.
        """
        settings = pack_settings(request)
        arguments = [secrets.token_hex(8), time(), request.encoder or "", *settings]
        incarnation, found = await self._run("pool_write", "create", _keys(key), arguments)
        return incarnation.decode(), _encoder_name(found)

    async def read(self, key: PoolKey, has: Position = NOWHERE) -> Log | None:
        """Return the log from a reader's position on, or None if there is no such pool."""
        found = await self._run("pool_read", "read", _keys(key), list(has))
        return Log.from_redis(*found) if found else None

    async def chunk(self, key: PoolKey, name: str) -> tuple[bytes, bytes | None] | None:
        """Return a chunk's candidates, and their vectors if it has this model's.

        Returns None if the chunk is gone because the pool was folded or dropped.
        """
        fields = ["candidates", self._field]
        async with self._readers:
            get = lambda: self._redis.hmget(_chunk(key, name), fields)  # noqa: E731
            found = await self._do("pool_read", get)
        return (found[0], found[1]) if found[0] is not None else None

    async def has_vectors(self, key: PoolKey, name: str) -> bool | None:
        """Return whether a chunk has this model's vectors; None if the chunk is gone."""
        fields = await self._do("pool_read", lambda: self._redis.hkeys(_chunk(key, name)))
        return self._field.encode() in fields if fields else None

    async def put_vectors(self, key: PoolKey, name: str, vectors: Float16) -> None:
        """Add this model's vectors to a chunk."""
        arguments = [self._field, vectors.tobytes()]
        await self._run("pool_write", "put_vectors", [_chunk(key, name)], arguments)

    async def stage(self, key: PoolKey, edit: Edit) -> Entry:
        """Write an edit's chunks, which no reader sees until `commit`."""
        chunks: list[str] = []
        try:
            for start in range(0, len(edit.candidates), CHUNK):
                chunks.append(secrets.token_hex(8))
                some = slice(start, start + CHUNK)
                await self._stage(key, chunks[-1], edit.candidates[some], edit.vectors[some])
        except BaseException:
            await self.discard(key, chunks)
            raise
        return Entry(secrets.token_hex(8), chunks, len(edit.candidates), list(edit.removed))

    async def discard(self, key: PoolKey, chunks: Iterable[str]) -> None:
        """Delete staged chunks that will not be committed."""
        if names := [_chunk(key, name) for name in chunks]:
            await self._do("pool_write", lambda: self._redis.unlink(*names))

    async def commit(
        self, key: PoolKey, read: Position, entry: Entry, totals: tuple[int, int]
    ) -> Outcome:
        """Append an entry if the newest version is still the one read.

        Args:
            key: The pool.
            read: The version that the writer has read.
            entry: The entry.
            totals: Number and bytes of the candidates that the entry results in.
        """
        keys = [*_keys(key), *(_chunk(key, name) for name in entry.chunks)]
        arguments = [
            read.incarnation, read.stamp, entry.stamp, entry.to_json(), entry.count, *totals
        ]  # fmt: skip
        return await self._mutate("commit", keys, arguments)

    async def fold(self, key: PoolKey, log: Log, entry: Entry) -> Outcome:
        """Replace all entries of a log, which was read from its start, by one entry."""
        old = [name for folded in log.entries for name in folded.chunks]
        keys = [*_keys(key), *(_chunk(key, name) for name in (*entry.chunks, *old))]
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
        return await self._mutate("fold", keys, arguments)

    async def lock_fold(self, key: PoolKey) -> bool:
        """Return whether this replica got the lock for folding, which expires after a while."""
        lock = _key(key, "fold")
        set_lock = lambda: self._redis.set(lock, b"", nx=True, ex=_LOCK_SECONDS)  # noqa: E731
        return bool(await self._do("pool_write", set_lock))

    async def drop(self, key: PoolKey, log: Log) -> Outcome:
        """Delete a pool whose log was read from its start, if it has not changed since."""
        chunks = [name for entry in log.entries for name in entry.chunks]
        keys = [*_keys(key), *(_chunk(key, name) for name in chunks)]
        first = next(iter(log.entries[0].chunks), "") if log.entries else ""
        arguments = [log.position.incarnation, log.position.stamp, first]
        return await self._mutate("drop", keys, arguments)

    async def _metas(self, keys: Sequence[PoolKey], *fields: str) -> list[list[bytes | None]]:
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hmget(_key(key, "meta"), *fields)
        found: list[list[bytes | None]] = []
        if keys:
            found = await self._do("pool_read", pipeline.execute)
        return found

    async def _stage(
        self, key: PoolKey, name: str, candidates: Sequence[Candidate], vectors: Float16
    ) -> None:
        compressed = await asyncio.to_thread(pack_candidates, candidates)
        arguments = [_STAGED_SECONDS, "candidates", compressed, self._field, vectors.tobytes()]
        await self._run("pool_write", "stage", [_chunk(key, name)], arguments)

    async def _mutate(self, script: str, keys: list[str], arguments: list[Any]) -> Outcome:
        with redis_errors(self._metrics, "pool_write") as counted:
            outcome: Outcome = (await self._script[script](keys, arguments)).decode()
            if outcome != "ok":
                counted.result = "conflict"
        return outcome


def _head(stamp: bytes | None, encoder: bytes | None, *settings: bytes | None) -> Head | None:
    if stamp is None:
        return None
    return Head(stamp.decode(), unpack_settings(settings), _encoder_name(encoder))


def _summary(found: list[bytes | None]) -> Summary | None:
    version, size, in_bytes, stored, created_at, encoder, *settings = found
    if version is None or stored is None or created_at is None:
        return None
    # Version 0.1 wrote no size. It stored at least as many candidates.
    return Summary(
        int(version), int(size or stored), int(in_bytes or 0), unpack_settings(settings),
        float(created_at), _encoder_name(encoder),
    )  # fmt: skip


def _encoder_name(stored: bytes | None) -> EncoderName:
    return cast(EncoderName, stored.decode()) if stored else "default"


def _key(key: PoolKey, name: str) -> str:
    return f"tw:pool:{{{key}}}:{name}"


def _keys(key: PoolKey) -> list[str]:
    return [_key(key, "meta"), _key(key, "log")]


def _chunk(key: PoolKey, name: str) -> str:
    return _key(key, f"chunk:{name}")

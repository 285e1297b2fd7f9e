"""Pools in Redis: a log of edits for each, whose candidates lie in chunks beside it.

The keys of a pool share a hash tag: `meta` (hash), `log` (list of entries), `chunk:NAME` (hash:
the candidates, and their vectors by each model). Entry number i of the log makes version
base + 1 + i; folding puts one entry in the place of the oldest. The stamp of a version is a random
word, for a Redis that lost its last second may give a version's number twice.

A chunk is staged with an expiry, which is taken off by the script that commits it: a version is
whole or not at all, and what is never committed goes by itself.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.resources import files
from time import time
from typing import Any, cast

from turnwise.service.observe.metrics import Metrics, Operation
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.chunk import dumped
from turnwise.service.pools.edit import Edit
from turnwise.service.pools.index import Float16
from turnwise.service.pools.log import NOWHERE, Entry, Head, Log, Outcome, PoolKey, Position
from turnwise.service.state.redis import Redis, redis_errors
from turnwise.service.wire.fields import EncoderName

CHUNK = 2000
"""Candidates of a chunk: 1.7 MB with the default model."""

_NAMES = "tw:pools"
_BORN = "tw:born"
_STAGED_SECONDS = 900
_GRACE_SECONDS = 120
_LOCK_SECONDS = 120


class PoolStore:
    """Commands on the pools of Redis; StateUnavailable where it is away."""

    def __init__(self, redis: Redis, metrics: Metrics, *, fingerprint: str) -> None:
        self._redis, self._metrics = redis, metrics
        self._field = f"vectors:{fingerprint}"
        folder = files("turnwise.service.pools") / "scripts"
        self._script: dict[str, Callable[..., Awaitable[Any]]] = {
            path.name.removesuffix(".lua"): redis.register_script(path.read_text())
            for path in folder.iterdir()
        }

    async def born(self) -> str:
        """Return a word that this Redis was given once; another one, where it lost its data."""
        while (word := await self._do("pool_read", lambda: self._redis.get(_BORN))) is None:
            new = secrets.token_hex(8)
            await self._do("pool_write", lambda: self._redis.set(_BORN, new, nx=True))  # noqa: B023
        return cast(str, word.decode())

    async def names(self) -> dict[PoolKey, str]:
        """Return the incarnation by which each pool is known; it may be gone already."""
        found = await self._do("pool_read", lambda: self._redis.hgetall(_NAMES))
        return {
            PoolKey(*name.decode().split("/", 1)): incarnation.decode()
            for name, incarnation in found.items()
        }

    async def heads(self, keys: Sequence[PoolKey]) -> list[Head | None]:
        """Return what tells each pool's newest version; None where there is no pool."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hmget(_key(key, "meta"), "stamp", "description", "encoder")
        found = await self._do("pool_read", pipeline.execute) if keys else []
        return [_head(*fields) for fields in found]

    async def create(
        self, key: PoolKey, description: str, retrieval: EncoderName | None
    ) -> EncoderName:
        """Create a pool, or describe the one that is there.

        Returns:
            What it is encoded with; of one that was there, that need not be what was asked for,
            and it was left alone then.
        """
        arguments = [secrets.token_hex(8), description, time(), retrieval or ""]
        incarnation, found = await self._run("pool_write", "create", _keys(key), arguments)
        await self._do("pool_write", lambda: self._redis.hset(_NAMES, str(key), incarnation))
        return _retrieval(found)

    async def read(self, key: PoolKey, has: Position = NOWHERE) -> Log | None:
        """Return what a reader at a position lacks; None where there is no pool."""
        found = await self._run("pool_read", "read", _keys(key), list(has))
        return Log.loaded(*found) if found else None

    async def chunk(self, key: PoolKey, name: str) -> tuple[bytes, bytes | None] | None:
        """Return a chunk's candidates, and their vectors where it has this model's.

        None where the chunk is gone: the pool was folded or dropped meanwhile.
        """
        fields = ["candidates", self._field]
        found = await self._do("pool_read", lambda: self._redis.hmget(_chunk(key, name), fields))
        return (found[0], found[1]) if found[0] is not None else None

    async def has_vectors(self, key: PoolKey, name: str) -> bool | None:
        """Return whether a chunk has this model's vectors; None where the chunk is gone."""
        fields = await self._do("pool_read", lambda: self._redis.hkeys(_chunk(key, name)))
        return self._field.encode() in fields if fields else None

    async def put_vectors(self, key: PoolKey, name: str, vectors: Float16) -> None:
        """Add this model's vectors to a chunk."""
        arguments = [self._field, vectors.tobytes()]
        await self._run("pool_write", "put_vectors", [_chunk(key, name)], arguments)

    async def stage(self, key: PoolKey, edit: Edit) -> Entry:
        """Write an edit's chunks; until they are committed, nobody sees them."""
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
        """Remove staged chunks that will not be committed."""
        if names := [_chunk(key, name) for name in chunks]:
            await self._do("pool_write", lambda: self._redis.unlink(*names))

    async def commit(self, key: PoolKey, read: Position, entry: Entry) -> Outcome:
        """Append an entry, if the pool's newest version still is the one that was read."""
        keys = [*_keys(key), *(_chunk(key, name) for name in entry.chunks)]
        arguments = [read.incarnation, read.stamp, entry.stamp, entry.dumped(), entry.count]
        return await self._mutate("commit", keys, arguments)

    async def fold(self, key: PoolKey, log: Log, entry: Entry) -> Outcome:
        """Put an entry in the place of all entries of a log that was read from its start."""
        old = [name for folded in log.entries for name in folded.chunks]
        keys = [*_keys(key), *(_chunk(key, name) for name in (*entry.chunks, *old))]
        arguments = [
            log.position.incarnation,
            log.base,
            len(log.entries),
            log.position.stamp,
            entry.dumped(),
            len(entry.chunks),
            entry.count - sum(folded.count for folded in log.entries),
            _GRACE_SECONDS,
        ]
        return await self._mutate("fold", keys, arguments)

    async def may_fold(self, key: PoolKey) -> bool:
        """Say whether this replica is to fold now; no other one is for a while."""
        lock = _key(key, "fold")
        set_lock = lambda: self._redis.set(lock, b"", nx=True, ex=_LOCK_SECONDS)  # noqa: E731
        return bool(await self._do("pool_write", set_lock))

    async def drop(self, key: PoolKey, log: Log) -> Outcome:
        """Remove a pool, whose log was read from its start, if it still is as it was read."""
        chunks = [name for entry in log.entries for name in entry.chunks]
        keys = [*_keys(key), *(_chunk(key, name) for name in chunks)]
        first = next(iter(log.entries[0].chunks), "") if log.entries else ""
        arguments = [log.position.incarnation, log.position.stamp, first]
        outcome = await self._mutate("drop", keys, arguments)
        if outcome == "ok":
            await self.forget(key, log.position.incarnation)
        return outcome

    async def forget(self, key: PoolKey, incarnation: str) -> None:
        """Take a pool that is gone off the list of names."""
        await self._run("pool_write", "forget", [_NAMES], [str(key), incarnation])

    async def _stage(
        self, key: PoolKey, name: str, candidates: Sequence[Candidate], vectors: Float16
    ) -> None:
        compressed = await asyncio.to_thread(dumped, candidates)
        arguments = [_STAGED_SECONDS, "candidates", compressed, self._field, vectors.tobytes()]
        await self._run("pool_write", "stage", [_chunk(key, name)], arguments)

    async def _mutate(self, script: str, keys: list[str], arguments: list[Any]) -> Outcome:
        with redis_errors(self._metrics, "pool_write") as counted:
            outcome: Outcome = (await self._script[script](keys, arguments)).decode()
            if outcome != "ok":
                counted.result = "conflict"
        return outcome

    async def _run(
        self, operation: Operation, script: str, keys: list[str], arguments: list[Any]
    ) -> Any:  # noqa: ANN401 - whatever the script returns
        return await self._do(operation, lambda: self._script[script](keys, arguments))

    async def _do(self, operation: Operation, command: Callable[[], Any]) -> Any:  # noqa: ANN401
        with redis_errors(self._metrics, operation):
            return await command()


def _head(stamp: bytes | None, description: bytes | None, encoder: bytes | None) -> Head | None:
    if stamp is None or description is None:
        return None
    return Head(stamp.decode(), description.decode(), _retrieval(encoder))


def _retrieval(encoder: bytes | None) -> EncoderName:
    return cast(EncoderName, encoder.decode()) if encoder else "default"


def _key(key: PoolKey, name: str) -> str:
    return f"tw:pool:{{{key}}}:{name}"


def _keys(key: PoolKey) -> list[str]:
    return [_key(key, "meta"), _key(key, "log")]


def _chunk(key: PoolKey, name: str) -> str:
    return _key(key, f"chunk:{name}")

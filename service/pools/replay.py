"""From a pool's log in Redis to edits of its contents."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from service.errors import PoolNotFound, PoolNotReady
from service.pools.chunk import loaded
from service.pools.edit import Edit
from service.pools.encoding import encode_candidates
from service.pools.log import NOWHERE, Entry, Log, PoolKey, Position
from service.pools.store import PoolStore
from service.pools.workers import Workers

if TYPE_CHECKING:
    from service.encoding import CachedEncoder

_READ_AHEAD = 4
"""Chunks read at once: 1.7 MB each."""


class ChunkGone(Exception):  # noqa: N818 - an event, mostly
    """The chunk of an entry is not there: the pool was folded or dropped since the log was read."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Reads the log of one pool; encodes what has no vectors of this replica's model.

    Attributes:
        key: Which pool.
        on_encoding: Called before a chunk is encoded, which takes a while.
    """

    key: PoolKey
    store: PoolStore
    encoder: "CachedEncoder"
    workers: Workers
    on_encoding: Callable[[], None]

    async def since(self, has: Position) -> tuple[Log, list[Edit]]:
        """Return the log from a position on, or from its start, and its edits.

        Raises:
            PoolNotFound: The pool is gone.
            PoolNotReady: A part of it is lost in Redis.
        """
        try:
            return await self._since(has)
        except ChunkGone:
            try:
                return await self._since(NOWHERE)
            except ChunkGone:
                raise PoolNotReady(f"a part of pool '{self.key.name}' is lost in Redis") from None

    async def _since(self, has: Position) -> tuple[Log, list[Edit]]:
        log = await self.store.read(self.key, has)
        if log is None:
            raise PoolNotFound(f"there is no pool '{self.key.name}'")
        parts = [(entry, name) for entry in log.entries for name in entry.chunks or (None,)]
        edits: list[Edit] = []
        for start in range(0, len(parts), _READ_AHEAD):
            edits += await asyncio.gather(
                *(self._edit(entry, name) for entry, name in parts[start : start + _READ_AHEAD])
            )
        return log, edits

    async def _edit(self, entry: Entry, name: str | None) -> Edit:
        """Return what one chunk of an entry brings; what the entry removes goes with each."""
        if name is None:
            return Edit((), np.empty((0, self.encoder.dimension), np.float16), entry.removed)
        stored = await self.store.chunk(self.key, name)
        if stored is None:
            raise ChunkGone
        dimension = self.encoder.dimension
        candidates, vectors = await self.workers.edit(lambda: loaded(*stored, dimension))
        if vectors is None:
            self.on_encoding()
            texts = [candidate.text for candidate in candidates]
            vectors = await encode_candidates(self.encoder, texts)
            await self.store.put_vectors(self.key, name, vectors)
        return Edit(candidates, vectors, entry.removed)

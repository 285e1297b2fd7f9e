"""Turns new entries of a pool's log into edits of the contents in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

import numpy as np

from turnwise.service.errors import PoolNotReady
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import PoolEncoder, encode_unknown
from turnwise.service.pools.memory.contents import Edit
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.memory.free_memory import Admission
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import (
    NOWHERE,
    Log,
    PoolKey,
    PoolMoved,
    Position,
    not_found,
    unpack_chunk,
)

_READ_AHEAD = 4
"""Chunks that are read at once."""


class ChunkGone(Exception):  # noqa: N818 - mostly no error
    """An entry or chunk is missing: folded or dropped since the log was read, or lost."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Reads the log of one pool; encodes chunks that lack vectors of this replica's model.

    Attributes:
        admit: Returns a context in which there is memory for the edits of a log.
        on_encoding: Called before a chunk is encoded.
        on_progress: Called with the share of the log that has been read.
    """

    key: PoolKey
    records: PoolRecords
    encoder: PoolEncoder
    workers: Workers
    admit: Callable[[Log], AbstractContextManager[Admission]]
    on_encoding: Callable[[], None]
    on_progress: Callable[[float], None]

    @asynccontextmanager
    async def since(self, has: Position) -> AsyncIterator[tuple[Log, list[Edit]]]:
        """Yield the log from a position on, or from its start, and its edits.

        Raises:
            NotEnoughMemory: There is no memory for the edits.
            PoolNotFound: The pool does not exist.
            PoolNotReady: Redis lost a part of it.
        """
        # Kept between attempts: while a large pool is encoded, it may be folded several times.
        encoded: dict[str, Float16] = {}  # vectors (d,) by text
        failed: int | None = None
        while True:
            log = await self.records.read(self.key, has)
            if log is None:
                raise not_found(self.key)
            if not log.local:
                raise PoolMoved(f"pool '{self.key.name}' was moved to a candidate store just now")
            with self.admit(log) as memory:
                try:
                    edits = await self._edits(log, encoded, memory)
                except ChunkGone:
                    if log.base == failed:  # no fold since, so the chunk is lost
                        lost = f"a part of pool '{self.key.name}' is lost in Redis"
                        raise PoolNotReady(lost) from None
                    has = NOWHERE
                    failed = log.base
                else:
                    yield log, edits
                    return

    async def _edits(self, log: Log, encoded: dict[str, Float16], memory: Admission) -> list[Edit]:
        if not log.whole:
            raise ChunkGone
        made = [
            (list[Candidate](), np.empty((entry.count, self.encoder.dimension), np.float16))
            for entry in log.entries
        ]
        chunks = [(index, name) for index, entry in enumerate(log.entries) for name in entry.chunks]
        for start in range(0, len(chunks), _READ_AHEAD):
            some = chunks[start : start + _READ_AHEAD]
            read = await asyncio.gather(*(self._read(name, memory) for _, name in some))
            for (index, name), (found, vectors) in zip(some, read, strict=True):
                if vectors is None:
                    vectors = await self._encode(name, found, encoded)  # noqa: PLW2901
                candidates, rows = made[index]
                rows[len(candidates) : len(candidates) + len(found)] = vectors
                candidates += found
            self.on_progress((start + len(some)) / len(chunks))
        return [Edit(*both, entry.removed) for both, entry in zip(made, log.entries, strict=True)]

    async def _read(self, name: str, memory: Admission) -> tuple[list[Candidate], Float16 | None]:
        """Return the candidates of a chunk, and their vectors if it has this model's."""
        dimension = self.encoder.dimension
        if (stored := await self.records.chunk(self.key, name)) is None:
            raise ChunkGone
        packed, packed_vectors = stored

        def unpack() -> tuple[list[Candidate], Float16 | None, int]:
            candidates, vectors = unpack_chunk(packed, packed_vectors, dimension)
            return candidates, vectors, sum(candidate.memory for candidate in candidates)

        candidates, vectors, size = await self.workers.edit(unpack)
        memory.use(size + 2 * dimension * len(candidates))
        return candidates, vectors

    async def _encode(
        self, name: str, candidates: Sequence[Candidate], encoded: dict[str, Float16]
    ) -> Float16:
        self.on_encoding()
        texts = [candidate.text for candidate in candidates]
        vectors = await encode_unknown(self.encoder, self.workers, texts, encoded)
        await self.records.put_vectors(self.key, name, vectors)
        return vectors

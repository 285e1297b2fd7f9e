"""Turns new entries of a pool's log into edits of the contents in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from turnwise.service.errors import PoolNotReady
from turnwise.service.pools.candidate import Candidate, list_examples
from turnwise.service.pools.encoding import Kind, KnownVectors, PoolEncoder, encode_unknown
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.memory.examples import Examples
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.memory.free_memory import Admission
from turnwise.service.pools.memory.packed import PackedCandidates, pack
from turnwise.service.pools.memory.vectors import count_memory, empty_vectors
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import (
    NOWHERE,
    Entry,
    Log,
    PoolKey,
    PoolMoved,
    Position,
    not_found,
    unpack_chunk,
    unpack_vectors,
)
from turnwise.service.pools.view import CandidateBatch

_READ_AHEAD = 4
"""Chunks that are read at once."""


class ChunkGone(Exception):  # noqa: N818 - mostly no error
    """A chunk, which the exception names, was folded since the log was read, or is lost."""


class ReadChunk(NamedTuple):
    """The candidates of a chunk, and the vectors by this replica's model if it has them."""

    name: str
    candidates: list[Candidate]
    vectors: Float16 | None
    examples: Float16 | None


class _EditInParts:
    """The edit of an entry, which is put together from its chunks."""

    def __init__(self, entry: Entry, dimension: int) -> None:
        self._entry = entry
        self._candidates = PackedCandidates()
        self._vectors = empty_vectors(entry.count, dimension)
        self._vector_memory = count_memory(entry.count, dimension) // max(1, entry.count)
        self._examples = empty_vectors(entry.examples, dimension)
        self._example_memory = count_memory(entry.examples, dimension) // max(1, entry.examples)
        self._examples_end = 0

    def add(self, batch: CandidateBatch) -> int:
        """Append the candidates of a chunk; return the bytes of memory that they take."""
        start = len(self._candidates)
        before = self._candidates.memory
        self._candidates.extend(batch.candidates)
        self._vectors[start : len(self._candidates)] = batch.vectors
        start = self._examples_end
        self._examples_end += len(batch.examples)
        self._examples[start : self._examples_end] = batch.examples
        taken = self._candidates.memory - before
        taken += len(batch.candidates) * self._vector_memory
        return taken + len(batch.examples) * self._example_memory

    def join(self) -> Edit:
        """Return the edit."""
        candidates = pack(self._candidates)
        examples = Examples.of(candidates, self._examples)
        return Edit(candidates, self._vectors, self._entry.removed, examples)


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
    async def read_since(self, has: Position) -> AsyncIterator[tuple[Log, list[Edit]]]:
        """Yield the log from a position on, or from its start, and its edits.

        Raises:
            NotEnoughMemory: There is no memory for the edits.
            PoolNotFound: The pool does not exist.
            PoolNotReady: Redis lost a part of it.
        """
        # Kept between attempts: while a large pool is encoded, it may be folded several times.
        encoded = KnownVectors()
        gone = ""
        while True:
            log = await self.read_log(has, gone)
            with self.admit(log) as memory:
                try:
                    edits = await self._read_edits(log, encoded, memory)
                except ChunkGone as error:
                    has = NOWHERE
                    gone = str(error)
                else:
                    yield log, edits
                    return

    async def read_log(self, has: Position = NOWHERE, gone: str = "") -> Log:
        """Return the log from a position on.

        Args:
            has: The position.
            gone: The chunk that was gone when the log was read before; empty for none.

        Raises:
            PoolNotFound: The pool does not exist.
            PoolNotReady: Redis lost an entry, or the chunk.
        """
        log = await self.records.read(self.key, has)
        if log is None:
            raise not_found(self.key)
        if not log.local:
            raise PoolMoved(f"pool '{self.key.name}' was moved to a candidate store just now")
        if not log.whole or gone in log.chunks:
            raise PoolNotReady(f"a part of pool '{self.key.name}' is lost in Redis")
        return log

    async def scan(self, log: Log) -> AsyncIterator[tuple[int, ReadChunk]]:
        """Yield each chunk of a log, after the index of its entry.

        Raises:
            ChunkGone: A chunk is missing.
        """
        chunks = [(index, name) for index, entry in enumerate(log.entries) for name in entry.chunks]
        for start in range(0, len(chunks), _READ_AHEAD):
            some = chunks[start : start + _READ_AHEAD]
            read = await asyncio.gather(*(self._read(name) for _, name in some))
            for (index, _), chunk in zip(some, read, strict=True):
                yield index, chunk

    async def _read_edits(self, log: Log, encoded: KnownVectors, memory: Admission) -> list[Edit]:
        edits = [_EditInParts(entry, self.encoder.dimension) for entry in log.entries]
        chunks = len(log.chunks)
        read = 0
        async for index, chunk in self.scan(log):
            batch = await self._encode_missing(chunk, encoded)
            memory.use(await self.workers.edit(partial(edits[index].add, batch)))
            read += 1
            self.on_progress(read / chunks)
        return await self.workers.edit(lambda: [edit.join() for edit in edits])

    async def _encode_missing(self, chunk: ReadChunk, encoded: KnownVectors) -> CandidateBatch:
        """Return a chunk with its vectors, and encode those that it lacks."""
        name, candidates, vectors, examples = chunk
        if vectors is None:
            texts = [candidate.text for candidate in candidates]
            vectors = await self._encode(name, texts, encoded, "candidates")
        if examples is None:
            examples = await self._encode(name, list_examples(candidates), encoded, "examples")
        return CandidateBatch(candidates, vectors, examples)

    async def _read(self, name: str) -> ReadChunk:
        dimension = self.encoder.dimension
        chunk = await self.records.chunk(self.key, name)
        if chunk is None:
            raise ChunkGone(name)

        def unpack() -> ReadChunk:
            candidates, vectors = unpack_chunk(chunk.candidates, chunk.vectors, dimension)
            count = sum(candidate.example_count for candidate in candidates)
            examples = unpack_vectors(chunk.examples, count, dimension)
            return ReadChunk(name, candidates, vectors, examples)

        return await self.workers.edit(unpack)

    async def _encode(
        self, name: str, texts: Sequence[str], encoded: KnownVectors, kind: Kind
    ) -> Float16:
        self.on_encoding()
        vectors = await encode_unknown(self.encoder, self.workers, texts, encoded, kind=kind)
        await self.records.put_vectors(self.key, name, vectors, kind)
        return vectors

"""Replaces all candidates of a pool in Redis batch by batch, without holding either version.

Only digests are kept, which tell what is new and what is gone: 16 bytes for a candidate that the
pool has, and 8 for a new one. A digest has 64 bits: of 10^8 candidates, two share one with a
probability of 0.0003.
"""

from array import array
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Self

import numpy as np
from numpy.typing import NDArray

from turnwise.service.errors import PoolFull
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import add_learned
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.memory.examples import Examples, gather_examples
from turnwise.service.pools.memory.segment import count_bytes
from turnwise.service.pools.pool import MakeBatches
from turnwise.service.pools.redis.replay import ReadChunk, Replay
from turnwise.service.pools.redis.values import Log
from turnwise.service.pools.view import CandidateBatch

Digests = NDArray[np.int64]

_REMOVED = -1
"""Digest of a removed candidate: `hash` never returns it."""
_OF_ANOTHER_MODEL = 0


class _Digests:
    """The digests of the ids and candidates of an entry of the log."""

    def __init__(self, removed: Iterable[str]) -> None:
        self.ids = array("q", map(hash, removed))
        self.candidates = array("q", repeat(_REMOVED, len(self.ids)))

    def add(self, chunk: ReadChunk) -> None:
        """Add the candidates of a chunk; without vectors by this model they are not reused."""
        self.ids.extend(hash(each.id) for each in chunk.candidates)
        if chunk.vectors is None or chunk.examples is None:
            self.candidates.extend(repeat(_OF_ANOTHER_MODEL, len(chunk.candidates)))
        else:
            self.candidates.extend(map(_digest, chunk.candidates))


@dataclass(frozen=True, slots=True)
class Present:
    """The candidates that a pool has now.

    Attributes:
        ids: (n,) digests of the ids of its candidates, ascending.
        candidates: (n,) digests of its candidates, ascending.
        learned: The candidates that have learned something, or had before they were removed.
    """

    ids: Digests
    candidates: Digests
    learned: dict[str, Candidate]

    @classmethod
    async def read(cls, replay: Replay, log: Log) -> Self:
        """Read a log from its start.

        Raises:
            ChunkGone: A part of the log is missing.
        """
        entries = [_Digests(entry.removed) for entry in log.entries]
        learned: dict[str, Candidate] = {}
        async for index, chunk in replay.scan(log):
            await replay.workers.edit(partial(entries[index].add, chunk))
            for candidate in chunk.candidates:
                learned.pop(candidate.id, None)
                if candidate.learned:
                    learned[candidate.id] = candidate
        nothing = np.empty(0, np.int64)
        ids = np.concatenate([nothing, *(entry.ids for entry in entries)])
        candidates = np.concatenate([nothing, *(entry.candidates for entry in entries)])
        ids, newest = np.unique(ids[::-1], return_index=True)
        candidates = candidates[::-1][newest]
        kept = candidates != _REMOVED
        return cls(ids[kept], np.sort(candidates[kept]), learned)

    def find_learned(self, id: str) -> Candidate | None:
        """Return the candidate of an id if the pool has it, and it has learned something."""
        candidate = self.learned.get(id)
        if candidate is None or not _are_in(np.array([hash(id)]), self.ids).all():
            return None
        return candidate

    def __len__(self) -> int:
        return len(self.ids)


class Replacement:
    """The edit that replaces all candidates of a pool, made batch by batch.

    Attributes:
        size: Number of the candidates so far.
        bytes: Their bytes, with their vectors.
    """

    def __init__(self, replay: Replay, log: Log, most: int) -> None:
        """Make an edit that follows a log, which was read from its start.

        Args:
            replay: Reads the log.
            log: The log.
            most: Greatest number of candidates, unless the pool has more already.
        """
        self._replay = replay
        self._log = log
        self._most = most
        self._ids = array("q")
        self.size = 0
        self.bytes = 0

    async def parts(self, batches: MakeBatches) -> AsyncIterator[Edit]:
        """Yield the parts of the edit.

        Args:
            batches: Returns the new candidates.

        Raises:
            ChunkGone: A part of the log is missing.
            PoolFull: There are too many candidates.
        """
        replay = self._replay
        present = await Present.read(replay, self._log)
        async for given in batches():
            batch = await add_learned(replay.encoder, replay.workers, given, present.find_learned)
            edit = await replay.workers.edit(partial(self._select_changed, batch, present))
            self._check_size(len(present))
            yield edit
        nothing = np.empty((0, replay.encoder.dimension), np.float16)
        yield Edit([], nothing, await self._find_removed(present))

    def _select_changed(self, batch: CandidateBatch, present: Present) -> Edit:
        """Return the edit of the candidates that the pool lacks, or has with other fields."""
        candidates = batch.candidates
        self.size += len(candidates)
        self.bytes += count_bytes(candidates, batch.vectors.shape[1])
        self._ids.extend(hash(each.id) for each in candidates)
        digests = np.fromiter(map(_digest, candidates), np.int64)
        changed = np.flatnonzero(~_are_in(digests, present.candidates))
        examples = Examples.of(candidates, batch.examples)
        return Edit(
            [candidates[index] for index in changed.tolist()],
            batch.vectors[changed],
            (),
            gather_examples([(examples, changed)]),
        )

    def _check_size(self, present: int) -> None:
        if self.size > max(present, self._most):
            raise PoolFull(
                f"pool '{self._replay.key.name}' would have more candidates than the limit of "
                f"{self._most}; nothing was changed"
            )

    async def _find_removed(self, present: Present) -> list[str]:
        """Return the ids of the pool that were in no batch."""
        gone = present.ids[~_are_in(present.ids, np.sort(np.array(self._ids, np.int64)))]
        if not len(gone):
            return []
        removed: dict[str, None] = {}
        async for _, chunk in self._replay.scan(self._log):
            ids = [candidate.id for candidate in chunk.candidates]
            are_gone = _are_in(np.fromiter(map(hash, ids), np.int64), gone)
            removed |= dict.fromkeys(ids[index] for index in np.flatnonzero(are_gone).tolist())
        return list(removed)


def _digest(candidate: Candidate) -> int:
    fields = (candidate.id, candidate.text, candidate.metadata_json, candidate.examples)
    return hash((*fields, candidate.group, candidate.learned, candidate.body))


def _are_in(digests: Digests, ascending: Digests) -> NDArray[np.bool_]:
    """Return whether each digest is among others."""
    first = np.searchsorted(ascending, digests, "left")
    return first < np.searchsorted(ascending, digests, "right")

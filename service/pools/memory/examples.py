"""The vectors of the examples of candidates, and an index over them.

A segment of a pool has one row for each candidate, and one row for each example of each candidate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Moments
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.memory.flat import Bitmap, Float16, Index, Indices, gather


class Size(NamedTuple):
    """The number of some candidates, and of their examples."""

    candidates: int
    examples: int

    @property
    def vectors(self) -> int:
        """The number of their vectors: one for each text and each example."""
        return self.candidates + self.examples

    @classmethod
    def total(cls, sizes: Iterable[Self]) -> Self:
        """Return the size of all together."""
        given = list(sizes)
        return cls(sum(size.candidates for size in given), sum(size.examples for size in given))


@dataclass(frozen=True, slots=True)
class Examples:
    """The vectors of the examples of n candidates, at least one.

    Attributes:
        vectors: (m, d), those of one candidate after those of another.
        offsets: (n + 1,) the first row of each candidate, then m.
    """

    vectors: Float16
    offsets: Indices

    @classmethod
    def of(cls, candidates: Iterable[Candidate], vectors: Float16) -> Self | None:
        """Return the examples of candidates with their vectors (m, d); None if m is 0."""
        if not len(vectors):
            return None
        return cls(vectors, _add_up([candidate.example_count for candidate in candidates]))

    def __len__(self) -> int:
        return len(self.vectors)

    def count(self, indices: Indices) -> Indices:
        """Return the number of examples of each of some candidates."""
        counts: Indices = self.offsets[indices + 1] - self.offsets[indices]
        return counts

    def rows_of(self, indices: Indices) -> Indices:
        """Return the rows of some candidates, in the order of the candidates."""
        counts = self.count(indices)
        ends = np.cumsum(counts)
        within = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
        rows: Indices = np.repeat(self.offsets[indices], counts) + within
        return rows

    def select(self, start: int, end: int) -> Self | None:
        """Return the examples of consecutive candidates, without a copy; None without any."""
        offsets = self.offsets[start : end + 1]
        vectors = self.vectors[offsets[0] : offsets[-1]]
        return (
            replace(self, vectors=vectors, offsets=offsets - offsets[0]) if len(vectors) else None
        )

    def owners_of(self, rows: Indices) -> Indices:
        """Return the candidate of each of some rows."""
        return np.searchsorted(self.offsets, rows, side="right") - 1

    def select_rows(self, candidates: Bitmap) -> Bitmap:
        """Return a bit for each row, from a bit for each candidate."""
        counts = np.diff(self.offsets)
        bits = np.unpackbits(candidates, count=len(counts), bitorder="little")
        return np.packbits(np.repeat(bits, counts), bitorder="little")


def gather_examples(
    parts: Sequence[tuple[Examples | None, Sequence[int] | Indices]],
) -> Examples | None:
    """Return the examples of some candidates of several parts in one array; None without any."""
    counts: list[int] = []
    rows: list[tuple[Float16, Indices]] = []
    if not any(examples for examples, _ in parts):
        return None
    for examples, some in parts:
        indices = np.asarray(some, np.int64)
        if examples is None:
            counts += [0] * len(indices)
        else:
            counts += examples.count(indices).tolist()
            rows.append((examples.vectors, examples.rows_of(indices)))
    return Examples(gather(rows), _add_up(counts)) if any(counts) else None


def _add_up(counts: Sequence[int] | Indices) -> Indices:
    """Return 0, and the sum of the first count, of the first two, and so on."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


@dataclass(frozen=True)
class ExampleIndex:
    """Examples, and an index of their vectors in the same order."""

    examples: Examples
    index: Index

    @property
    def bytes(self) -> int:
        """Bytes of memory that the vectors, codes and offsets take."""
        return self.index.bytes + self.examples.offsets.nbytes

    @cached_property
    def moments(self) -> Moments:
        """The moments of the vectors; computed once, in tens of milliseconds."""
        return Moments.of(self.examples.vectors)

    @property
    def knows_moments(self) -> bool:
        """Whether `moments` have been computed."""
        return "moments" in vars(self)

    def search(
        self, said: Float32, k: int, allowed: Bitmap | None = None
    ) -> tuple[Indices, Float32]:
        """Return the best row of each of the top k candidates, best first, and their scores.

        Args:
            said: (d,).
            k: At least 1. If fewer candidates have examples, these are returned.
            allowed: A bit for each row: whether it may be returned.

        Raises:
            ValueError: `said` is not a finite vector of d numbers.
        """
        wanted = 2 * k
        while True:
            rows, scores = self.index.search(said, wanted, allowed)
            _, best = np.unique(self.examples.owners_of(rows), return_index=True)
            if len(best) >= k or len(rows) < wanted:
                best = np.sort(best)[:k]
                return rows[best], scores[best]
            wanted *= 2

    def find_best(self, said: Float32, candidates: Indices) -> tuple[Indices, Float32]:
        """Return the best row of each of k candidates with examples, and their scores.

        Args:
            said: (d,).
            candidates: (k,) indices of candidates.
        """
        rows = self.examples.rows_of(candidates)
        scores = self.examples.vectors[rows].astype(np.float64) @ said.astype(np.float64)
        bounds = _add_up(self.examples.count(candidates)).tolist()
        best = [start + int(scores[start:end].argmax()) for start, end in pairwise(bounds)]
        return rows[best], scores[best].astype(np.float32)

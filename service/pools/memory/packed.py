"""The candidates of a large segment as bytes, and tables that find texts without keeping them."""

import marshal
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Protocol, overload

import numpy as np

from turnwise.service.pools.candidate import Candidate, Learned

MANY = 10_000
"""Number of candidates from which `pack` packs them; reading a packed one takes a microsecond."""


class PackedCandidates(Sequence[Candidate]):
    """Candidates in one block of bytes. A candidate is unpacked when it is read.

    A short candidate takes some 90 bytes instead of 290, and the garbage collector visits none.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._bytes = bytearray()
        self._starts = array("q", [0])
        self.extend(candidates)

    def extend(self, candidates: Iterable[Candidate]) -> None:
        """Append candidates."""
        for candidate in candidates:
            self._bytes += _pack(candidate)
            self._starts.append(len(self._bytes))

    @property
    def memory(self) -> int:
        """Bytes of memory that they take."""
        return len(self._bytes) + len(self._starts) * self._starts.itemsize

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __iter__(self) -> Iterator[Candidate]:
        return map(self._unpack, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        found = range(len(self))[index]
        return self._unpack(found) if isinstance(found, int) else list(map(self._unpack, found))

    def _unpack(self, index: int) -> Candidate:
        row = memoryview(self._bytes)[self._starts[index] : self._starts[index + 1]]
        id, text, metadata, examples, group, learned, body = marshal.loads(row)  # noqa: S302 - our own
        texts = tuple(Learned(*each) for each in learned)
        return Candidate(id, text, metadata, examples, group, texts, body)


def _pack(candidate: Candidate) -> bytes:
    return marshal.dumps(
        (
            candidate.id,
            candidate.text,
            candidate.metadata_json,
            candidate.examples,
            candidate.group,
            tuple(map(tuple, candidate.learned)),
            candidate.body,
        )
    )


def pack(candidates: Iterable[Candidate]) -> Sequence[Candidate]:
    """Return candidates in a form that does not change, packed if there are many."""
    if isinstance(candidates, PackedCandidates) and len(candidates) >= MANY:
        return candidates
    others = iter(candidates)
    first = tuple(islice(others, MANY))
    return first if len(first) < MANY else PackedCandidates(chain(first, others))


def count_copied(candidates: Sequence[Candidate]) -> int:
    """Return the bytes of memory that a copy of a segment's candidates takes."""
    return candidates.memory if isinstance(candidates, PackedCandidates) else 8 * len(candidates)


class Table(Protocol):
    """Finds the index of a text."""

    def get(self, text: str, /) -> int | None:
        """Return the index of a text; None if it is not there."""


class TextTable:
    """Finds the index of a text in 12 bytes a text; a dictionary takes 70 and keeps the text."""

    def __init__(self, texts: Iterable[str], read: Callable[[int], str]) -> None:
        """Make the table of n texts.

        Args:
            texts: The texts; an index of any of several equal ones is found.
            read: Returns the text of an index.
        """
        hashes = np.fromiter(map(hash, texts), np.int64)
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._indices = order.astype(np.int32)
        self._read = read

    def get(self, text: str) -> int | None:
        """Return the index of a text; None if it is not there."""
        wanted = hash(text)
        for row in range(int(self._hashes.searchsorted(wanted)), len(self._hashes)):
            if self._hashes[row] != wanted:
                break
            index = int(self._indices[row])
            if self._read(index) == text:
                return index
        return None


def make_table(texts: Iterable[str], read: Callable[[int], str]) -> Table:
    """Return a table of n texts: a dictionary if they are few, since it is faster.

    Args:
        texts: The texts; an index of any of several equal ones is found.
        read: Returns the text of an index.
    """
    others = iter(texts)
    first = list(islice(others, MANY))
    if len(first) < MANY:
        return {text: index for index, text in enumerate(first)}
    return TextTable(chain(first, others), read)

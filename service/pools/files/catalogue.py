"""Catalogues: files of candidates that are encoded in bulk.

A file is one that `turnwise pool load` takes, or Parquet. In Parquet, `metadata` may be an object,
or JSON as a string. A catalogue is never held in memory, except for the candidates that have
examples in several rows.
"""

import hashlib
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Self

import fsspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.text_files import open_binary
from turnwise.service.candidate_files import CandidateReader, Row
from turnwise.service.pools.candidate import Candidate, sorted_json
from turnwise.service.pools.files.candidates import check_limits
from turnwise.service.urls import show_url

PART = 10_000
"""Candidates of a part, which takes some 8 MB with the default model."""
_ROWS_READ = 1000
"""Rows of a Parquet file that are read at once."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A catalogue that was read to its end once without an error.

    Attributes:
        files: The files, or their URLs.
        digests: (n,) a number for each candidate, which differs if candidates do.
        repeated: (n,) whether an earlier row is of the same candidate.
        merged: Candidates whose examples come from several rows, by the index of the first row.
        reader: The reader of the files.
        notes: Notes for the users of the files.
    """

    files: Sequence[str]
    digests: NDArray[np.uint64]
    repeated: NDArray[np.bool_]
    merged: Mapping[int, Candidate]
    reader: CandidateReader
    notes: Sequence[str]

    @classmethod
    def read(cls, patterns: Sequence[str], reader: CandidateReader | None = None) -> Self:
        """Read a catalogue to its end, so that encoding it will not fail.

        Args:
            patterns: Files or URLs; one with `*` names all that match.
            reader: Knows the columns and the encoding of the files; by default the usual ones.

        Raises:
            DataError: A file cannot be read, a row is not a candidate, or two different candidates
                share an id. The error names file, row and field.
            TurnwiseError: There are no candidates, a pattern matches no file, or no installed
                package can open a URL.
        """
        files = [file for pattern in patterns for file in _expand_pattern(pattern)]
        reader = reader or CandidateReader()
        # Two texts in 10^8 have the same 64 bits with a probability of 0.0003.
        numbers = np.fromiter(
            map(_digest_row, _read_rows(files, reader)), np.dtype((np.uint64, 3))
        ).astype(np.uint64, copy=False)
        if not len(numbers):
            raise TurnwiseError(f"{', '.join(patterns)}: there are no candidates")
        ids, digests, left_out = numbers.T
        _, first_rows, candidate_of = np.unique(ids, return_index=True, return_inverse=True)
        first_row = first_rows[candidate_of]  # of each row: the first one of the same candidate
        differs = digests != digests[first_row]
        # Candidates whose rows differ are read again and merged. Each is named by its first row.
        to_merge = np.unique(first_row[differs])
        rows = _read_rows(files, reader) if to_merge.size else ()
        merged_rows = reader.merge(compress(rows, np.isin(first_row, to_merge)))
        merged: dict[int, Candidate] = {}
        for index, row in zip(to_merge.tolist(), merged_rows, strict=True):
            merged[index] = Candidate.uploaded(row.candidate)
            digests[index] = _hash_candidate(merged[index])
            left_out[index] = row.left_out
        repeated = first_row != np.arange(len(ids))
        notes = reader.notes(int(left_out[~repeated].sum()))
        return cls(files, digests, repeated, merged, reader, notes)

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The index of the first candidate of each part, and the index after its last one."""
        return [(start, min(start + PART, len(self))) for start in range(0, len(self), PART)]

    def digest(self, start: int, stop: int) -> str:
        """Return a digest of some candidates, in their order."""
        return hashlib.sha256(self.digests[start:stop].tobytes()).hexdigest()

    def parts(self, wanted: Container[int]) -> Iterator[tuple[int, list[Candidate]]]:
        """Yield each wanted part: the index of its first candidate, and its distinct candidates."""
        rows = enumerate(_read_rows(self.files, self.reader))
        for start, stop in self.ranges:
            some = list(islice(rows, stop - start))
            if start in wanted:
                candidates = [
                    self.merged.get(index) or Candidate.uploaded(row.candidate)
                    for index, row in some
                    if not self.repeated[index]
                ]
                yield start, candidates


@contextmanager
def url_errors(url: str) -> Iterator[None]:
    """Raise TurnwiseError if no installed package can open a URL."""
    try:
        yield
    except (ImportError, ValueError) as error:  # the package of a protocol; an unknown protocol
        raise TurnwiseError(f"'{show_url(url)}' cannot be opened: {error}") from None


def _expand_pattern(pattern: str) -> list[str]:
    if "*" not in pattern and "://" not in pattern:
        return [pattern]
    with url_errors(pattern):
        system, path = fsspec.url_to_fs(pattern)
    if "*" not in pattern:
        return [pattern]
    if not (found := sorted(system.glob(path))):
        raise TurnwiseError(f"no file matches '{pattern}'")
    return [system.unstrip_protocol(path) if "://" in pattern else path for path in found]


@contextmanager
def _copy_here(file: str) -> Iterator[Path]:
    """Yield the path of a file; a file at a URL is copied here first."""
    if "://" not in file:
        yield Path(file)
        return
    system, path = fsspec.url_to_fs(file)
    with TemporaryDirectory() as folder:
        copy = Path(folder, PurePosixPath(path).name)
        system.get_file(path, str(copy))
        yield copy


def _read_rows(files: Sequence[str], reader: CandidateReader) -> Iterator[Row]:
    for file in files:
        with _copy_here(file) as path:
            read = _read_parquet if path.suffix == ".parquet" else _read_file
            yield from map(check_limits, read(path, file, reader))


def _read_file(path: Path, file: str, reader: CandidateReader) -> Iterator[Row]:
    with open_binary(path) as opened:
        yield from reader.read(opened, file)


def _read_parquet(path: Path, file: str, reader: CandidateReader) -> Iterator[Row]:
    try:
        with parquet.ParquetFile(path) as opened:
            rows = (row for batch in opened.iter_batches(_ROWS_READ) for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                yield reader.read_record(row, f"{file}, row {number}", None)
    except pa.ArrowException as error:
        raise DataError(f"not Parquet: {error}", file) from error
    except OSError as error:
        raise DataError(error.strerror or str(error), file) from error


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _digest_row(row: Row) -> tuple[int, int, int]:
    """Return a digest of a row's id, one of its candidate, and how many examples it lacks."""
    candidate = Candidate.uploaded(row.candidate)
    return _hash_text(candidate.id), _hash_candidate(candidate), row.left_out


def _hash_candidate(candidate: Candidate) -> int:
    fields = [candidate.id, candidate.text, sorted_json(candidate.metadata)]
    if candidate.examples or candidate.group:  # the digests of other catalogues stay as they were
        fields.append(json.dumps([candidate.examples, candidate.group]))
    if candidate.body:
        fields.append(candidate.body)
    return _hash_text("\0".join(fields))

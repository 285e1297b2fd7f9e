"""Catalogues: files of candidates that are encoded in bulk, in Parquet, JSON Lines or CSV.

A candidate has a `text`, and optionally an `id`, `metadata` (an object, in Parquet also JSON as a
string), `examples` (a list of strings), a `group` and a `body`. CSV has no examples: the metadata
of a row are all columns but `id`, `text` and `body`. JSON Lines and CSV may be followed by `.gz` or
`.xz`. A catalogue is never held in memory.
"""

import csv
import hashlib
import json
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import fsspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from turnwise.models.data import open_text, read_jsonl, read_lines
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.service.pools.candidate import Candidate, sorted_json
from turnwise.service.pools.files.candidates import read_limited
from turnwise.service.urls import show_url

PART = 10_000
"""Candidates of a part, which takes some 8 MB with the default model."""
_READ = 1000
"""Rows of a Parquet file that are read at once."""
_FIELDS = ("id", "text", "metadata", "examples", "group", "body")


class Row(NamedTuple):
    """A candidate and its place in a catalogue."""

    candidate: Candidate
    file: str
    line: int | None

    def error(self, what: str, field: str) -> DataError:
        """Return an error that names the place."""
        return DataError(what, self.file, self.line, field)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A catalogue that was read once, and found to be whole.

    Attributes:
        files: The files, or their URLs.
        digests: (n,) a number for each candidate, which differs if candidates do.
        repeated: (n,) whether an earlier candidate is equal.
    """

    files: Sequence[str]
    digests: NDArray[np.uint64]
    repeated: NDArray[np.bool_]

    @classmethod
    def read(cls, patterns: Sequence[str]) -> Self:
        """Read a catalogue to its end, so that encoding it will not fail.

        Args:
            patterns: Files or URLs; one with `*` names all that match.

        Raises:
            DataError: A file cannot be read, a row is not a candidate, or two different candidates
                share an id. The error names file, row and field.
            TurnwiseError: There are no candidates, a pattern matches no file, or no installed
                package can open a URL.
        """
        files = [file for pattern in patterns for file in _expand_pattern(pattern)]
        # Two texts in 10^8 have the same 64 bits with a probability of 0.0003.
        pairs = np.fromiter(
            (
                (_hash_text(row.candidate.id), _hash_candidate(row.candidate))
                for row in _rows(files)
            ),
            np.dtype((np.uint64, 2)),
        ).astype(np.uint64, copy=False)
        if not len(pairs):
            raise TurnwiseError(f"{', '.join(patterns)}: there are no candidates")
        ids = pairs[:, 0]
        digests = pairs[:, 1]
        _, first, group = np.unique(ids, return_index=True, return_inverse=True)
        earlier = first[group]
        differ = np.flatnonzero(digests[earlier] != digests)
        if differ.size:
            raise _shared_id_error(files, int(earlier[differ[0]]), int(differ[0]))
        return cls(files, digests, earlier != np.arange(len(ids)))

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The place of the first candidate of each part, and the one after its last candidate."""
        return [(start, min(start + PART, len(self))) for start in range(0, len(self), PART)]

    def digest(self, start: int, stop: int) -> str:
        """Return a digest of some candidates, in their order."""
        return hashlib.sha256(self.digests[start:stop].tobytes()).hexdigest()

    def parts(self, wanted: Container[int]) -> Iterator[tuple[int, list[Candidate]]]:
        """Yield the first place of each wanted part, and its candidates without repetitions."""
        rows = _rows(self.files)
        for start, stop in self.ranges:
            some = list(islice(rows, stop - start))
            if start in wanted:
                kept = zip(some, self.repeated[start:stop], strict=True)
                yield start, [row.candidate for row, is_repeated in kept if not is_repeated]


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
def _local(file: str) -> Iterator[Path]:
    """Yield a path of a file; a file elsewhere is copied here first."""
    if "://" not in file:
        yield Path(file)
        return
    system, path = fsspec.url_to_fs(file)
    with TemporaryDirectory() as folder:
        copy = Path(folder, PurePosixPath(path).name)
        system.get_file(path, str(copy))
        try:
            yield copy
        except DataError as error:
            place = error.file.replace(str(copy), file)
            raise DataError(error.what, place, error.line, error.field) from None


def _rows(files: Sequence[str]) -> Iterator[Row]:
    for file in files:
        names = [name for name in PurePosixPath(file).suffixes if name not in {".gz", ".xz"}]
        with _local(file) as path:
            if names[-1:] == [".parquet"]:
                for number, fields in _read_parquet(path):
                    place = f"{file}, row {number}"
                    yield Row(read_limited(fields, place), place, None)
            elif names[-1:] == [".csv"]:
                for line, fields in _read_csv(path):
                    yield Row(read_limited(fields, file, line), file, line)
            elif names[-1:] == [".jsonl"]:
                for line, fields in read_jsonl(path):
                    yield Row(read_limited(fields, file, line), file, line)
            else:
                expected = "expected .parquet, .jsonl or .csv, or the last two with .gz or .xz"
                raise DataError(f"unknown ending: {expected}", file)


def _read_parquet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with parquet.ParquetFile(path) as file:
            columns = [name for name in _FIELDS if name in file.schema_arrow.names]
            batches = file.iter_batches(_READ, columns=columns)
            rows = (row for batch in batches for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                if isinstance(row.get("metadata"), str):
                    row["metadata"] = parse_metadata(row["metadata"], f"{path}, row {number}")
                yield number, row
    except pa.ArrowException as error:
        raise DataError(f"not Parquet: {error}", str(path)) from error
    except OSError as error:
        raise DataError(error.strerror or str(error), str(path)) from error


def parse_metadata(metadata: str, place: str) -> object:
    """Return the metadata of a row of Parquet; raises DataError if they are not JSON."""
    try:
        return json.loads(metadata)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", place, None, "metadata") from None


def _read_csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open_text(path) as file:
        reader = csv.DictReader(read_lines(file, path), strict=True)
        try:
            columns = reader.fieldnames or ()
            if "text" not in columns or len(set(columns)) < len(columns):
                what = f'a column repeats in the header "{",".join(columns)}", or "text" is missing'
                raise DataError(what, str(path), 1)
            if "examples" in columns:
                what = "CSV has no examples: use JSON Lines or Parquet"
                raise DataError(what, str(path), 1, "examples")
            for row in reader:
                if None in row or None in row.values():
                    what = "not as many fields as the header has"
                    raise DataError(what, str(path), reader.line_num)
                given = {name: value for name, value in row.items() if value}
                fields = {name: given.pop(name, None) for name in ("id", "text", "body")}
                yield reader.line_num, fields | {"metadata": given}
        except csv.Error as error:
            raise DataError(f"not CSV: {error}", str(path), reader.reader.line_num) from error


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _hash_candidate(candidate: Candidate) -> int:
    fields = [candidate.id, candidate.text, sorted_json(candidate.metadata)]
    if candidate.examples or candidate.group:  # the digests of other catalogues stay as they were
        fields.append(json.dumps([candidate.examples, candidate.group]))
    if candidate.body:
        fields.append(candidate.body)
    return _hash_text("\0".join(fields))


def _shared_id_error(files: Sequence[str], earlier: int, later: int) -> DataError:
    """Return the error for two different candidates at two places that share an id."""
    rows = _rows(files)
    one, *_, other = islice(rows, earlier, later + 1)
    place = one.file if one.line is None else f"{one.file}, line {one.line}"
    return other.error(f"'{one.candidate.id}' is also the id of another one in {place}", "id")

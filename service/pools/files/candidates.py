"""Reads files of candidates within the limits of uploads."""

import logging
from pathlib import Path
from sys import getsizeof
from typing import BinaryIO

from turnwise.models.text_files import open_binary
from turnwise.service.candidate_files import CandidateReader, Row, note_candidates
from turnwise.service.pools.candidate import Candidate, find_excesses
from turnwise.service.pools.memory.free_memory import Memory

_ROW_BYTES = 1000
"""Bytes of a row that is being read, without its texts."""
_PARSED_FACTOR = 40
"""Bytes of memory that a byte of metadata may become."""

_log = logging.getLogger("turnwise.pools")


def read_candidates(path: Path, most: int) -> list[Candidate]:
    """Return the candidates of a file; log how its columns were read.

    Args:
        path: The file, as `turnwise pool load` takes it.
        most: Greatest number of candidates.

    Raises:
        DataError: The file cannot be read, a record is not a candidate or exceeds a limit, there
            are too many, or two different candidates share an id.
        NotEnoughMemory: The candidates do not fit into memory.
    """
    with open_binary(path) as file:
        candidates, notes = read_open_file(file, str(path), most, Memory())
    for note in notes:
        _log.info("%s: %s", path, note)
    return candidates


def read_open_file(
    file: BinaryIO, name: str, most: int, memory: Memory, reader: CandidateReader | None = None
) -> tuple[list[Candidate], list[str]]:
    """Return the candidates of an open file, which can seek, and notes for its users.

    Args:
        file: The file.
        name: Its name.
        most: Greatest number of candidates.
        memory: Admits what is read.
        reader: Knows the columns and the encoding; by default the usual ones.

    Raises:
        DataError: As `read_candidates`.
        NotEnoughMemory: As `read_candidates`.
    """
    reader = reader or CandidateReader()
    with memory.admitted(0, f"reading {name}") as admission:
        limited = (check_limits(row) for row in reader.read(file, name))
        rows = reader.merge(admission.count(limited, _measure))
    if len(rows) > most:
        raise rows[most].error(f"more candidates than the limit of {most}")
    notes = reader.notes(sum(row.left_out for row in rows))
    notes += note_candidates(rows)
    return [Candidate.uploaded(row.candidate) for row in rows], notes


def check_limits(row: Row) -> Row:
    """Return a row that obeys the limits of uploads, or raise DataError."""
    for field, message in find_excesses(row.candidate):
        raise row.error(message, field)
    return row


def _measure(row: Row) -> int:
    """Return about how many bytes of memory a row takes."""
    candidate = Candidate.uploaded(row.candidate)
    texts = sum(map(getsizeof, (candidate.text, *candidate.examples)))
    return _ROW_BYTES + texts + _PARSED_FACTOR * len(candidate.metadata_json)

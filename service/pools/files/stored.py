"""Candidates in files that the service itself has written: those of snapshots and of parts."""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from turnwise.models.errors import DataError, first_error
from turnwise.models.text_files import read_jsonl
from turnwise.service.candidate_files import Row, parse_candidate
from turnwise.service.pools.candidate import Candidate, Learned
from turnwise.service.pools.files.candidates import check_limits
from turnwise.service.wire.fields import Finite, SessionId, Text
from turnwise.service.wire.pools import MOST_EXAMPLES


class _LearnedLine(BaseModel):
    """A learned example, as a line of a snapshot has it."""

    text: Text
    at: Finite
    session: SessionId | None = None


_learned_lines = TypeAdapter(Annotated[tuple[_LearnedLine, ...], Field(max_length=MOST_EXAMPLES)])


def read_stored_candidates(path: Path, most: int) -> Iterator[Candidate]:
    """Yield the candidates of a snapshot's lines, with the examples that they had learned.

    Args:
        path: The file.
        most: Greatest number of candidates.

    Raises:
        DataError: The file cannot be read, a line is not a candidate or exceeds a limit, or there
            are too many lines.
    """
    for count, (line, record) in enumerate(read_jsonl(path)):
        if count == most:
            raise DataError(f"more candidates than the limit of {most}", str(path), line)
        candidate = read_stored_candidate(record, str(path), line)
        try:
            learned = _learned_lines.validate_python(record.get("learned") or ())
        except ValidationError as error:
            message = f"not a candidate: {first_error(error)}"
            raise DataError(message, str(path), line, "learned") from None
        examples = tuple(Learned(**example.model_dump()) for example in learned)
        yield replace(candidate, learned=examples).within_limit()


def read_stored_candidate(
    record: Mapping[str, Any], file: str, line: int | None = None
) -> Candidate:
    """Return the candidate of a record, which obeys the limits of uploads.

    Raises:
        DataError: It is not a candidate, or exceeds a limit. The error names the field.
    """
    given = {name: value for name, value in record.items() if value is not None}
    candidate = parse_candidate(given, file, line)
    return Candidate.uploaded(check_limits(Row(candidate, file, line)).candidate)


def parse_metadata(metadata: str, place: str) -> object:
    """Return the metadata of a row of Parquet; raises DataError if they are not JSON."""
    try:
        return json.loads(metadata)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", place, None, "metadata") from None


class IdCheck:
    """Finds an id that several candidates have. It keeps 8 bytes for each candidate."""

    def __init__(self) -> None:
        self._digests = array("q")

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Note the ids of candidates."""
        self._digests.extend(hash(candidate.id) for candidate in candidates)

    def find_repeated(self, ids: Iterable[str]) -> str | None:
        """Return an id that repeats; None if all differ.

        Args:
            ids: The ids again, which are read only if two have the same digest.
        """
        ordered = np.sort(np.array(self._digests, np.int64))
        later = ordered[1:]
        repeated = set(later[later == ordered[:-1]].tolist())
        if not repeated:
            return None
        seen: set[str] = set()
        for id in ids:
            if id in seen:
                return id
            if hash(id) in repeated:
                seen.add(id)
        return None

"""Candidates in files that the service itself has written: those of snapshots and of parts."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from turnwise.models.errors import DataError, first_error
from turnwise.models.text_files import read_jsonl
from turnwise.service.candidate_files import Row, parse_candidate
from turnwise.service.errors import InvalidRequest
from turnwise.service.pools.candidate import Candidate, Learned, remove_duplicates
from turnwise.service.pools.files.candidates import check_limits
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.wire.fields import Finite, SessionId, Text
from turnwise.service.wire.pools import MOST_EXAMPLES


class _LearnedLine(BaseModel):
    """A learned example, as a line of a snapshot has it."""

    text: Text
    at: Finite
    session: SessionId | None = None


_learned_lines = TypeAdapter(Annotated[tuple[_LearnedLine, ...], Field(max_length=MOST_EXAMPLES)])


def read_stored_candidates(path: Path, most: int) -> list[Candidate]:
    """Return the candidates of a snapshot's lines, with the examples that they had learned.

    Args:
        path: The file.
        most: Greatest number of candidates.

    Raises:
        DataError: The file cannot be read, a line is not a candidate or exceeds a limit, there are
            too many lines, or two different candidates share an id.
        NotEnoughMemory: The candidates do not fit into memory.
    """
    with Memory().admitted(0, f"reading {path}") as admission:
        read = _read_lines(path, most)
        candidates = list(admission.count(read, lambda candidate: candidate.memory))
    try:
        remove_duplicates(candidates)  # raises if two differ
    except InvalidRequest as error:
        raise DataError(error.errors[0].msg, str(path)) from None
    return candidates


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


def _read_lines(path: Path, most: int) -> Iterator[Candidate]:
    for count, (line, record) in enumerate(read_jsonl(path)):
        if count == most:
            raise DataError(f"more candidates than the limit of {most}", str(path), line)
        candidate = read_stored_candidate(record, str(path), line)
        try:
            learned = _learned_lines.validate_python(record.get("learned") or ())
        except ValidationError as error:
            what = f"not a candidate: {first_error(error)}"
            raise DataError(what, str(path), line, "learned") from None
        examples = tuple(Learned(**example.model_dump()) for example in learned)
        yield replace(candidate, learned=examples).within_limit()

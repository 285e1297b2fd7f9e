"""Files of candidates: those of the default pool and of snapshots."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from turnwise.models.data import read_jsonl
from turnwise.models.errors import DataError, first_error
from turnwise.service.candidate_files import read_candidate
from turnwise.service.errors import InvalidRequest
from turnwise.service.pools.candidate import Candidate, Learned, distinct, find_excesses
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.wire.fields import Finite, SessionId, Text
from turnwise.service.wire.pools import MOST_EXAMPLES

_ASKED = 1 << 20
"""Bytes of candidates after which the free memory is looked at again."""


class _LearnedLine(BaseModel):
    """A learned example, as a line of a snapshot has it."""

    text: Text
    at: Finite
    session: SessionId | None = None


_learned_lines = TypeAdapter(Annotated[tuple[_LearnedLine, ...], Field(max_length=MOST_EXAMPLES)])


def read_candidates(path: Path, most: int) -> list[Candidate]:
    """Return the candidates of a JSON Lines file; only `text` is required.

    The limits are those of uploads.

    Args:
        path: The file, also `.gz` or `.xz`.
        most: Greatest number of candidates.

    Raises:
        DataError: The file cannot be read, a line is not a candidate or exceeds a limit, there are
            too many lines, or two different candidates share an id.
        NotEnoughMemory: The candidates do not fit into memory.
    """
    candidates = list[Candidate]()
    with Memory().admitted(0, f"reading {path}") as memory:
        unasked = 0
        for line, record in read_jsonl(path):
            if len(candidates) == most:
                raise DataError(f"more candidates than the limit of {most}", str(path), line)
            candidate = _read(record, str(path), line)
            candidates.append(candidate)
            unasked += candidate.memory
            if unasked > _ASKED:
                memory.use(unasked)
                unasked = 0
    try:
        distinct(candidates)
    except InvalidRequest as error:
        raise DataError(error.errors[0].msg, str(path)) from None
    return candidates


def read_limited(record: Mapping[str, Any], file: str, line: int | None = None) -> Candidate:
    """Return the candidate of a record, which obeys the limits of uploads.

    Raises:
        DataError: It is not a candidate, or exceeds a limit. The error names the field.
    """
    uploaded = read_candidate(record, file, line)
    for field, message in find_excesses(uploaded):
        raise DataError(message, file, line, field)
    return Candidate.uploaded(uploaded)


def _read(record: Mapping[str, Any], file: str, line: int) -> Candidate:
    """Return the candidate of a line, with the examples that it had learned."""
    candidate = read_limited(record, file, line)
    try:
        learned = _learned_lines.validate_python(record.get("learned") or ())
    except ValidationError as error:
        raise DataError(f"not a candidate: {first_error(error)}", file, line, "learned") from None
    examples = tuple(Learned(**example.model_dump()) for example in learned)
    return replace(candidate, learned=examples).within_limit()

"""What pools take and tell: values that need neither vectors nor a model."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, field_validator

from turnwise.models.data import read_jsonl
from turnwise.models.errors import DataError
from turnwise.service.wire.requests import Text, Value

_CONTROLS = r"\x00-\x1f\x7f"
CandidateId = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=128,
        pattern=rf"^(\.{{0,2}}[^.{_CONTROLS}]|\.{{3}})[^{_CONTROLS}]*$",
    ),
]
"""One line of text, but for `.` and `..`, which on their way in a URL would lead elsewhere."""
Retrieval = Literal["default", "pairwise"]
"""What a pool is encoded and searched with: the model of the sessions, or the pairwise one."""
State = Literal["ready", "loading", "encoding", "damaged"]

_MOST_LEVELS = 100
"""Deepest nesting of metadata. An answer holds it some levels deeper; JSON is read up to 200."""


class UploadedCandidate(Value):
    """A reply of a pool."""

    text: Text
    id: CandidateId | None = None
    """Derived from the text where left out, so that the same text comes in once."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Given back with the candidate; it plays no part in the score."""

    @field_validator("metadata")
    @classmethod
    def _shallow(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        level: list[object] = [metadata]
        for _ in range(_MOST_LEVELS):
            level = [inner for outer in level for inner in _inside(outer)]
            if not level:
                return metadata
        if any(isinstance(value, dict | list) for value in level):
            raise ValueError(f"nests deeper than the limit of {_MOST_LEVELS} levels")
        return metadata


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """What is known of a pool on this replica."""

    name: str
    version: int
    size: int
    index: Literal["flat", "ivf"]
    """All vectors are compared, or those in the lists that are nearest."""
    exact: bool
    recall_at_10: float | None
    """Share of the exact top 10 that is found, measured; None where search is exact."""
    encoder: Retrieval
    model: str
    fingerprint: str
    """Fingerprint of the model whose vectors are searched."""
    state: State
    """It is read from Redis, encoded for this model, or a part of it is lost in Redis."""
    description: str
    created_at: float
    """Unix seconds."""
    bytes: int
    """Memory of vectors and codes."""
    progress: float | None
    """Share that is read, or is under a new index; None where nothing of this goes on."""


@dataclass(frozen=True, slots=True)
class Edited:
    """What an edit came to."""

    version: int
    upserted: int
    unchanged: int
    """Candidates that the pool had already, alike."""
    size: int


def candidate_lines(path: Path) -> Iterator[UploadedCandidate]:
    """Stream the candidates of a JSON Lines file: `text`, and maybe `id` and `metadata`.

    Raises:
        DataError: The file cannot be read, or a line is not a candidate.
    """
    for number, record in read_jsonl(path):
        given = {name: value for name, value in record.items() if value is not None}
        try:
            candidate = UploadedCandidate.model_validate(given, extra="ignore")
            # Python's parser takes NaN and lone surrogates, which no answer could hold.
            json.dumps(candidate.metadata, allow_nan=False, ensure_ascii=False).encode()
        except ValidationError as error:
            (field, *_), wrong = error.errors()[0]["loc"], error.errors()[0]["msg"]
            raise DataError(f"not a candidate: {wrong}", str(path), number, str(field)) from None
        except ValueError as error:
            raise DataError(f"not a candidate: {error}", str(path), number, "metadata") from None
        yield candidate

"""Candidates: their ids, equality, and files of them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from turnwise.models.errors import DataError
from turnwise.service.errors import InvalidRequest
from turnwise.service.wire.pools import candidate_lines


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A text that may be said next. Candidates are equal if their JSON is (`true` is not 1)."""

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    """A JSON object that is returned with the candidate."""

    @property
    def bytes(self) -> int:
        """Bytes of the id, the text and the metadata."""
        metadata = dumped(self.metadata)
        return len(self.id.encode()) + len(self.text.encode()) + len(metadata.encode())

    @classmethod
    def of(
        cls,
        text: str,
        id: str | None = None,  # noqa: A002 - the field's name
        metadata: dict[str, Any] | None = None,
    ) -> Self:
        """Return a candidate; an id that is left out is derived from the text."""
        derived = id or hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(derived, text, metadata or {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidate):
            return NotImplemented
        if (self.id, self.text, self.metadata) != (other.id, other.text, other.metadata):
            return False
        return dumped(self.metadata) == dumped(other.metadata)

    __hash__ = None  # type: ignore[assignment]


def dumped(metadata: dict[str, Any]) -> str:
    """Return JSON that is equal for equal metadata; an empty string for none."""
    return json.dumps(metadata, sort_keys=True) if metadata else ""


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without repetitions.

    Raises:
        InvalidRequest: Two different candidates share an id. The error names both places.
    """
    places: dict[str, int] = {}
    for place, candidate in enumerate(candidates):
        first = places.setdefault(candidate.id, place)
        if first != place and candidates[first] != candidate:
            message = f"'{candidate.id}' is the id of candidates {first} and {place}, which differ"
            raise InvalidRequest.field(message, place, "id")
    return [candidates[place] for place in places.values()]


def read_candidates(path: Path) -> list[Candidate]:
    """Return the candidates of a JSON Lines file: `text`, and optionally `id` and `metadata`.

    Raises:
        DataError: The file cannot be read, a line is not a candidate, or two different candidates
            share an id.
    """
    candidates = [Candidate.of(c.text, c.id, c.metadata) for c in candidate_lines(path)]
    try:
        distinct(candidates)
    except InvalidRequest as error:
        raise DataError(error.errors[0].msg, str(path)) from None
    return candidates

"""Candidates: their ids, equality, and files of them."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from turnwise.models.errors import DataError
from turnwise.service.errors import InvalidRequest
from turnwise.service.wire.pools import candidate_lines

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_OBJECT = 64
"""Bytes of a candidate's own object."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A text that may be said next.

    The metadata stay JSON until they are needed, because nested objects take up to 40 times as many
    bytes as their JSON.
    """

    id: str
    text: str
    metadata_json: bytes = b""
    """A JSON object without white space; empty for an empty object."""

    @classmethod
    def of(
        cls,
        text: str,
        id: str | None = None,  # noqa: A002 - the field's name
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a candidate; an id that is left out is derived from the text."""
        derived = id or hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(derived, text, _compact(metadata) if metadata else b"")

    @property
    def metadata(self) -> dict[str, Any]:
        """A JSON object that is returned with the candidate, parsed at each call."""
        if not self.metadata_json:
            return {}
        metadata: dict[str, Any] = json.loads(self.metadata_json)
        return metadata

    @property
    def bytes(self) -> int:
        """Bytes of the id, the text and the metadata."""
        return len(self.id.encode()) + len(self.text.encode()) + len(self.metadata_json)

    @property
    def memory(self) -> int:
        """Bytes of memory that the candidate takes, without the dictionaries that lead to it."""
        return _OBJECT + sum(map(sys.getsizeof, (self.id, self.text, self.metadata_json)))

    def __eq__(self, other: object) -> bool:
        """Return whether ids, texts and JSON are equal: `true` is not 1, and 1 is not 1.0."""
        if not isinstance(other, Candidate):
            return NotImplemented
        if (self.id, self.text) != (other.id, other.text):
            return False
        if self.metadata_json == other.metadata_json:
            return True
        return sorted_json(self.metadata) == sorted_json(other.metadata)

    __hash__ = None  # type: ignore[assignment]


def _compact(metadata: Mapping[str, Any]) -> bytes:
    return _encoder.encode(metadata).encode(errors="surrogatepass")  # as `json.loads` decodes it


def sorted_json(metadata: Mapping[str, Any]) -> str:
    """Return JSON that is equal for equal metadata; an empty string for none."""
    return json.dumps(metadata, sort_keys=True) if metadata else ""


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without repetitions.

    Raises:
        InvalidRequest: Two different candidates share an id. The error names both indexes.
    """
    indexes: dict[str, int] = {}
    for index, candidate in enumerate(candidates):
        first = indexes.setdefault(candidate.id, index)
        if first != index and candidates[first] != candidate:
            message = f"'{candidate.id}' is the id of candidates {first} and {index}, which differ"
            raise InvalidRequest.field(message, index, "id")
    return [candidates[index] for index in indexes.values()]


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

"""Candidates, and the limits of their fields."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from turnwise.models.texts import fold_text
from turnwise.service.errors import InvalidRequest
from turnwise.service.settings import Limits, describe_excess
from turnwise.service.wire.pools import (
    AFTER,
    MOST_EXAMPLES,
    UploadedCandidate,
    derive_id,
    list_after,
)
from turnwise.service.wire.problems import FieldError

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_HAS_AFTER = f'"{AFTER}":'.encode()
"""Bytes that the JSON of metadata contains if it has the field `after`."""
_OBJECT_BYTES = 72
"""Bytes of a candidate's own object."""


class Learned(NamedTuple):
    """An example that feedback added."""

    text: str
    at: float
    """Unix seconds."""
    session: str | None = None
    """The session that it came from, so that it can be deleted with what its user said."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A text that may be said next.

    Attributes:
        id: Unique in a pool.
        text: The text.
        metadata_json: A JSON object without white space; empty for an empty object.
        examples: Utterances of another speaker after which the candidate fits.
        group: The answer that it is a wording of; None for an answer of its own.
        learned: Examples that feedback added, oldest first.
        body: A longer text that is returned with the candidate, and not encoded; None without.

    The metadata stay JSON until they are needed, because nested objects take up to 40 times as many
    bytes as their JSON.
    """

    id: str
    text: str
    metadata_json: bytes = b""
    examples: tuple[str, ...] = ()
    group: str | None = None
    learned: tuple[Learned, ...] = ()
    body: str | None = None

    @classmethod
    def of(
        cls,
        text: str,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        examples: Iterable[str] = (),
        group: str | None = None,
        learned: Iterable[Learned] = (),
        body: str | None = None,
    ) -> Self:
        """Return a candidate; an id that is left out is derived from the text."""
        packed = b""
        if metadata:  # `json.loads` may decode lone surrogates
            packed = _encoder.encode(metadata).encode(errors="surrogatepass")
        return cls(
            id or derive_id(text), text, packed, tuple(examples), group, tuple(learned), body
        )

    @classmethod
    def uploaded(cls, candidate: UploadedCandidate) -> Self:
        """Return the candidate of an upload."""
        return cls.of(
            candidate.text,
            candidate.id,
            candidate.metadata,
            examples=dict.fromkeys(candidate.examples),
            group=candidate.group,
            body=candidate.body,
        )

    def record(self) -> dict[str, Any]:
        """Return the candidate as a line of a file; what it lacks is left out."""
        record: dict[str, Any] = {"id": self.id, "text": self.text, "metadata": self.metadata}
        if self.examples:
            record["examples"] = list(self.examples)
        if self.group is not None:
            record["group"] = self.group
        if self.learned:
            record["learned"] = [each._asdict() for each in self.learned]
        if self.body is not None:
            record["body"] = self.body
        return record

    def learn(self, example: Learned) -> "Candidate":
        """Return the candidate with one more learned example, unless it has that text.

        Texts are compared by `fold_text`. The oldest learned examples make room for the new one.
        """
        if self.has_example(example.text) or len(self.examples) >= MOST_EXAMPLES:
            return self
        return replace(self, learned=(*self.learned, example)).within_limit()

    def add_examples(self, texts: Iterable[str]) -> "Candidate":
        """Return the candidate with more examples, up to the limit, without copies.

        The new ones push out the oldest learned ones, and take the place of learned copies.
        """
        first: dict[str, str] = {}
        for text in (*self.examples, *texts):
            first.setdefault(fold_text(text), text)
        examples = tuple(first.values())[:MOST_EXAMPLES]
        return replace(self, examples=examples, learned=()).keep_learned(self)

    def has_example(self, text: str) -> bool:
        """Return whether a text is among the examples, compared by `fold_text`."""
        return fold_text(text) in map(fold_text, self.all_examples)

    def keep_learned(self, before: "Candidate | None") -> "Candidate":
        """Return the candidate with the learned examples of the one that it replaces.

        Learned examples that are among its examples now are left out.
        """
        if before is None or self.learned:
            return self
        given = {fold_text(text) for text in self.examples}
        learned = tuple(each for each in before.learned if fold_text(each.text) not in given)
        return replace(self, learned=learned).within_limit() if learned else self

    def within_limit(self) -> "Candidate":
        """Return the candidate without the oldest learned examples that are too many."""
        surplus = len(self.examples) + len(self.learned) - MOST_EXAMPLES
        return replace(self, learned=self.learned[surplus:]) if surplus > 0 else self

    @property
    def all_examples(self) -> tuple[str, ...]:
        """The examples, then the learned ones."""
        return (*self.examples, *(each.text for each in self.learned))

    @property
    def example_count(self) -> int:
        """Number of the examples, learned ones included."""
        return len(self.examples) + len(self.learned)

    @property
    def metadata(self) -> dict[str, Any]:
        """A JSON object that is returned with the candidate, parsed at each call."""
        if not self.metadata_json:
            return {}
        metadata: dict[str, Any] = json.loads(self.metadata_json)
        return metadata

    @property
    def follows(self) -> list[str]:
        """The replies that it follows, by their ids or groups, as its metadata say."""
        return [reply for reply in self._list_after() if isinstance(reply, str)]

    @property
    def has_wrong_after(self) -> bool:
        """Whether `after` of the metadata holds something that cannot be the name of a reply."""
        return not all(isinstance(reply, str) for reply in self._list_after())

    def _list_after(self) -> list[Any]:
        if _HAS_AFTER not in self.metadata_json:  # most candidates: their JSON is not parsed
            return []
        return list_after(self.metadata)

    @property
    def bytes(self) -> int:
        """Bytes of the texts and the metadata, without vectors."""
        texts = (self.id, self.text, self.group or "", self.body or "", *self.all_examples)
        return sum(len(text.encode()) for text in texts) + len(self.metadata_json)

    @property
    def memory(self) -> int:
        """Bytes of memory that the candidate takes, without the dictionaries that lead to it."""
        values = (self.id, self.text, self.metadata_json, self.examples, *self.all_examples)
        body = sys.getsizeof(self.body) if self.body else 0
        return _OBJECT_BYTES + body + sum(map(sys.getsizeof, values))

    def __eq__(self, other: object) -> bool:
        """Return whether ids, texts and JSON are equal: `true` is not 1, and 1 is not 1.0."""
        if not isinstance(other, Candidate):
            return NotImplemented
        names = ("id", "text", "examples", "group", "learned", "body")
        if any(getattr(self, name) != getattr(other, name) for name in names):
            return False
        if self.metadata_json == other.metadata_json:
            return True
        return sorted_json(self.metadata) == sorted_json(other.metadata)

    __hash__ = None  # type: ignore[assignment]


FindCandidate = Callable[[str], Candidate | None]
"""Returns the candidate of a pool with an id; None if the pool lacks it."""


def sorted_json(metadata: Mapping[str, Any]) -> str:
    """Return JSON that is equal for equal metadata; an empty string for none."""
    return json.dumps(metadata, sort_keys=True) if metadata else ""


def list_examples(candidates: Iterable[Candidate]) -> list[str]:
    """Return the examples of candidates, learned ones included, candidate by candidate."""
    return [text for candidate in candidates for text in candidate.all_examples]


def keep_learned(find: FindCandidate, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates with the learned examples of those with the same ids in a pool."""
    return [candidate.keep_learned(find(candidate.id)) for candidate in candidates]


def select_changed(find: FindCandidate, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that a pool lacks, or has with other fields."""
    return [candidate for candidate in candidates if find(candidate.id) != candidate]


def remove_duplicates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, each once.

    Raises:
        InvalidRequest: Two different candidates share an id. The error names both indexes.
    """
    indexes: dict[str, int] = {}
    for index, candidate in enumerate(candidates):
        first = indexes.setdefault(candidate.id, index)
        if first != index and candidates[first] != candidate:
            message = f"'{candidate.id}' is the id of candidates {first} and {index}, which differ"
            error = FieldError((index, "id"), message)
            raise InvalidRequest([error], "; nothing was changed")
    return [candidates[index] for index in indexes.values()]


def find_excesses(candidate: UploadedCandidate) -> Iterator[tuple[str, str]]:
    """Yield each field that exceeds a limit, and what is wrong with it.

    The limits hold for uploads, and for files of candidates.
    """
    if (length := len(candidate.text)) > (most := Limits.max_text_chars):
        yield "text", describe_excess(length, most, "characters")
    if candidate.body:
        size = len(candidate.body.encode())
        if size > (most := Limits.max_candidate_body_bytes):
            yield "body", describe_excess(size, most, "bytes")
    if not candidate.metadata:
        return
    try:
        json_text = json.dumps(candidate.metadata, allow_nan=False, ensure_ascii=False)
        size = len(json_text.encode())
    except ValueError:
        yield "metadata", "holds a value that JSON cannot represent"
        return
    if size > (most := Limits.max_metadata_bytes):
        yield "metadata", describe_excess(size, most, "bytes")

"""Dialogues, and the records of a file of JSON Lines.

`dialogue_files` reads dialogues.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf, isfinite
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, TypeVar

from turnwise.models.errors import DataError
from turnwise.models.text_files import describe_type, read_jsonl

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Utterance:
    """The consecutive turns of one speaker, joined."""

    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Preferred(Utterance):
    """An utterance that people preferred to others, which they passed over or rejected."""

    passed_over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Utterances in order; neighbours have different speakers, except in a story."""

    id: str
    utterances: tuple[Utterance, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the utterances, in order."""
        return tuple(said.text for said in self.utterances)


def merge_runs(utterances: Iterable[Utterance]) -> tuple[Utterance, ...]:
    """Join consecutive utterances of one speaker by a space, for any number of speakers."""
    runs = groupby(utterances, key=attrgetter("speaker"))
    return tuple(_join_run(speaker, list(run)) for speaker, run in runs)


def _join_run(speaker: str, run: Sequence[Utterance]) -> Utterance:
    text = " ".join(utterance.text for utterance in run)
    preferred = [utterance for utterance in run if isinstance(utterance, Preferred)]
    if not preferred:
        return Utterance(speaker, text)
    return Preferred(speaker, text, tuple(other for one in preferred for other in one.passed_over))


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one line of a file, each checked when it is read.

    Every method raises `DataError` if the field is missing or is not what the method returns.

    Attributes:
        fields: The values by the name of the field.
        file: The file's name in errors.
        line: The line, from 1.
        path: The prefix of a field's name in errors, for a record inside another.
    """

    fields: Mapping[str, Any]
    file: str
    line: int
    path: str = ""

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.file}, line {self.line}"

    def get(self, field: str) -> object:
        """Return a field's value, unchecked."""
        if field not in self.fields:
            raise self.error(field, "missing")
        return self.fields[field]

    def typed(self, field: str, kind: type[T]) -> T:
        """Return a string or a list, which may be empty, or a boolean."""
        value = self.get(field)
        if not isinstance(value, kind):
            raise self.error(
                field, f"expected {describe_type(kind)}, found {describe_type(type(value))}"
            )
        if isinstance(value, str):
            self._check_encodable(field, value)
        return value

    def records(self, field: str) -> Iterator[Self]:
        """Yield the objects of a list, which may be empty."""
        for index, item in enumerate(self.typed(field, list)):
            name = f"{field}[{index}]"
            if not isinstance(item, dict):
                raise self.error(name, f"expected an object, found {describe_type(type(item))}")
            yield replace(self, fields=item, path=f"{self.path}{name}.")

    def text(self, field: str) -> str:
        """Return a text that is not empty, with runs of white space made one space."""
        return self.as_text(field, self.get(field))

    def items(self, field: str) -> list[Any]:
        """Return a list that is not empty."""
        value = self.get(field)
        if not isinstance(value, list) or not value:
            raise self.error(field, "expected a list that is not empty")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts that is not empty."""
        items = enumerate(self.items(field))
        return tuple(self.as_text(f"{field}[{index}]", item) for index, item in items)

    def number(self, field: str) -> float:
        """Return a finite number."""
        value = self.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(field, "expected a number")
        try:
            number = float(value)
        except OverflowError:  # a whole number beyond the range of floats
            number = inf
        if not isfinite(number):
            raise self.error(field, "expected a number")
        return number

    def as_text(self, field: str, value: object) -> str:
        """Return a field's value as a text that is not empty."""
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "expected a text that is not empty")
        self._check_encodable(field, value)
        return " ".join(value.split())

    def error(self, field: str, what: str) -> DataError:
        """Return an error that names file, line and field."""
        return DataError(what, self.file, self.line, self.path + field)

    def _check_encodable(self, field: str, text: str) -> None:
        if _SURROGATE.search(text):
            raise self.error(field, "half a surrogate pair, which no encoding can hold")


def read_records(path: str | Path) -> Iterator[Record]:
    """Stream the lines of a JSON Lines file.

    Raises:
        DataError: The file cannot be read, or a line is not a JSON object.
    """
    for line, fields in read_jsonl(path):
        yield Record(fields, str(path), line)


def drop_empty(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Yield the utterances with runs of white space made one space, without empty texts."""
    for utterance in utterances:
        if text := " ".join(utterance.text.split()):
            yield replace(utterance, text=text)


def read_id(record: Record, field: str) -> str | None:
    """Return the dialogue id in a field, or None if the field has none."""
    value = record.fields.get(field)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return read_label(record, field)


def read_label(record: Record, field: str) -> str:
    """Return an id or a speaker, which may not be empty."""
    if label := record.typed(field, str).strip():
        return label
    raise record.error(field, "empty")


def read_utterance(record: Record) -> Utterance:
    """Return the utterance of a record; its text may be empty."""
    return Utterance(read_label(record, "speaker"), record.typed("text", str))

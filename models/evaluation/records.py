"""A line of an evaluation's file, whose errors name the file, the line and the field."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from models.dialogue import HALF_PAIR, SURROGATE, Utterance, merge_runs, read_jsonl
from models.errors import DataError


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one line, each checked as it is read.

    Every method raises `DataError` where the field is missing or something else than its name says.
    """

    fields: dict[str, Any]
    file: str
    line: int

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.file}, line {self.line}"

    def get(self, field: str) -> object:
        """Return a field as it stands."""
        if field not in self.fields:
            raise self.error(field, "missing")
        return self.fields[field]

    def text(self, field: str) -> str:
        """Return a text that is not empty, white space runs made one space."""
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
        return tuple(self.as_text(f"{field}[{place}]", item) for place, item in items)

    def number(self, field: str) -> float:
        """Return a finite number."""
        value = self.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(field, "expected a number")
        try:
            number = float(value)
        except OverflowError:  # of a whole number
            number = inf
        if not isfinite(number):
            raise self.error(field, "expected a number")
        return number

    def utterances(self, field: str) -> tuple[Utterance, ...]:
        """Return a history that is not empty; where speakers are not given, they alternate.

        An utterance is a text or `{"speaker", "text"}`; consecutive ones of a speaker become one.
        """
        items = enumerate(self.items(field))
        said = (self.as_utterance(f"{field}[{n}]", item, "AB"[n % 2]) for n, item in items)
        return merge_runs(said)

    def as_utterance(self, field: str, value: object, speaker: str) -> Utterance:
        """Return what stands at a field as an utterance, of `speaker` where it names none."""
        if isinstance(value, dict):
            named = self.as_text(f"{field}.speaker", value.get("speaker"))
            return Utterance(named, self.as_text(f"{field}.text", value.get("text")))
        return Utterance(speaker, self.as_text(field, value))

    def as_text(self, field: str, value: object) -> str:
        """Return what stands at a field as a text that is not empty."""
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "expected a text that is not empty")
        if SURROGATE.search(value):
            raise self.error(field, HALF_PAIR)
        return " ".join(value.split())

    def error(self, field: str, what: str) -> DataError:
        """Return an error that names this place."""
        return DataError(what, self.file, self.line, field)


def read_records(path: str | Path) -> Iterator[Record]:
    """Stream the lines of a JSON Lines file.

    Raises:
        DataError: The file cannot be read, or a line is not a JSON object.
    """
    for line, fields in read_jsonl(path):
        yield Record(fields, str(path), line)


def next_speaker(context: Sequence[Utterance]) -> str:
    """Return who last spoke before the last speaker, or a name for someone new."""
    last = context[-1].speaker
    others = (said.speaker for said in reversed(context) if said.speaker != last)
    return next(others, "A" if last == "B" else "B")

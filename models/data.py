"""Dialogues and the files that hold them: JSON Lines, DailyDialog's text format and CSV.

Every reader streams, reads `.gz` and `.xz` too, and raises `DataError`, which names file, line and
field. Whatever the format of a dialogue, runs of white space become one space, empty texts are
dropped, consecutive utterances of one speaker become one unless the dialogue says otherwise, and an
empty dialogue is skipped.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, groupby
from math import inf, isfinite
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, TypeVar

from turnwise.models.errors import DataError
from turnwise.models.text_files import (
    COMPRESSED,
    describe_type,
    open_text,
    read_jsonl,
    read_lines,
)

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
        fields: The values by the name of the field. `csv` gives the extra values of a row that is
            too long under the name None.
        file: The file's name in errors.
        line: The line, from 1.
        path: The prefix of a field's name in errors, for a record inside another.
    """

    fields: Mapping[Any, Any]
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


def read_dialogues(path: str | Path) -> Iterator[Dialogue]:
    """Stream the dialogues of a file; the ending of its name says the format.

    - `.jsonl`: `{"id", "utterances": [{"speaker", "text"}]}` a line; other fields are ignored. An
      utterance with `shown` or `rejected`, as the journal of the service has it, is `Preferred` to
      these texts, except to itself and to the text that was `chosen`. With `"join": false`
      consecutive utterances of one speaker stay apart, as in a story that one person tells.
    - `.txt`: DailyDialog's own format, a dialogue a line, each utterance ended by `__eou__`,
      said by A and B in turn.
    - `.tsv`: the format of IoI's corpora; each right response ends a dialogue of A and B in turn.
    - `.csv`: columns `dialogue_id` (or `id`), `speaker`, `text`; a dialogue's rows are consecutive.

    Each may be followed by `.gz` or `.xz`. A dialogue without an id is named `STEM-LINE` after
    the file and the line.

    Raises:
        DataError: The file cannot be read, or does not hold such dialogues.
    """
    path = Path(path)
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    if plain.suffix not in _READERS:
        expected = ", ".join(_READERS)
        raise DataError(f"unknown ending: expected {expected}, or these with .gz or .xz", str(path))
    for identifier, utterances, joined in _READERS[plain.suffix](path, plain.stem):
        said = not_empty(utterances)
        if all_said := merge_runs(said) if joined else tuple(said):
            yield Dialogue(identifier, all_said)


def not_empty(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Make runs of white space one space and drop empty texts."""
    for utterance in utterances:
        if text := " ".join(utterance.text.split()):
            yield replace(utterance, text=text)


_Dialogues = Iterator[tuple[str, Iterable[Utterance], bool]]
"""The id and the utterances of each dialogue, and whether to join those of one speaker."""


def _read_jsonl(path: Path, stem: str) -> _Dialogues:
    for record in read_records(path):
        utterances = [_with_others(item) for item in record.records("utterances")]
        joined = "join" not in record.fields or record.typed("join", bool)
        yield identifier(record, "id") or f"{stem}-{record.line}", utterances, joined


def _with_others(record: Record) -> Utterance:
    said = read_utterance(record)
    others = [
        text
        for name in ("shown", "rejected")
        if name in record.fields
        for text in record.texts(name)
    ]
    right = {" ".join(said.text.split())}
    if others and "chosen" in record.fields:
        right.add(record.text("chosen"))
    passed_over = tuple(dict.fromkeys(text for text in others if text not in right))
    return Preferred(said.speaker, said.text, passed_over) if passed_over else said


def identifier(record: Record, field: str) -> str | None:
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


def _read_txt(path: Path, stem: str) -> _Dialogues:
    with open_text(path) as file:
        for number, line in enumerate(read_lines(file, path), start=1):
            texts = filter(str.strip, line.split("__eou__"))  # an empty one does not take a turn
            yield f"{stem}-{number}", map(Utterance, cycle("AB"), texts), True


@dataclass(frozen=True, slots=True)
class LabelledResponse:
    """A line of IoI's format: a context, a response, and whether that is right."""

    line: int
    is_right: bool
    context: tuple[str, ...]
    response: str


def read_labelled_responses(path: str | Path) -> Iterator[LabelledResponse]:
    """Stream a file of lines `label TAB utterance TAB ... TAB response`, with 1 for a right one.

    The Ubuntu, Douban and E-commerce corpora come in this format. Empty utterances are left out.

    Raises:
        DataError: The file cannot be read, or a line is something else.
    """
    with open_text(path) as file:
        for number, line in enumerate(read_lines(file, path), start=1):
            label, *texts = (" ".join(field.split()) for field in line.split("\t"))
            if label not in ("0", "1") or len(texts) < 2 or not texts[-1]:
                what = "expected 0 or 1, utterances and a response, with tabs between them"
                raise DataError(what, str(path), number)
            context = tuple(filter(None, texts[:-1]))
            yield LabelledResponse(number, label == "1", context, texts[-1])


def _read_tsv(path: Path, stem: str) -> _Dialogues:
    for each in read_labelled_responses(path):
        if each.is_right:
            said = map(Utterance, cycle("AB"), (*each.context, each.response))
            yield f"{stem}-{each.line}", said, True


def _read_csv(path: Path, _stem: str) -> _Dialogues:
    name = str(path)
    with open_text(path) as file:
        reader = csv.DictReader(read_lines(file, path), strict=True)
        try:
            key = _id_column(reader.fieldnames or (), name)
            seen: set[str] = set()
            for identifier, rows in groupby(reader, key=lambda row: (row[key] or "").strip()):
                if identifier in seen:
                    what = f'dialogue "{identifier}" comes back after another'
                    raise DataError(what, name, reader.line_num, key)
                seen.add(identifier)
                # A list, so that errors of reading on are raised, and named, here.
                records = (Record(row, name, reader.line_num) for row in rows)
                yield identifier, [_csv_utterance(record, key) for record in records], True
        except csv.Error as error:
            # The inner reader has counted the line that failed, the outer one has not.
            raise DataError(f"not CSV: {error}", name, reader.reader.line_num) from error


def _id_column(columns: Sequence[str], file: str) -> str:
    key = "id" if "id" in columns and "dialogue_id" not in columns else "dialogue_id"
    for column in (key, "speaker", "text"):
        if columns.count(column) != 1:
            wrong = "more than once in" if column in columns else "missing from"
            raise DataError(f'{wrong} the header "{",".join(columns)}"', file, 1, column)
    return key


def _csv_utterance(record: Record, key: str) -> Utterance:
    # DictReader marks a row with too many fields by the key None, with too few by the value None.
    if None in record.fields or None in record.fields.values():
        raise DataError("not as many fields as the header has", record.file, record.line)
    read_label(record, key)
    return read_utterance(record)


_READERS = {".jsonl": _read_jsonl, ".txt": _read_txt, ".tsv": _read_tsv, ".csv": _read_csv}

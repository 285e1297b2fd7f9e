"""The candidates of a file; the records of one answer become one candidate."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from pydantic import ValidationError

from turnwise.models.errors import DataError
from turnwise.models.text_files import open_binary
from turnwise.models.texts import shorten, write_count
from turnwise.service.candidate_files.columns import (
    Columns,
    EmptyTextError,
    FieldReader,
    as_name,
    is_blank,
)
from turnwise.service.candidate_files.formats import read_records
from turnwise.service.wire.pools import (
    AFTER,
    MOST_EXAMPLES,
    UploadedCandidate,
    derive_id,
    list_after,
)
from turnwise.service.wire.problems import explain_error

_SHOWN = 60
"""Characters of a value in an error."""
_SHOWN_LINES = 20
"""Lines in an error about empty texts."""
_SHOWN_NAMES = 10
"""Names in a note about replies that a file lacks."""
_BULLETS = ("- ", "* ", "• ")
"""Beginnings of texts that were copied from a list."""


class Row(NamedTuple):
    """A candidate, and where it is in a file."""

    candidate: UploadedCandidate
    file: str
    line: int | None
    left_out: int = 0
    """Its examples beyond those that a candidate may have."""

    @property
    def where(self) -> str:
        """The line, or the file if no line is known."""
        return self.file if self.line is None else f"line {self.line}"

    @property
    def id(self) -> str:
        """The id of the candidate in a pool."""
        return self.candidate.id or derive_id(self.candidate.text)

    def error(self, what: str, field: str | None = None) -> DataError:
        """Return an error that names the place."""
        return DataError(what, self.file, self.line, field)


class CandidateReader:
    """Reads files of candidates, and remembers which columns became what.

    Args:
        columns: The names of the columns.
        encoding: The encoding of the files, unless a byte order mark names it; None for UTF-8.
    """

    def __init__(self, columns: Columns | None = None, encoding: str | None = None) -> None:
        self._fields = FieldReader(columns or Columns())
        self._encoding = encoding
        self._bullets = 0
        self._numbers: list[Row] = []
        """Candidates whose text is a number, such as that of a row of totals."""
        self._lists: list[tuple[Row, str]] = []
        """Examples that look like several, and their rows."""

    def read(self, file: BinaryIO, name: str) -> Iterator[Row]:
        """Yield the candidates of an open file, which can seek, one for each of its records.

        Raises:
            DataError: The file cannot be read, or a record is not a candidate. If texts are empty,
                the error comes at the end of the file and names all of them.
        """
        empty: list[EmptyTextError] = []
        for line, record in read_records(file, name, self._fields.columns, self._encoding):
            try:
                row = self.read_record(record, name, line)
            except EmptyTextError as error:
                empty.append(error)
            else:
                yield row
        if empty:
            raise _join_empty(empty)

    def read_files(self, paths: Iterable[Path]) -> list[Row]:
        """Return the candidates of several files, which are read as one file.

        Raises:
            DataError: As `read` and `merge`.
        """
        return self.merge(row for path in paths for row in self._read_file(path))

    def _read_file(self, path: Path) -> Iterator[Row]:
        with open_binary(path) as file:
            yield from self.read(file, str(path))

    def read_record(self, record: Mapping[str, Any], file: str, line: int | None) -> Row:
        """Return the candidate of a record.

        Raises:
            DataError: The record is not a candidate; the error names the field.
        """
        fields = self._fields.read(record, file, line)
        examples, left_out = _limit_examples(fields["examples"])
        candidate = parse_candidate(fields | {"examples": examples}, file, line)
        if candidate.text.startswith(_BULLETS):
            self._bullets += 1
        row = Row(candidate, file, line, left_out)
        if _is_number(candidate.text):
            self._numbers.append(row)
        self._lists += [(row, each) for each in candidate.examples if _is_like_list(each)]
        return row

    def merge(self, rows: Iterable[Row]) -> list[Row]:
        """Return one row for each candidate, with the examples of all its rows.

        Its later rows may leave out group, body and metadata.

        Raises:
            DataError: Two rows of one candidate differ in more than their examples.
        """
        merged: dict[str, Row] = {}
        for row in rows:
            first = merged.get(row.id)
            merged[row.id] = _merge_two(first, row) if first else row
        return list(merged.values())

    def notes(self, left_out: int) -> list[str]:
        """Return what the users of the files should know.

        Args:
            left_out: Examples beyond those that their candidates may have.
        """
        notes = [self._fields.describe()]
        if self._bullets:
            count = write_count(self._bullets, "text")
            notes.append(f"{count} with the bullet of a list, which stays: remove it from the file")
        if self._numbers:
            count = write_count(len(self._numbers), "text")
            first = self._numbers[0]
            shown = f"{_show(first.candidate.text)} in {first.where}"
            notes.append(f"{count} without words, first {shown}: remove rows of totals")
        if self._lists:
            count = write_count(len(self._lists), "example")
            row, example = self._lists[0]
            notes.append(
                f"{count} that may be several, first {_show(example)} in {row.where}: write one a "
                'row, or a JSON list such as ["Hi", "Hello"]'
            )
        if left_out:
            notes.append(
                f"{write_count(left_out, 'example')} left out: a candidate has at most "
                f"{MOST_EXAMPLES}"
            )
        return list(filter(None, notes))


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """The candidates of a file."""

    path: Path
    rows: list[Row]
    """One for each candidate."""
    notes: list[str]
    """Notes on what the reader did, as far as the names of the columns do not say it."""

    @property
    def candidates(self) -> list[UploadedCandidate]:
        """The candidates of the rows."""
        return [row.candidate for row in self.rows]

    @classmethod
    def read(cls, path: Path, columns: Columns | None = None, encoding: str | None = None) -> Self:
        """Read a file.

        Args:
            path: The file: JSON Lines, a JSON array, CSV, TSV, or `.txt` with one text a line; also
                `.gz` or `.xz`.
            columns: The names of its columns; by default the usual ones.
            encoding: Its encoding, unless a byte order mark names it; None for UTF-8.

        Raises:
            DataError: The file cannot be read, a record is not a candidate, or there are none.
        """
        reader = CandidateReader(columns, encoding)
        rows = reader.read_files([path])
        if not rows:
            raise DataError("there are no candidates", str(path))
        notes = reader.notes(sum(row.left_out for row in rows))
        return cls(path, rows, [*notes, *note_candidates(rows)])


def note_candidates(rows: Sequence[Row]) -> list[str]:
    """Return what the users of a file should know of its candidates.

    The notes name the replies that candidates follow and that are not in the file, and texts that
    have an id in one row and none in another.

    Args:
        rows: All candidates of the file.
    """
    return [*_note_unknown_replies(rows), *_note_missing_ids(rows)]


def _note_missing_ids(rows: Sequence[Row]) -> list[str]:
    named = {row.candidate.text for row in rows if row.candidate.id}
    lacking = [row for row in rows if not row.candidate.id and row.candidate.text in named]
    if not lacking:
        return []
    shown = f"{_show(lacking[0].candidate.text)} in {lacking[0].where}"
    return [
        f"{write_count(len(lacking), 'text')} without an id that another row has with one, first "
        f"{shown}: write the id in each row of an answer"
    ]


def _note_unknown_replies(rows: Sequence[Row]) -> list[str]:
    known = {row.id for row in rows} | {row.candidate.group for row in rows}
    unknown: dict[str, Row] = {}
    for row in rows:
        for name in list_after(row.candidate.metadata):
            if isinstance(name, str) and name not in known:
                unknown.setdefault(name, row)
    if not unknown:
        return []
    named = [f"{_show(name)} in {row.where}" for name, row in unknown.items()]
    more = f" and {len(named) - _SHOWN_NAMES} more" if len(named) > _SHOWN_NAMES else ""
    return [
        f'"{AFTER}" names replies that the file lacks: {", ".join(named[:_SHOWN_NAMES])}{more}. '
        'Several names are a JSON list, such as ["a", "b"]'
    ]


def read_ids(path: Path) -> list[str]:
    """Return the distinct ids of a file: its column or field `id`, or the lines of a `.txt`.

    Args:
        path: A file of any format that `CandidateFile.read` takes, with or without texts.

    Raises:
        DataError: The file cannot be read, or a record has no id.
    """
    columns = Columns(text="id")
    ids: dict[str, None] = {}
    with open_binary(path) as file:
        for line, record in read_records(file, str(path), columns):
            found = columns.find("text", list(record))
            id = as_name(record[found[0]]) if found else None
            if not isinstance(id, str) or is_blank(id):
                raise DataError("no id", str(path), line, "id")
            ids[id] = None
    return list(ids)


def _join_empty(errors: list[EmptyTextError]) -> DataError:
    """Return the first error, with the lines of the others."""
    first, *others = errors
    lines = [f"line {error.line}" for error in others]
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], "..."]
    also = f". Also empty: {', '.join(lines)}" if lines else ""
    return DataError(f"{first.what}{also}", first.file, first.line, first.field)


def _is_number(text: str) -> bool:
    return any(map(str.isdigit, text)) and not any(map(str.isalpha, text))


def _is_like_list(example: str) -> bool:
    """Return whether an example was probably meant to be several: lines, or a list in JSON."""
    return "\n" in example or (example.startswith("[") and example.endswith("]"))


def _merge_two(first: Row, second: Row) -> Row:
    """Return the row of a candidate that has two rows; raises as `CandidateReader.merge`."""
    one = first.candidate
    other = second.candidate
    if what := _find_difference(first, second):
        raise second.error(what)
    if other.examples == one.examples:
        return first
    examples, more = _limit_examples([*one.examples, *other.examples])
    return first._replace(
        candidate=one.model_copy(update={"examples": examples}),
        left_out=first.left_out + second.left_out + more,
    )


def _limit_examples(examples: list[Any]) -> tuple[list[Any], int]:
    """Return the first distinct examples, up to the limit, and how many were left out.

    Values that are no texts stay, so that a later check can name them.
    """
    if all(isinstance(each, str) for each in examples):
        examples = list(dict.fromkeys(each.strip() for each in examples if each.strip()))
    return examples[:MOST_EXAMPLES], max(0, len(examples) - MOST_EXAMPLES)


def parse_candidate(fields: Mapping[str, Any], file: str, line: int | None) -> UploadedCandidate:
    """Return a candidate; other fields than those of a candidate are ignored.

    Raises:
        DataError: The fields are not a candidate. The error names the field.
    """
    try:
        candidate = UploadedCandidate.model_validate(fields, extra="ignore")
        # Python's parser accepts NaN and lone surrogates, which JSON answers cannot hold.
        json.dumps(candidate.metadata, allow_nan=False, ensure_ascii=False).encode()
    except ValidationError as error:
        first = error.errors()[0]
        what = f"not a candidate: {explain_error(first)}"
        raise DataError(what, file, line, str(first["loc"][0])) from None
    except (TypeError, ValueError) as error:
        raise DataError(f"not a candidate: {error}", file, line, "metadata") from None
    return candidate


def _find_difference(first: Row, second: Row) -> str | None:
    """Return what a later row of a candidate says otherwise than the first; None if nothing."""
    one = first.candidate
    other = second.candidate
    where = first.where if first.file == second.file else f"{first.file}, {first.where}"
    if one.text != other.text:
        return f"'{other.id}' is also the id of another text, in {where}"
    same = f"'{other.id}' is also the id of" if other.id else "the text is also that of"
    for part in ("group", "body"):
        if getattr(other, part) not in {None, getattr(one, part)}:
            return f"{same} {where}, which has another {part}: give each row an id of its own"
    for name, value in other.metadata.items():
        if one.metadata.get(name) != value:
            return (
                f'{same} {where}, but "{name}" is {_show(one.metadata.get(name))} there and '
                f"{_show(value)} here. Give each row an id of its own to keep both. If "
                f'"{name}" is what users ask, make it one of the examples. Otherwise leave it out'
            )
    return None


def _show(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), _SHOWN)

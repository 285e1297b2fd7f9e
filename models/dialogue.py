"""Dialogues, and the readers that stream them from files.

Whatever the format, white space runs become one space, empty texts are dropped, consecutive
utterances of one speaker become one, and a dialogue with nothing left is skipped.
"""

import csv
import gzip
import json
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, TextIO, TypeVar

from models.errors import DataError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one speaker says until another speaks."""

    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Utterances in order; neighbours have different speakers."""

    id: str
    utterances: tuple[Utterance, ...]


def merge_runs(utterances: Iterable[Utterance]) -> tuple[Utterance, ...]:
    """Join consecutive utterances of one speaker by a space; any number of speakers."""
    return tuple(
        Utterance(speaker, " ".join(utterance.text for utterance in run))
        for speaker, run in groupby(utterances, key=attrgetter("speaker"))
    )


def read_dialogues(path: str | Path) -> Iterator[Dialogue]:
    """Stream the dialogues of a file, whose name's ending tells its format.

    - `.jsonl`: `{"id", "utterances": [{"speaker", "text"}]}` a line; other fields are ignored.
    - `.txt`: DailyDialog's own format, a dialogue a line, each utterance ended by `__eou__`,
      said by A and B in turn.
    - `.csv`: columns `dialogue_id` (or `id`), `speaker`, `text`; a dialogue's rows stand together.

    Each may be followed by `.gz` or `.xz`. A dialogue without an id is named `STEM-LINE` after
    the file and the line.

    Raises:
        DataError: The file cannot be read, or does not hold such dialogues.
    """
    path = Path(path)
    plain = path.with_suffix("") if path.suffix in _COMPRESSED else path
    if plain.suffix not in _READERS:
        expected = ", ".join(_READERS)
        raise DataError(f"unknown ending: expected {expected}, or these with .gz or .xz", str(path))
    for identifier, utterances in _READERS[plain.suffix](path, plain.stem):
        if merged := merge_runs(_said(utterances)):
            yield Dialogue(identifier, merged)


@contextmanager
def open_text(path: str | Path) -> Iterator[TextIO]:
    """Open a plain, `.gz` or `.xz` file as UTF-8 text; line endings are kept for `csv`.

    Raises:
        DataError: The file cannot be opened or, inside the `with`, it proves not to be UTF-8,
            corrupt or truncated.
    """
    name, opener = str(path), _COMPRESSED.get(Path(path).suffix, open)
    try:
        # A byte order mark is what spreadsheets put before their CSV.
        file = opener(path, "rt", encoding="utf-8-sig", newline="")
    except OSError as error:
        raise DataError(error.strerror or str(error), name) from error
    with file:
        try:
            yield file
        except UnicodeDecodeError as error:
            raise DataError("not UTF-8", name, _undecodable_line(path)) from error
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
            raise DataError(f"corrupt or truncated: {error}", name) from error


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream the objects of a JSON Lines file with their line numbers; blank lines are skipped.

    Raises:
        DataError: The file cannot be read, or a line is not a JSON object.
    """
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"not JSON: {error}", str(path), number) from error
            if not isinstance(record, dict):
                raise DataError(f"expected an object, found {_kind(record)}", str(path), number)
            yield number, record


def write_jsonl(path: str | Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a JSON Lines file, whole or not at all, and return the number of its lines.

    Its folder is made where there is none. The records may be read from the file itself.

    Raises:
        OSError: The file cannot be written.
    """
    if Path(path).exists() and not Path(path).is_file():  # such as /dev/stdout
        return _write_lines(Path(path), records)
    path = Path(path).resolve()  # so that a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".write-") as scratch:
        written = Path(scratch) / path.name
        count = _write_lines(written, records)
        if path.exists():
            shutil.copymode(path, written)
        written.replace(path)
    return count


_COMPRESSED: dict[str, Callable[..., TextIO]] = {".gz": gzip.open, ".xz": lzma.open}
HALF_PAIR = "half a surrogate pair, which no encoding can hold"
SURROGATE = re.compile("[\ud800-\udfff]")
_KINDS = {str: "a string", list: "a list", dict: "an object", type(None): "null", bool: "a boolean"}


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for count, record in enumerate(records, start=1):  # noqa: B007 - the last is the count
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return count


def _said(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Make white space runs one space and drop what is empty."""
    for utterance in utterances:
        if text := " ".join(utterance.text.split()):
            yield Utterance(utterance.speaker, text)


def _undecodable_line(path: str | Path) -> int | None:
    """Return the first line that is not UTF-8: a text file decodes in blocks and cannot tell."""
    opener = _COMPRESSED.get(Path(path).suffix, open)
    with opener(path, "rt", encoding="utf-8", errors="surrogateescape") as file:
        return next((number for number, line in enumerate(file, 1) if SURROGATE.search(line)), None)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")


@dataclass(frozen=True, slots=True)
class _Record:
    """Fields that know where in a file they stand."""

    fields: Mapping[Any, Any]
    file: str
    line: int
    path: str = ""

    def error(self, what: str, name: str) -> DataError:
        return DataError(what, self.file, self.line, self.path + name)

    def get(self, name: str, kind: type[T]) -> T:
        if name not in self.fields:
            raise self.error("missing", name)
        value = self.fields[name]
        if not isinstance(value, kind):
            raise self.error(f"expected {_KINDS[kind]}, found {_kind(value)}", name)
        if isinstance(value, str) and SURROGATE.search(value):
            raise self.error(HALF_PAIR, name)
        return value

    def label(self, name: str) -> str:
        """Return an id or a speaker, which may not be empty."""
        if label := self.get(name, str).strip():
            return label
        raise self.error("empty", name)

    def utterance(self) -> Utterance:
        return Utterance(self.label("speaker"), self.get("text", str))


_Dialogues = Iterator[tuple[str, Iterable[Utterance]]]


def _read_jsonl(path: Path, stem: str) -> _Dialogues:
    for line, fields in read_jsonl(path):
        record = _Record(fields, str(path), line)
        items = enumerate(record.get("utterances", list))
        yield (
            _identifier(record) or f"{stem}-{line}",
            [_json_utterance(record, item, f"utterances[{index}]") for index, item in items],
        )


def _identifier(record: _Record) -> str | None:
    """Return the id, or None where there is none."""
    value = record.fields.get("id")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return record.label("id")


def _json_utterance(record: _Record, item: object, name: str) -> Utterance:
    if not isinstance(item, dict):
        raise record.error(f"expected an object, found {_kind(item)}", name)
    return _Record(item, record.file, record.line, f"{name}.").utterance()


def _read_txt(path: Path, stem: str) -> _Dialogues:
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            said = filter(str.strip, line.split("__eou__"))  # what is empty takes no turn
            yield f"{stem}-{number}", map(Utterance, cycle("AB"), said)


def _read_csv(path: Path, _stem: str) -> _Dialogues:
    name = str(path)
    with open_text(path) as file:
        reader = csv.DictReader(file, strict=True)
        try:
            key = _id_column(reader.fieldnames or (), name)
            seen: set[str] = set()
            for identifier, rows in groupby(reader, key=itemgetter(key)):
                if identifier in seen:
                    what = f'dialogue "{identifier}" comes back after another'
                    raise DataError(what, name, reader.line_num, key)
                seen.add(identifier)
                # A list, so that what goes wrong in reading on is raised, and named, here.
                records = (_Record(row, name, reader.line_num) for row in rows)
                yield identifier, [_csv_utterance(record, key) for record in records]
        except csv.Error as error:
            # The inner reader has counted the line that failed, the outer one has not.
            raise DataError(f"not CSV: {error}", name, reader.reader.line_num) from error


def _id_column(columns: Collection[str], file: str) -> str:
    key = "id" if "id" in columns and "dialogue_id" not in columns else "dialogue_id"
    for column in (key, "speaker", "text"):
        if column not in columns:
            raise DataError(f'missing from the header "{",".join(columns)}"', file, 1, column)
    return key


def _csv_utterance(record: _Record, key: str) -> Utterance:
    # DictReader's marks for too many fields and too few.
    if None in record.fields or None in record.fields.values():
        raise DataError("not as many fields as the header has", record.file, record.line)
    record.label(key)
    return record.utterance()


_READERS = {".jsonl": _read_jsonl, ".txt": _read_txt, ".csv": _read_csv}

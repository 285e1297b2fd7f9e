"""JSON Lines files, and fields that know where in a file they stand; `.gz` and `.xz` as well."""

import gzip
import json
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

from turnwise.models.errors import DataError

T = TypeVar("T")

COMPRESSED: dict[str, Callable[..., TextIO]] = {".gz": gzip.open, ".xz": lzma.open}

_SURROGATE = re.compile("[\ud800-\udfff]")
_KINDS = {str: "a string", list: "a list", dict: "an object", type(None): "null", bool: "a boolean"}


@contextmanager
def open_text(path: str | Path) -> Iterator[TextIO]:
    """Open a plain, `.gz` or `.xz` file as UTF-8 text; line endings are kept for `csv`.

    Raises:
        DataError: The file cannot be opened or, inside the `with`, it proves not to be UTF-8,
            corrupt or truncated.
    """
    name, opener = str(path), COMPRESSED.get(Path(path).suffix, open)
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


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one line, each checked as it is read.

    Every method raises `DataError` where the field is missing or something else than its name says.

    Attributes:
        fields: By name; as `csv` gives them, a row that is too long has one named None.
        file: As errors name it.
        line: From 1.
        path: What errors put before a field's name, of a record that is part of another.
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
        """Return a field as it stands."""
        if field not in self.fields:
            raise self.error(field, "missing")
        return self.fields[field]

    def typed(self, field: str, kind: type[T]) -> T:
        """Return a value of a kind: a string or a list, which may be empty."""
        value = self.get(field)
        if not isinstance(value, kind):
            raise self.error(field, f"expected {_KINDS[kind]}, found {_kind(value)}")
        if isinstance(value, str):
            self._encodable(field, value)
        return value

    def records(self, field: str) -> Iterator[Self]:
        """Yield the objects of a list, which may be empty."""
        for index, item in enumerate(self.typed(field, list)):
            name = f"{field}[{index}]"
            if not isinstance(item, dict):
                raise self.error(name, f"expected an object, found {_kind(item)}")
            yield replace(self, fields=item, path=f"{self.path}{name}.")

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
        return tuple(self.as_text(f"{field}[{index}]", item) for index, item in items)

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

    def as_text(self, field: str, value: object) -> str:
        """Return what stands at a field as a text that is not empty."""
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "expected a text that is not empty")
        self._encodable(field, value)
        return " ".join(value.split())

    def error(self, field: str, what: str) -> DataError:
        """Return an error that names this place."""
        return DataError(what, self.file, self.line, self.path + field)

    def _encodable(self, field: str, text: str) -> None:
        if _SURROGATE.search(text):
            raise self.error(field, "half a surrogate pair, which no encoding can hold")


def read_records(path: str | Path) -> Iterator[Record]:
    """Stream the lines of a JSON Lines file.

    Raises:
        DataError: The file cannot be read, or a line is not a JSON object.
    """
    for line, fields in read_jsonl(path):
        yield Record(fields, str(path), line)


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for count, record in enumerate(records, start=1):  # noqa: B007 - the last is the count
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return count


def _undecodable_line(path: str | Path) -> int | None:
    """Return the first line that is not UTF-8: a text file decodes in blocks and cannot tell."""
    opener = COMPRESSED.get(Path(path).suffix, open)
    with opener(path, "rt", encoding="utf-8", errors="surrogateescape") as file:
        return next(
            (number for number, line in enumerate(file, 1) if _SURROGATE.search(line)), None
        )


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")

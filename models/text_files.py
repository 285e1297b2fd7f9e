"""Text files, as lines, as JSON Lines and as tables.

Every reader streams, reads `.gz` and `.xz` too, and raises `DataError`, which names file and line.
A byte order mark names the encoding. Without one it is UTF-8, or the one that the caller names.
"""

import codecs
import csv
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

from turnwise.models.errors import DataError
from turnwise.models.files import replace_file
from turnwise.models.texts import write_count

COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""The endings of compressed files, and what opens them."""
CORRUPT = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
"""The exceptions of reading a compressed file that is corrupt or truncated."""
LONGEST_LINE = 4 << 20
"""Characters of a line. A few kilobytes of `.xz` can hold a line that no memory can."""

LINES = "each line is one object"
"""The contents of a file of JSON Lines, for errors."""
LINES_OR_ARRAY = "write one object a line, or one array of objects with nothing around it"
"""The contents of a file of objects that may also be an array, for errors."""

_LONGEST_ARRAY = 32 << 20
"""Characters of a JSON array, which is parsed whole."""
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",  # spreadsheets put it before their CSV
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SEPARATORS = ",;\t"
_SEPARATOR_LINE = "sep="
"""The beginning of a line by which some programs tell Excel the separator, before the header."""
_NOT_OF_FILES = {"idna", "punycode", "unicode_escape", "raw_unicode_escape"}
"""Encodings of Python that no file has; decoding some of them takes long."""
_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TYPES = {
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
    bool: "a boolean",
}


def plain_ending(name: str | PurePath) -> str:
    """Return the ending of a file name without `.gz` or `.xz`, in lower case."""
    path = PurePath(name)
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    return plain.suffix.lower()


@contextmanager
def open_text(path: str | Path, encoding: str | None = None) -> Iterator[TextIO]:
    """Open a file as text; line endings stay as they are.

    Raises:
        DataError: The file cannot be opened, or `decode_text` raises it.
    """
    with open_binary(path) as file, decode_text(file, str(path), encoding) as text:
        yield text


@contextmanager
def open_binary(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file to read its bytes; raises DataError if it cannot be opened."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise DataError(error.strerror or str(error), str(path)) from error
        yield file


@contextmanager
def decode_text(file: BinaryIO, name: str, encoding: str | None) -> Iterator[TextIO]:
    """Yield the text of a file that can seek; line endings stay as they are.

    Args:
        file: The file, which stays open.
        name: Its name. With the ending `.gz` or `.xz` the file is decompressed.
        encoding: Its encoding, unless it has a byte order mark; None for UTF-8.

    Raises:
        DataError: There is no such encoding; or, inside the `with`, the file has another encoding,
            or is corrupt or truncated.
    """
    try:
        with _open_decoded(file, name, encoding, "strict") as text:
            yield text
    except UnicodeDecodeError as error:
        line = _find_undecodable_line(file, name, encoding)
        what = f"not {error.encoding.upper()} but another encoding, often cp1252: save it as UTF-8"
        raise DataError(what, name, line, option="encoding") from error
    except CORRUPT as error:
        raise DataError(f"corrupt or truncated: {error}", name) from error


@contextmanager
def _open_decoded(file: BinaryIO, name: str, encoding: str | None, errors: str) -> Iterator[TextIO]:
    file.seek(0)
    opener = COMPRESSED.get(PurePath(name).suffix)
    content = BufferedReader(cast("RawIOBase", opener(file) if opener else file))
    start = content.peek(max(map(len, _MARKS)))
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    chosen = marked or encoding or "utf-8"
    if not _is_encoding(chosen):
        raise DataError(f"there is no encoding '{chosen}'", name)
    text = TextIOWrapper(content, chosen, errors, newline="")
    try:
        yield text
    finally:
        if not file.closed:  # by an error that left a generator behind
            text.detach()
            content.detach()


def _is_encoding(name: str) -> bool:
    """Return whether a name is that of an encoding of texts that files have."""
    try:
        "a".encode(name)
    except (LookupError, UnicodeError):
        return False
    return codecs.lookup(name).name.replace("-", "_") not in _NOT_OF_FILES


def _find_undecodable_line(file: BinaryIO, name: str, encoding: str | None) -> int | None:
    """Return the first line with another encoding; text is decoded in blocks of many lines."""
    try:
        with _open_decoded(file, name, encoding, "surrogateescape") as text:
            lines = enumerate(read_lines(text, name), start=1)
            return next((number for number, line in lines if _SURROGATE.search(line)), None)
    except UnicodeDecodeError:  # UTF-16 has no such replacement
        return None


def read_lines(file: TextIO, name: str | Path, number: int = 1) -> Iterator[str]:
    """Stream the lines of an open file with their ends, and hold only one of them in memory.

    Args:
        file: The file.
        name: Its name in errors.
        number: The number of the next line.

    Raises:
        DataError: A line is too long.
    """
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise DataError(f"more than {LONGEST_LINE} characters", str(name), number)
        yield line
        number += 1


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream the objects of a JSON Lines file with their line numbers; blank lines are skipped.

    Raises:
        DataError: The file cannot be read, a line is too long, or it is not a JSON object.
    """
    with open_text(path) as file:
        yield from parse_jsonl(read_lines(file, path), str(path))


def parse_jsonl(
    lines: Iterable[str], name: str, shape: str = LINES
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of lines of JSON with their line numbers; blank lines are skipped.

    Args:
        lines: The lines of the file.
        name: The file's name in errors.
        shape: The contents that the file should have, for errors.

    Raises:
        DataError: A line is not a JSON object.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:  # its own line number counts within this line
            what = f"not JSON: {error.msg}, column {error.pos + 1}; {shape}"
            raise DataError(what, name, number) from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON: {error}", name, number) from error
        yield number, _check_object(record, name, number, shape)


def read_first_line(text: TextIO) -> tuple[int, str]:
    """Return how many blank lines come first, and the next line, perhaps only its beginning."""
    skipped = 0
    while line := text.readline(LONGEST_LINE + 1):
        if line.strip() or len(line) > LONGEST_LINE:
            return skipped, line
        skipped += 1
    return skipped, ""


def parse_array(
    skipped: int, first: str, text: TextIO, name: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON array with the lines where they begin.

    Args:
        skipped: Lines before the first one.
        first: The first line, perhaps only its beginning. Its first character but spaces is `[`.
        text: The rest of the file.
        name: The file's name in errors.

    Raises:
        DataError: It is too long, or not an array of objects.
    """
    content = first + text.read(_LONGEST_ARRAY)
    if len(content) > _LONGEST_ARRAY:
        raise DataError(f"an array of more than {_LONGEST_ARRAY} characters: use lines", name)
    decode = json.JSONDecoder().raw_decode
    position = _skip_space(content, content.index("[") + 1)
    line = skipped + 1
    counted = 0
    try:
        while content[position : position + 1] != "]":
            line += content.count("\n", counted, position)
            counted = position
            record, position = decode(content, position)
            yield line, _check_object(record, name, line, LINES_OR_ARRAY)
            position = _skip_space(content, position)
            if content[position : position + 1] == ",":
                position = _skip_space(content, position + 1)
            elif content[position : position + 1] != "]":
                what = f"not JSON: expected , or ] after the object; {LINES_OR_ARRAY}"
                raise DataError(what, name, line)
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg}; {LINES_OR_ARRAY}"
        raise DataError(what, name, skipped + error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", name, line) from error


def _skip_space(content: str, position: int) -> int:
    space = _SPACE.match(content, position)
    return space.end() if space else position


def _check_object(value: object, name: str, line: int, shape: str) -> dict[str, Any]:
    """Return a JSON value that is an object, or raise DataError."""
    if not isinstance(value, dict):
        what = f"expected an object, found {describe_type(type(value))}; {shape}"
        raise DataError(what, name, line)
    return value


def describe_type(kind: type) -> str:
    """Return the name that JSON has for a type of Python."""
    return _JSON_TYPES.get(kind, "a number")


def write_jsonl(path: str | Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a JSON Lines file, whole or not at all, and return the number of its lines.

    The folder is made if it does not exist. The records may be read from the file itself.

    Raises:
        OSError: The file cannot be written.
    """
    count = 0
    with replace_file(Path(path)) as fresh, fresh.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count


class Table(NamedTuple):
    """A table: its first row names the columns."""

    columns: list[str]
    line: int
    """The line of the header."""
    rows: Iterator[tuple[int, dict[str, str]]]
    """The first line of each row, and its cells by column. Empty rows are left out, and so are
    columns without a name."""


def read_table(lines: Iterable[str], name: str, is_known: Callable[[Sequence[str]], bool]) -> Table:
    """Read a table whose cells are separated by commas, semicolons or tabs.

    Cells lose white space at their ends, which nobody sees in a spreadsheet.

    Args:
        lines: The lines of the file with their ends.
        name: The file's name in errors.
        is_known: Returns whether some columns are those that the caller expects. They decide which
            separator it is, since few rows may hold any of them.

    Raises:
        DataError: A column repeats; or, while rows are read, a row has not as many cells as the
            header, or a quote is not closed.
    """
    lines = iter(lines)
    skipped: list[str] = []
    header = ""
    for header in lines:
        if header.strip() and not header.startswith(_SEPARATOR_LINE):
            break
        skipped.append(header)
    splits = {separator: _split_header(header, separator) for separator in _SEPARATORS}
    separator = max(splits, key=lambda each: (is_known(splits[each]), len(splits[each])))
    columns = splits[separator]
    line = len(skipped) + 1
    for column in columns:
        if column and columns.count(column) > 1:
            raise DataError(f'the header has two columns "{column}": rename one', name, line)
    reader = csv.reader(chain(skipped, [header], lines), delimiter=separator, strict=True)
    return Table(columns, line, _read_rows(reader, columns, name, line))


def _split_header(header: str, separator: str) -> list[str]:
    try:
        columns = next(csv.reader([header], delimiter=separator, strict=True), [])
    except csv.Error:  # a quote, which another separator perhaps closes
        columns = [header]
    return [column.strip() for column in columns]


def _read_rows(
    reader: Any,  # noqa: ANN401 - the type of `csv.reader` has no name
    columns: Sequence[str],
    name: str,
    header_line: int,
) -> Iterator[tuple[int, dict[str, str]]]:
    before = 0
    try:
        for cells in reader:
            line = before + 1
            before = reader.line_num
            if line <= header_line or not any(map(str.strip, cells)):
                continue
            if len(cells) < len(columns) or any(cells[len(columns) :]):
                raise DataError(
                    f"{write_count(len(cells), 'cell')}, but the header has {len(columns)}: put "
                    "quotes around "
                    "cells that hold the separator or a line break",
                    name,
                    line,
                )
            row = zip(columns, cells, strict=False)
            yield line, {column: cell.strip() for column, cell in row if column}
    except csv.Error as error:
        what = f"not CSV: {error}. Double a quote inside a cell, and put quotes around such a cell"
        raise DataError(what, name, reader.line_num) from error

"""The records of a file of candidates, whatever its format."""

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any, BinaryIO, Literal

from turnwise.models.errors import DataError
from turnwise.models.text_files import (
    LINES_OR_ARRAY,
    LONGEST_LINE,
    decode_text,
    parse_array,
    parse_jsonl,
    plain_ending,
    read_first_line,
    read_lines,
    read_table,
)
from turnwise.service.candidate_files.columns import Columns

Record = tuple[int, dict[str, Any]]
"""The first line of a record, and its fields."""

ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt")
"""The endings of files of candidates; each may be followed by `.gz` or `.xz`."""
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""The first bytes of `.xlsx` and `.ods`, and of `.xls`, whatever the file is called."""


def read_records(
    file: BinaryIO, name: str, columns: Columns, encoding: str | None = None
) -> Iterator[Record]:
    """Yield the records of a file.

    - A file that begins with `{` or `[` holds JSON objects: one a line, or an array of them.
    - A table has a header. Its separator is a comma, a semicolon or a tab.
    - Another `.txt` holds one text a line.

    Args:
        file: The file, which can seek.
        name: Its name, whose ending says what it holds if that is not JSON.
        columns: The names of the columns.
        encoding: The encoding, unless a byte order mark names it; None for UTF-8.

    Raises:
        DataError: The file cannot be read, or is of no such format.
    """
    file.seek(0)
    if file.read(4) in _WORKBOOKS:
        raise DataError("a workbook, or an archive: save its sheet as CSV UTF-8", name)
    with decode_text(file, name, encoding) as text:
        skipped, first = read_first_line(text)
        if not first:
            return
        kind = _find_kind(first, skipped + 1, name, columns)
        if kind == "array":
            yield from parse_array(skipped, first, text, name)
            return
        lines = chain(repeat("\n", skipped), [first], read_lines(text, name, skipped + 2))
        if kind == "objects":
            yield from parse_jsonl(lines, name, LINES_OR_ARRAY)
        elif kind == "table":
            yield from _read_table(lines, name, columns)
        else:
            yield from _read_texts(lines, columns)


def _find_kind(
    first: str, number: int, name: str, columns: Columns
) -> Literal["array", "objects", "table", "texts"]:
    """Return what a file holds: a JSON array, an object in each line, a table, or texts.

    Args:
        first: Its first line that is not empty.
        number: The number of this line.
        name: The name of the file.
        columns: The names of the columns.

    Raises:
        DataError: It holds none of these, or the line is too long.
    """
    ending = plain_ending(name)
    start = first.lstrip()[:1]
    if start == "[" and ending != ".txt":
        return "array"
    if len(first) > LONGEST_LINE:
        raise DataError(f"more than {LONGEST_LINE} characters", name, number)
    if start == "{" and ending not in {".csv", ".tsv", ".txt"}:
        return "objects"
    if ending not in ENDINGS:
        known = f"{', '.join(ENDINGS)}, or .gz or .xz"
        advice = "save a table as .csv, and a list as .txt with one text a line"
        raise DataError(f"unknown format: expected {known}; {advice}", name)
    if ending in {".csv", ".tsv"} or _is_table(first, name, columns):
        return "table"
    if ending == ".txt":
        return "texts"
    raise DataError(f"not JSON: {LINES_OR_ARRAY}", name, number)


def _is_table(first: str, name: str, columns: Columns) -> bool:
    """Return whether the first line of a text file is the header of a table."""
    header = read_table([first], name, columns.have_text).columns
    return "\t" in first or (len(header) > 1 and columns.have_text(header))


def _read_table(lines: Iterable[str], name: str, columns: Columns) -> Iterator[Record]:
    table = read_table(lines, name, columns.have_text)
    columns.check_header(table.columns, name, table.line)
    yield from table.rows


def _read_texts(lines: Iterable[str], columns: Columns) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if text := line.strip():
            yield number, {columns.text or "text": text}

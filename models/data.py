"""Dialogues, and the readers that stream them from files.

Whatever the format, white space runs become one space, empty texts are dropped, consecutive
utterances of one speaker become one, and a dialogue with nothing left is skipped.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby
from operator import attrgetter
from pathlib import Path

from turnwise.models.errors import DataError
from turnwise.models.records import COMPRESSED, Record, open_text, read_records


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
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    if plain.suffix not in _READERS:
        expected = ", ".join(_READERS)
        raise DataError(f"unknown ending: expected {expected}, or these with .gz or .xz", str(path))
    for identifier, utterances in _READERS[plain.suffix](path, plain.stem):
        if merged := merge_runs(_said(utterances)):
            yield Dialogue(identifier, merged)


def _said(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Make white space runs one space and drop what is empty."""
    for utterance in utterances:
        if text := " ".join(utterance.text.split()):
            yield Utterance(utterance.speaker, text)


_Dialogues = Iterator[tuple[str, Iterable[Utterance]]]


def _read_jsonl(path: Path, stem: str) -> _Dialogues:
    for record in read_records(path):
        said = record.records("utterances")
        yield _identifier(record) or f"{stem}-{record.line}", [_utterance(item) for item in said]


def _identifier(record: Record) -> str | None:
    """Return the id, or None where there is none."""
    value = record.fields.get("id")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _label(record, "id")


def _label(record: Record, field: str) -> str:
    """Return an id or a speaker, which may not be empty."""
    if label := record.typed(field, str).strip():
        return label
    raise record.error(field, "empty")


def _utterance(record: Record) -> Utterance:
    return Utterance(_label(record, "speaker"), record.typed("text", str))


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
            for identifier, rows in groupby(reader, key=lambda row: (row[key] or "").strip()):
                if identifier in seen:
                    what = f'dialogue "{identifier}" comes back after another'
                    raise DataError(what, name, reader.line_num, key)
                seen.add(identifier)
                # A list, so that what goes wrong in reading on is raised, and named, here.
                records = (Record(row, name, reader.line_num) for row in rows)
                yield identifier, [_csv_utterance(record, key) for record in records]
        except csv.Error as error:
            # The inner reader has counted the line that failed, the outer one has not.
            raise DataError(f"not CSV: {error}", name, reader.reader.line_num) from error


def _id_column(columns: Sequence[str], file: str) -> str:
    key = "id" if "id" in columns and "dialogue_id" not in columns else "dialogue_id"
    for column in (key, "speaker", "text"):
        if columns.count(column) != 1:
            wrong = "stands more than once in" if column in columns else "missing from"
            raise DataError(f'{wrong} the header "{",".join(columns)}"', file, 1, column)
    return key


def _csv_utterance(record: Record, key: str) -> Utterance:
    # DictReader's marks for too many fields and too few.
    if None in record.fields or None in record.fields.values():
        raise DataError("not as many fields as the header has", record.file, record.line)
    _label(record, key)
    return _utterance(record)


_READERS = {".jsonl": _read_jsonl, ".txt": _read_txt, ".csv": _read_csv}

"""Files of dialogues, as people have them.

Every reader streams, reads `.gz` and `.xz` too, and raises `DataError`, which names file, line and
field. Whatever the format of a dialogue, runs of white space become one space, empty texts are
dropped, consecutive utterances of one speaker become one unless the dialogue says otherwise, and an
empty dialogue is skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, groupby, repeat
from pathlib import Path
from typing import Any, ClassVar, TextIO

from turnwise.models.data import (
    Dialogue,
    Preferred,
    Record,
    Utterance,
    drop_empty,
    merge_runs,
    read_id,
    read_label,
    read_utterance,
)
from turnwise.models.errors import DataError
from turnwise.models.text_files import (
    LINES_OR_ARRAY,
    open_text,
    parse_array,
    parse_jsonl,
    plain_ending,
    read_first_line,
    read_lines,
    read_table,
)

_DIALOGUE = (
    "dialogue_id",
    "dialogue",
    "dialog_id",
    "conversation_id",
    "conversation",
    "session_id",
    "session",
    "chat_id",
    "thread_id",
    "ticket_id",
    "id",
)
_SPEAKER = ("speaker", "role", "from", "author", "sender")
_TEXT = ("text", "utterance", "message", "content", "value", "body")
_USUAL = {"dialogue": _DIALOGUE, "speaker": _SPEAKER, "text": _TEXT}
_LISTS = ("messages", "conversations", "conversation")
"""The lists of utterances in the files of other tools: of OpenAI, of ShareGPT."""
_SPEAKERS = {
    "user": "user",
    "human": "user",
    "assistant": "bot",
    "gpt": "bot",
    "model": "bot",
    "bot": "bot",
}
"""The names of roles in these files, and those of the service."""
_UNSAID = {"system", "developer", "tool", "function", "function_call", "observation"}
"""Roles that are not part of the conversation."""

_MARK = "__eou__"
_SHAPE = (
    'A dialogue file has a line {"id": "1", "utterances": [{"speaker": "user", "text": "Hello."}, '
    '{"speaker": "bot", "text": "Hi!"}]} for each dialogue, "messages" of OpenAI, "conversations" '
    "of ShareGPT, or a table with the columns dialogue_id, speaker and text"
)


@dataclass(frozen=True, slots=True)
class DialogueFormat:
    """How a file of dialogues is written, where the file does not say it.

    Columns of a table that are None are found by the usual names.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    """Recipes have formats, too."""

    dialogue: str | None = None
    """The column of the dialogue."""
    speaker: str | None = None
    """The column of the speaker."""
    text: str | None = None
    """The column of what was said."""
    encoding: str | None = None
    """The encoding, unless a byte order mark names it; None for UTF-8."""

    def find(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the columns that hold `dialogue`, `speaker` and `text`, without missing ones."""
        folded = {column.casefold(): column for column in reversed(columns)}
        found: dict[str, str] = {}
        for part, usual in _USUAL.items():
            wanted = getattr(self, part)
            for name in (wanted,) if wanted else usual:
                if column := folded.get(name.casefold()):
                    found[part] = column
                    break
        return found


def read_dialogues(path: str | Path, form: DialogueFormat | None = None) -> Iterator[Dialogue]:
    """Stream the dialogues of a file; the ending of its name says the format.

    - `.jsonl`, `.json`: `{"id", "utterances": [{"speaker", "text"}]}` a line, or an array of such
      objects; other fields are ignored. An utterance with `shown` or `rejected`, as the journal of
      the service has it, is `Preferred` to these texts, except to itself and to the text that was
      `chosen`. With `"join": false` consecutive utterances of one speaker stay apart, as in a story
      that one person tells. Instead of `utterances`, an object may have the `messages` of OpenAI or
      the `conversations` of ShareGPT; then users are `user`, assistants `bot`, and what was not
      said is left out.
    - `.csv`, `.tsv`: a table with a row for each utterance; a dialogue's rows are consecutive.
    - `.tsv` without a header: the format of IoI's corpora; each right response ends a dialogue of A
      and B in turn.
    - `.txt`: DailyDialog's own format, a dialogue a line, each utterance ended by `__eou__`,
      said by A and B in turn.

    Each may be followed by `.gz` or `.xz`. A dialogue without an id is named `STEM-LINE` after
    the file and the line.

    Args:
        path: The file.
        form: The columns of a table, and the encoding.

    Raises:
        DataError: The file cannot be read, or does not hold such dialogues.
    """
    path = Path(path)
    form = form or DialogueFormat()
    reader = _READERS.get(plain_ending(path))
    if reader is None:
        known = ", ".join(_READERS)
        raise DataError(f"unknown ending: {known} are read. {_SHAPE}", str(path))
    with open_text(path, form.encoding) as text:
        for identifier, utterances, joined in reader(text, path, form):
            said = drop_empty(utterances)
            if all_said := merge_runs(said) if joined else tuple(said):
                yield Dialogue(identifier, all_said)


def make_record(dialogue: Dialogue) -> dict[str, Any]:
    """Return a dialogue as a line of a file, from which the same dialogue is read."""
    record: dict[str, Any] = {"id": dialogue.id, "utterances": []}
    for said in dialogue.utterances:
        utterance: dict[str, Any] = {"speaker": said.speaker, "text": said.text}
        if isinstance(said, Preferred):
            utterance["shown"] = list(said.passed_over)
        record["utterances"].append(utterance)
    if merge_runs(dialogue.utterances) != dialogue.utterances:  # a story, whose runs stay apart
        record["join"] = False
    return record


_Dialogues = Iterator[tuple[str, Iterable[Utterance], bool]]
"""The id and the utterances of each dialogue, and whether to join those of one speaker."""


def _stem(path: Path) -> str:
    return path.name.partition(plain_ending(path))[0]


def _read_json(text: TextIO, path: Path, _: DialogueFormat) -> _Dialogues:
    name = str(path)
    skipped, first = read_first_line(text)
    if first.lstrip().startswith("["):
        objects = parse_array(skipped, first, text, name)
    else:
        lines = chain(repeat("\n", skipped), [first], read_lines(text, path, skipped + 2))
        objects = parse_jsonl(lines, name, LINES_OR_ARRAY)
    for line, fields in objects:
        record = Record(fields, name, line)
        field = next((each for each in _LISTS if each in fields), None)
        if "utterances" in fields or field is None:
            utterances = list(_read_utterances(record))
        else:
            utterances = list(filter(None, map(_read_message, record.records(field))))
        joined = "join" not in fields or record.typed("join", bool)
        yield read_id(record, "id") or f"{_stem(path)}-{line}", utterances, joined


def _read_utterances(record: Record) -> Iterator[Utterance]:
    if "utterances" not in record.fields:
        raise record.error("utterances", f"missing. {_SHAPE}")
    yield from map(_read_preferred, record.records("utterances"))


def _read_preferred(record: Record) -> Utterance:
    said = read_utterance(record)
    others: list[str] = []
    for name in ("shown", "rejected"):
        if name in record.fields:
            others += record.texts(name)
    right = {" ".join(said.text.split())}
    if others and "chosen" in record.fields:
        right.add(record.text("chosen"))
    passed_over = tuple(dict.fromkeys(text for text in others if text not in right))
    return Preferred(said.speaker, said.text, passed_over) if passed_over else said


def _read_message(record: Record) -> Utterance | None:
    """Return a message of OpenAI or of ShareGPT; None if it was not said."""
    speaker = next((each for each in _SPEAKER if each in record.fields), "role")
    text = next((each for each in _TEXT if each in record.fields), "content")
    role = read_label(record, speaker)
    content = record.get(text)
    if role in _UNSAID or content is None:  # an assistant that calls a tool says nothing
        return None
    if isinstance(content, list):
        parts = (part for part in record.records(text) if "text" in part.fields)
        said = " ".join(part.typed("text", str) for part in parts)
    else:
        said = record.typed(text, str)
    return Utterance(_SPEAKERS.get(role, role), said)


def _read_text(text: TextIO, path: Path, _: DialogueFormat) -> _Dialogues:
    for number, line in enumerate(read_lines(text, path), start=1):
        if line.strip() and _MARK not in line:
            line_of_two = f"Hello. {_MARK} Hi! {_MARK}"
            what = f"no {_MARK} after an utterance: a line is a dialogue, such as {line_of_two}"
            raise DataError(f"{what}. {_SHAPE}", str(path), number)
        texts = filter(str.strip, line.split(_MARK))  # an empty one does not take a turn
        yield f"{_stem(path)}-{number}", map(Utterance, cycle("AB"), texts), True


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
        yield from _parse_labelled_responses(read_lines(file, path), path)


def _parse_labelled_responses(lines: Iterable[str], path: str | Path) -> Iterator[LabelledResponse]:
    for number, line in enumerate(lines, start=1):
        label, *texts = (" ".join(field.split()) for field in line.split("\t"))
        if label not in ("0", "1") or len(texts) < 2 or not texts[-1]:
            what = "expected 0 or 1, utterances and a response, with tabs between them"
            raise DataError(what, str(path), number)
        context = tuple(filter(None, texts[:-1]))
        yield LabelledResponse(number, label == "1", context, texts[-1])


def _read_tsv(text: TextIO, path: Path, form: DialogueFormat) -> _Dialogues:
    lines = read_lines(text, path)
    first = next(lines, "")
    lines = chain([first], lines)
    if len(form.find(first.rstrip().split("\t"))) == len(_USUAL):
        yield from _read_rows(lines, path, form)
        return
    for each in _parse_labelled_responses(lines, path):
        if each.is_right:
            said = map(Utterance, cycle("AB"), (*each.context, each.response))
            yield f"{_stem(path)}-{each.line}", said, True


def _read_csv(text: TextIO, path: Path, form: DialogueFormat) -> _Dialogues:
    yield from _read_rows(read_lines(text, path), path, form)


def _read_rows(lines: Iterable[str], path: Path, form: DialogueFormat) -> _Dialogues:
    name = str(path)
    table = read_table(lines, name, lambda header: len(form.find(header)) == len(_USUAL))
    found = form.find(table.columns)
    header = ", ".join(f'"{column}"' for column in table.columns)
    for part, usual in _USUAL.items():
        if part in found:
            continue
        if wanted := getattr(form, part):
            raise DataError(f'no column "{wanted}" among {header}', name, table.line, wanted)
        what = (
            f"no column for the {part} among {header}. {_SHAPE}, and a row for each utterance. "
            f"Call the column {usual[0]}"
        )
        raise DataError(what, name, table.line, part, option=part)
    seen: set[str] = set()
    key = found["dialogue"]
    records = (Record(row, name, line) for line, row in table.rows)
    for label, same in groupby(records, key=lambda record: read_label(record, key)):
        rows = list(same)
        if label in seen:
            what = f'dialogue "{label}" comes back after another: sort the table by {key}'
            raise rows[0].error(key, what)
        seen.add(label)
        yield label, _read_said(rows, found["speaker"], found["text"]), True


def _read_said(rows: Iterable[Record], speaker: str, text: str) -> Iterator[Utterance]:
    """Yield the utterances of the rows of a dialogue; rows without a text need no speaker."""
    for row in rows:
        said = row.typed(text, str)
        if not said.strip():
            continue
        if not row.typed(speaker, str).strip():
            raise row.error(speaker, "empty: fill in who said it, or remove rows without a speaker")
        yield Utterance(read_label(row, speaker), said)


_READERS: dict[str, Callable[[TextIO, Path, DialogueFormat], _Dialogues]] = {
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
    ".txt": _read_text,
    ".tsv": _read_tsv,
    ".csv": _read_csv,
}

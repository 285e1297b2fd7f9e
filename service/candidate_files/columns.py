"""Which columns of a table, or fields of a JSON object, make a candidate."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from typing import Any

from turnwise.models.errors import DataError
from turnwise.models.text_files import LINES_OR_ARRAY
from turnwise.service.wire.pools import AFTER

_NAMES = {
    "text": ("text", "answer", "response", "reply", "content"),
    "examples": ("examples", "example", "questions", "question"),
    "id": ("id",),
    "group": ("group", "intent"),
    "body": ("body",),
}
"""The usual names of the columns of each part, the preferred ones first."""
_ADVICE = "call one text, answer, response, reply or content"
_INTENT = "intent"
"""A group that stays among the metadata, so that filters find it."""
_NEAR = 0.8
"""Similarity from which a column's name is probably a usual name, misspelt: not `date` for `after`,
and not `context` for `text`."""
_LEARNED = "learned"
"""The examples that feedback added, in a file of a snapshot: only a restored snapshot has them."""


class EmptyTextError(DataError):
    """A record has no text where its text should be."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file of candidates.

    A column that is None is found by the usual names: `text`, `answer`, `response`, `reply` or
    `content`; `examples`, `example`, `questions` and `question`; `id`; `group` or `intent`; `body`.
    An empty name means that there is no such column.
    """

    text: str | None = None
    examples: str | None = None
    """Utterances of another speaker: one in a cell, or a JSON list of them."""
    id: str | None = None
    group: str | None = None
    body: str | None = None
    metadata: Collection[str] | None = None
    """Columns that become metadata; None for all that are not read otherwise."""

    def find(self, part: str, names: Sequence[str]) -> list[str]:
        """Return the columns that hold a part of a candidate: one at most, except for examples.

        A column of exactly the wanted name comes first. Otherwise upper and lower case, and white
        space at the ends, do not count.

        Args:
            part: `text`, `examples`, `id`, `group` or `body`.
            names: The columns that there are.
        """
        wanted = getattr(self, part)
        if wanted in names:
            return [wanted]
        accepted = _NAMES[part] if wanted is None else (_fold(wanted),)
        first_of = {_fold(name): name for name in reversed(names)}  # of equal ones the first stays
        found = [first_of[name] for name in accepted if name in first_of]
        return found if part == "examples" else found[:1]

    def have_text(self, names: Sequence[str]) -> bool:
        """Return whether one of the columns that there are holds the texts."""
        return bool(self.find("text", names))

    def check_header(self, names: Sequence[str], file: str, line: int) -> None:
        """Raise DataError if the header of a table lacks a column that is needed, or was named."""
        for part in _NAMES:
            wanted = getattr(self, part)
            if wanted and not self.find(part, names):
                raise DataError(f'no column "{wanted}" among {_quote(names)}', file, line)
        for wanted in filter(None, self.metadata or ()):
            if wanted not in names:
                raise DataError(f'no column "{wanted}" among {_quote(names)}', file, line)
        if not self.have_text(names):
            what = f"no text among {_quote(names)}. The first row names the columns: {_ADVICE}"
            if len(names) == 1:
                what = f"commas, semicolons or tabs separate columns, but there is {what}"
            raise DataError(what, file, line, option="text")


@dataclass(slots=True)
class FieldReader:
    """Takes the fields of candidates from records, and remembers where they were."""

    columns: Columns
    _sources: dict[str, dict[str, None]] = field(
        default_factory=lambda: {part: {} for part in (*_NAMES, "metadata")}
    )
    """The columns that became each part of candidates."""

    def read(self, record: Mapping[str, Any], file: str, line: int | None) -> dict[str, Any]:
        """Return the fields of a candidate; fields that are null or blank are left out.

        Raises:
            EmptyTextError: The record has a field for the text, but no text.
            DataError: The record has no field for the text.
        """
        given = {name: value for name, value in record.items() if not is_blank(value)}
        used = {part: self.columns.find(part, list(record)) for part in _NAMES}
        if not used["text"]:
            raise _explain_no_text(record, file, line)
        if not (text := given.get(used["text"][0], "")):
            what = (
                "empty: write a text, or remove the row. Of cells that were merged, only the first "
                "has the text"
            )
            raise EmptyTextError(what, file, line, used["text"][0])
        # A part has one column at most, except for examples.
        first = {part: given.get(names[0]) if names else None for part, names in used.items()}
        fields = {
            "text": text,
            "id": as_name(first["id"]),
            "group": as_name(first["group"]),
            "body": first["body"],
            "examples": [
                each for name in used["examples"] for each in _list_texts(given.get(name))
            ],
            "metadata": self._collect_metadata(given, used, file, line),
        }
        for part, names in used.items():
            self._remember(part, names)
        return {part: value for part, value in fields.items() if value is not None}

    def describe(self) -> str:
        """Return where the parts of candidates were; empty if the names of all columns say it."""
        named = []
        for part, sources in self._sources.items():
            if names := [name for name in sources if _fold(name) != part]:
                named.append(f"{part} from {_quote(names)}")
        if AFTER in self._sources["metadata"]:
            named[-1] += f'; "{AFTER}" names the replies that a candidate follows'
        if meant := self._find_misspelt():
            named[-1] += f"; did you mean {_quote(meant)}?"
        return ", ".join(named)

    def _find_misspelt(self) -> list[str]:
        """Return the usual names that the file lacks and that names of metadata are near to.

        Of a part that the file has under another name, only the preferred name counts.
        """
        if self.columns.metadata is not None:
            return []
        parts = [part for part in _NAMES if getattr(self.columns, part) is None]
        metadata = self._sources["metadata"]
        there = {_fold(name) for part in parts for name in self._sources[part]} | {*metadata}
        wanted = [(part,) if self._sources[part] else _NAMES[part] for part in parts]
        usual = [name for name in (*chain(*wanted), AFTER) if name not in there]
        near = (get_close_matches(_fold(name), usual, 1, _NEAR) for name in metadata)
        return list(dict.fromkeys(name for names in near for name in names))

    def _collect_metadata(
        self, given: Mapping[str, Any], used: Mapping[str, list[str]], file: str, line: int | None
    ) -> object:
        try:
            metadata = _as_object(given.get("metadata"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON: {error}", file, line, "metadata") from None
        taken = {name for names in used.values() for name in names if _fold(name) != _INTENT}
        wanted = self.columns.metadata
        others = {
            name: value
            for name, value in given.items()
            if name not in taken
            and name not in {"metadata", _LEARNED}
            and (wanted is None or name in wanted)
        }
        self._remember("metadata", others)
        if AFTER in others:
            others[AFTER] = _list_texts(others[AFTER])
        if isinstance(metadata, str):
            return others | {"metadata": metadata}
        return others | metadata if isinstance(metadata, dict) else metadata

    def _remember(self, part: str, names: Iterable[str]) -> None:
        for name in names:
            self._sources[part][name] = None


def split_names(names: str | None) -> list[str] | None:
    """Return the names between commas; None for None."""
    return None if names is None else [name.strip() for name in names.split(",")]


def _explain_no_text(record: Mapping[str, Any], file: str, line: int | None) -> DataError:
    """Return the error for a record without a field for the text."""
    for name, value in record.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            what = f'the objects are in the list "{name}": {LINES_OR_ARRAY}'
            return DataError(what, file, line)
    what = f"no text among the fields {_quote(record)}: {_ADVICE}"
    return DataError(what, file, line, option="text")


def _fold(name: str) -> str:
    return name.strip().casefold()


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def is_blank(value: object) -> bool:
    """Return whether a field is null, or a text without anything but white space."""
    return value is None or (isinstance(value, str) and not value.strip())


def as_name(value: object) -> object:
    """Return an id or a group; numbers become text."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


def _as_object(value: object) -> object:
    """Return metadata; a cell of a table may hold them as JSON."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return json.loads(value)
    return {} if value is None else value


def _list_texts(value: object) -> list[Any]:
    """Return the examples of a field, which is a list, a list as JSON, or one example."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, list):
        return [each for each in value if not is_blank(each)]
    return [] if value is None else [value]

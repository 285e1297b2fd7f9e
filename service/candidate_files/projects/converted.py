"""The result of converting a project: candidates, and the names of what was left out."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnwise.models.texts import shorten

_SHOWN = 5
"""Names of things left out that are shown."""
_WIDTH = 40
"""Characters of a name that are shown."""
_FILLED = re.compile(r"\{\{?\s*[\w.]+\s*\}?\}|\$[A-Za-z]\w*")
"""A place that another tool fills: `{name}`, `{{ name }}` or `$name`."""
_SLOT = re.compile(r"\{[A-Za-z]\w*\}")
"""The only one of these forms that a candidate has."""
_WITH_SLOTS = "with slots, so offered only if these have values"
_WITH_OTHERS = "to rewrite, since slots are written {name}"


@dataclass(slots=True)
class Converted:
    """The candidates of a project."""

    tool: str
    """The tool of the project."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """The candidates, as records of a file."""
    left_out: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The names of what was left out, by the reason."""

    def add(
        self,
        text: object,
        id: object = None,  # the field's name
        *,
        examples: Iterable[str] = (),
        group: str | None = None,
        metadata: Mapping[str, object],
    ) -> None:
        """Add a candidate; leave it out if it has no text. Metadata that are empty are left out."""
        name = str(id or text)
        if not isinstance(text, str) or not text.strip():
            self.left_out["no text"].append(name)
            return
        if filled := _FILLED.findall(text):
            are_slots = all(map(_SLOT.fullmatch, filled))
            self.left_out[_WITH_SLOTS if are_slots else _WITH_OTHERS].append(name)
        kept = {key: value for key, value in metadata.items() if value not in (None, "", [], {})}
        record: dict[str, Any] = {"text": text, "examples": list(examples), "metadata": kept}
        if id is not None:
            record["id"] = str(id)
        if group is not None:
            record["group"] = group
        self.records.append(record)

    def report(self) -> Iterator[str]:
        """Yield a line for each reason why something was left out."""
        for reason, names in self.left_out.items():
            lines = (" ".join(name.split()) for name in names)
            distinct = list(dict.fromkeys(shorten(line, _WIDTH) for line in lines))
            more = f" and {len(distinct) - _SHOWN} more" if len(distinct) > _SHOWN else ""
            yield f"{reason}: {', '.join(distinct[:_SHOWN])}{more}"


def fold_keys(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its keys in lower case: some tools write them in two ways."""
    return {key.lower(): value for key, value in record.items()}


def find_records(content: object, key: str, fields: set[str]) -> list[dict[str, Any]]:
    """Return the records of a list that have some fields.

    Args:
        content: The list, or an object that has it.
        key: The key of the list in an object.
        fields: The fields.
    """
    records = content.get(key) if isinstance(content, dict) else content
    if not isinstance(records, list):
        return []
    return [each for each in records if isinstance(each, dict) and fields <= set(each)]

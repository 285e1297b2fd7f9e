"""One candidate as a small file that a person reads and edits: `turnwise pool edit`."""

import json
import re
import tomllib
from typing import Any, NamedTuple

from turnwise.models.errors import TurnwiseError
from turnwise.service.client.operations import CandidateFields
from turnwise.service.wire.pools import PoolCandidate

_FIELDS = {"text", "group", "metadata", "examples", "body"}
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


class CandidateChanges(NamedTuple):
    """The changes that a person made in the file of a candidate."""

    fields: CandidateFields
    """The fields with their new values."""
    forgotten: list[str]
    """Learned examples that were deleted."""

    def __bool__(self) -> bool:
        return bool(self.fields or self.forgotten)


def write_candidate(candidate: PoolCandidate) -> str:
    """Return a candidate as TOML; `read_changes` reads it."""
    lines = [f"text = {_write_text(candidate.text)}"]
    lines += ["", "# Wordings of one answer have the same group; only the best of them is offered."]
    lines.append(f"group = {_write_text(candidate.group or '')}")
    lines += ["", "# What users say before this answer fits, one a line."]
    lines += _write_list("examples", candidate.examples)
    lines += ["", "# Learned from feedback. Delete a line to forget it."]
    lines += _write_list("learned", [each.text for each in candidate.learned or []])
    lines += ["", "# Fields that filters use, as JSON."]
    lines.append(f"metadata = {_write_text(json.dumps(candidate.metadata, ensure_ascii=False))}")
    if candidate.body is not None:
        lines += ["", "# A longer text that is returned with the answer."]
        lines.append(f"body = {_write_text(candidate.body)}")
    return "\n".join(lines) + "\n"


def read_changes(content: bytes, before: PoolCandidate) -> CandidateChanges:
    """Return the changes of a candidate in an edited file.

    Raises:
        TurnwiseError: The file is not TOML in UTF-8, or has a field that a candidate does not have.
    """
    try:
        edited = tomllib.loads(content.decode("utf-8-sig"))  # editors of Windows write a mark
        edited["metadata"] = json.loads(edited.get("metadata") or "{}")
    except ValueError as error:
        raise TurnwiseError(f"the edited file cannot be read: {error}") from None
    except TypeError:
        example = """metadata = '{"topic": "hotel"}'"""
        raise TurnwiseError(f"write metadata as JSON in quotes: {example}") from None
    learned = edited.pop("learned", [])
    if not isinstance(learned, list):
        raise TurnwiseError("'learned' must be a list")
    known = [each.text for each in before.learned or []]
    if new := [each for each in learned if each not in known]:
        raise TurnwiseError(f"add {new[0]!r} to the examples; it was not learned")
    forgotten = [each for each in known if each not in learned]
    return CandidateChanges(_compare(edited, before), forgotten)


def _compare(edited: dict[str, Any], before: PoolCandidate) -> CandidateFields:
    """Return the fields that differ; a field that is not in the file any more is empty."""
    given = {"text": "", "group": "", "body": "", "examples": []} | edited
    given |= {"group": given["group"] or None, "body": given["body"] or None}
    if unknown := given.keys() - _FIELDS:
        raise TurnwiseError(f"a candidate has no field '{min(unknown)}'")
    examples = given.pop("examples")
    if not isinstance(examples, list):
        raise TurnwiseError("'examples' must be a list")
    changed = {name: value for name, value in given.items() if value != getattr(before, name)}
    # One by one: somebody else may add others while the editor is open.
    if added := [each for each in examples if each not in before.examples]:
        changed["add_examples"] = added
    if removed := [each for each in before.examples if each not in examples]:
        changed["remove_examples"] = removed
    return CandidateFields(**changed)  # type: ignore[typeddict-item] # the service checks values


def _write_list(name: str, texts: list[str]) -> list[str]:
    if not texts:
        return [f"{name} = []"]
    return [f"{name} = [", *(f"    {_write_text(text)}," for text in texts), "]"]


def _write_text(text: str) -> str:
    """Return a text as a string of TOML, without escapes if it can be written so."""
    if "'''" in text or text.endswith("'") or _CONTROLS.search(text):
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if "\n" in text:
        return f"'''\n{text}'''"
    if "'" in text or '"' not in text:
        return json.dumps(text, ensure_ascii=False)
    return f"'{text}'"

"""Slots: places in the text of a candidate that a session or a request fills, such as `{name}`.

`{{` and `}}` stand for single braces. Any other brace stays as it is.
"""

import re
from collections.abc import Mapping

_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z][A-Za-z0-9_]{0,63})\}")


def find_slots(text: str) -> frozenset[str]:
    """Return the names of the slots of a text."""
    return frozenset(name for name in _PART.findall(text) if name)


def has_other_braces(text: str) -> bool:
    """Return whether a text has a brace that is part of no slot, and is not doubled."""
    rest = _PART.sub("", text)
    return "{" in rest or "}" in rest


def can_fill(text: str, values: Mapping[str, str]) -> bool:
    """Return whether there is a value for each slot of a text."""
    return "{" not in text or find_slots(text) <= values.keys()


def fill_slots(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of its slots.

    Raises:
        KeyError: A value is missing.
    """
    if "{" not in text and "}" not in text:
        return text
    return _PART.sub(lambda part: values[part[1]] if part[1] else part[0][0], text)

"""How candidate stores keep metadata, so that filters match alike in every engine.

An engine has its own idea of nested objects, of lists, and of whether `true` is 1. So a candidate
is stored with its facets: a string for each path that has a value, and one for each path and value.
A condition on equal values then asks for one of some strings.
"""

import hashlib
import json
import sys
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from turnwise.models.texts import fold_text
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Among, Exists, Value
from turnwise.service.wire.pools import AFTER

_LONGEST = 120
"""Bytes of a facet; a longer one is replaced by its digest."""
_LARGEST = 2**53
"""Larger integers are compared as floats."""
_FLOAT = int(sys.float_info.max)
_TEXT: tuple[str, ...] = ()
"""The path of the text of a candidate with a group. No value of metadata has an empty path."""
HAVING_GROUP = Exists(_TEXT)
"""The condition that a candidate has a group."""
IS_FOLLOWER = Exists((AFTER,))
"""The condition that a candidate follows a reply."""


class Facets(NamedTuple):
    """The strings and numbers by which a filter finds a candidate.

    Attributes:
        strings: A string for each path, and for each path with a value.
        comparable: The numbers and strings at each path, by the string of the path.
    """

    strings: list[str]
    comparable: dict[str, list[str | float]]


def facets(candidate: Candidate) -> Facets:
    """Return the facets of a candidate's metadata, and of its text if it has a group."""
    strings: dict[str, None] = {}
    comparable: dict[str, list[str | float]] = {}
    if candidate.group is not None:
        at = path_facet(_TEXT)
        strings[at] = None
        strings[_value_facet(at, fold_text(candidate.text))] = None
    for path, value in _walk_leaves(candidate.metadata, ()):
        at = path_facet(path)
        strings[at] = None
        if isinstance(value, dict):
            continue
        strings[_value_facet(at, value)] = None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            if isinstance(value, int) and abs(value) > _LARGEST:
                value = float(min(max(value, -_FLOAT), _FLOAT))  # noqa: PLW2901
            comparable.setdefault(at, []).append(value)
    return Facets(list(strings), comparable)


def having_texts(texts: Collection[str]) -> Among:
    """Return the condition that a candidate has a group and one of the texts, as folded."""
    return Among.of(_TEXT, list(texts))


def path_facet(path: tuple[str, ...]) -> str:
    """Return the string that says that there is a value at a path."""
    return _shorten(json.dumps(path, separators=(",", ":")))


def wanted_facets(condition: Among | Exists) -> list[str]:
    """Return facets. The condition holds only for candidates that have one of them."""
    at = path_facet(condition.path)
    if isinstance(condition, Exists):
        return [at]
    return [_value_facet(at, value) for value in condition.wanted]


def _walk_leaves(found: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each path with each value at it, as `values_at` finds them."""
    if isinstance(found, list):
        for item in found:
            yield from _walk_leaves(item, path)
        return
    if path:
        yield path, found
    if isinstance(found, dict):
        for name, inner in found.items():
            yield from _walk_leaves(inner, (*path, name))


def _value_facet(at: str, value: Value) -> str:
    if isinstance(value, float) and value.is_integer():  # 1.0 equals 1
        value = int(value)
    return _shorten(f"{at}={json.dumps(value)}")


def _shorten(facet: str) -> str:
    return facet if len(facet) <= _LONGEST else hashlib.sha256(facet.encode()).hexdigest()

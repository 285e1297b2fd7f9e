"""Filters: which candidates a search may return, by their metadata.

A filter is a JSON object. Each of its fields must hold:

- `{"topic": "hotel"}`: the value at the path `topic` is "hotel". A dot leads into nested objects.
- `{"price": {"gte": 10, "lt": 50}}`: it holds all conditions: `gt`, `gte`, `lt`, `lte` compare
  numbers with numbers and strings with strings, `in` names several values, `not` a value that it
  must not be, and `exists` says whether there must be a value.
- `{"any": [filter, ...]}`, `{"all": [...]}`, `{"none": [...]}`: some, all or none of them match.

A path that leads to a list, or through one, stands for each of its items: a condition holds where
it does for one of them.
"""

import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

from turnwise.service.errors import InvalidRequest

Metadata = Mapping[str, Any]
_Matches = Callable[[Metadata], bool]
_Holds = Callable[[list[Any]], bool]

_DEEPEST = 8
_MOST = 200
"""Conditions and values of one filter: a search may check each of them for each candidate."""
_LONGEST = 16_000
"""Characters of one filter, which a session keeps and each of its turns reads."""
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_CONDITIONS = (*_COMPARISONS, "in", "not", "exists")
_COMBINED: dict[str, Callable[[Iterator[bool]], bool]] = {
    "all": all,
    "any": any,
    "none": lambda matches: not any(matches),
}


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A checked filter.

    Attributes:
        source: Its JSON; filters with equal sources match the same candidates.
        matches: Whether the metadata of a candidate match.
    """

    source: str
    matches: _Matches

    @classmethod
    def of(cls, *wheres: Mapping[str, Any] | None) -> "Filter | None":
        """Return the filter that matches where all of these do, or None where there is none.

        Raises:
            InvalidRequest: As `checked`.
        """
        filters = [cls.checked(where) for where in wheres if where is not None]
        return reduce(operator.and_, filters) if filters else None

    @classmethod
    def checked(cls, where: Mapping[str, Any]) -> Self:
        """Return the filter in the field `where` of a request.

        Raises:
            InvalidRequest: It makes no sense, or is too large. The error names the place in it.
        """
        source = json.dumps(where, sort_keys=True, ensure_ascii=False)
        if len(source) > _LONGEST:
            raise InvalidRequest.field(f"has more than {_LONGEST} characters", "where")
        return cls(source, _Parser().filter(where, ("where",), 1))

    def __and__(self, other: "Filter") -> "Filter":
        """Return a filter that matches where both do."""
        return Filter(
            f"[{self.source}, {other.source}]",
            lambda metadata: self.matches(metadata) and other.matches(metadata),
        )


class _Parser:
    """Reads one filter, and counts its conditions and values."""

    def __init__(self) -> None:
        self._left = _MOST

    def filter(self, where: object, loc: tuple[str | int, ...], depth: int) -> _Matches:
        if not isinstance(where, dict) or not where:
            raise InvalidRequest.field("should be an object with at least one field", *loc)
        if depth > _DEEPEST:
            raise InvalidRequest.field(f"is nested more than {_DEEPEST} levels deep", *loc)
        parts = [self._part(name, value, (*loc, name), depth) for name, value in where.items()]
        if len(parts) == 1:
            return parts[0]
        return lambda metadata: all(part(metadata) for part in parts)

    def _part(self, name: str, value: object, loc: tuple[str | int, ...], depth: int) -> _Matches:
        if name not in _COMBINED:
            path, holds = name.split("."), self._condition(value, loc)
            return lambda metadata: holds(_values(metadata, path))
        if not isinstance(value, list) or not value:
            raise InvalidRequest.field("should be a list of at least one filter", *loc)
        combined = _COMBINED[name]
        parts = [self.filter(one, (*loc, place), depth + 1) for place, one in enumerate(value)]
        return lambda metadata: combined(part(metadata) for part in parts)

    def _condition(self, value: object, loc: tuple[str | int, ...]) -> _Holds:
        if not isinstance(value, dict):
            return _among([self._value(value, loc)])
        if not value:
            raise InvalidRequest.field("should have at least one condition", *loc)
        bounds = {
            name: self._bound(bound, (*loc, name))
            for name, bound in value.items()
            if name in _COMPARISONS
        }
        checks = [_within(bounds)] if bounds else []
        for name, given in value.items():
            if name not in _COMPARISONS:
                checks.append(self._other(name, given, (*loc, name)))
        return lambda values: all(check(values) for check in checks)

    def _other(self, name: str, given: object, loc: tuple[str | int, ...]) -> _Holds:
        if name == "exists":
            if not isinstance(given, bool):
                raise InvalidRequest.field("should be true or false", *loc)
            self._counted(given, loc)
            return lambda values: bool(values) is given
        if name == "in":
            if not isinstance(given, list) or not given:
                raise InvalidRequest.field("should be a list of at least one value", *loc)
            return _among([self._value(one, (*loc, place)) for place, one in enumerate(given)])
        if name == "not":
            among = _among([self._value(given, loc)])
            return lambda values: not among(values)
        conditions = ", ".join(_CONDITIONS)
        inner = ".".join(str(part) for part in loc[-2:])
        raise InvalidRequest.field(
            f"is no condition ({conditions}); for a field inside of an object write '{inner}'", *loc
        )

    def _value(self, value: object, loc: tuple[str | int, ...]) -> object:
        if isinstance(value, dict | list):
            raise InvalidRequest.field("should be a string, a number, true, false or null", *loc)
        return self._counted(value, loc)

    def _bound(self, value: object, loc: tuple[str | int, ...]) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InvalidRequest.field("should be a number or a string", *loc)
        return self._counted(value, loc)

    def _counted(self, value: object, loc: tuple[str | int, ...]) -> object:
        self._left -= 1
        if self._left < 0:
            raise InvalidRequest.field(f"a filter has at most {_MOST} values", *loc)
        if isinstance(value, float) and not math.isfinite(value):  # 1e999 is JSON
            raise InvalidRequest.field("is too large a number", *loc)
        return value


def _values(found: Any, path: Sequence[str]) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return the values at a path, an item each for a list."""
    for step, name in enumerate(path):
        if isinstance(found, list):
            return [value for item in found for value in _values(item, path[step:])]
        if not isinstance(found, dict) or name not in found:
            return []
        found = found[name]
    if isinstance(found, list):
        return [value for item in found for value in _values(item, ())]
    return [found]


def _among(wanted: list[object]) -> _Holds:
    keys = {_key(value) for value in wanted}
    return lambda values: not keys.isdisjoint(map(_key, values))


def _within(bounds: Mapping[str, Any]) -> _Holds:
    """Return whether one value is within all bounds."""
    checks = [(_kind(bound), _COMPARISONS[name], bound) for name, bound in bounds.items()]

    def within(value: object) -> bool:
        kind = _kind(value)
        return all(kind == of and compare(value, bound) for of, compare, bound in checks)

    return lambda values: any(map(within, values))


def _key(value: object) -> object:
    """Return what is equal for equal JSON values: `true` is not 1, but 1 is 1.0."""
    if isinstance(value, str | int | float | bool) or value is None:
        return (_kind(value), value)
    return None  # an object equals no value


def _kind(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "constant"
    return "number" if isinstance(value, int | float) else type(value).__name__

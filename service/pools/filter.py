"""Filters: which candidates a search may return, by their metadata.

A filter is a JSON object. Each of its fields must hold:

- `{"topic": "hotel"}`: the value at the path `topic` is "hotel". A dot leads into nested objects.
- `{"price": {"gte": 10, "lt": 50}}`: the value meets all conditions: `gt`, `gte`, `lt` and `lte`
  compare numbers with numbers and strings with strings, `in` lists the values that match, `not`
  excludes one, and `exists` says whether there must be a value.
- `{"any": [filter, ...]}`, `{"all": [...]}`, `{"none": [...]}`: any, all or none of them match.

If a path leads to a list, or through one, a condition holds if it holds for one of the items.
"""

import json
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

from turnwise.service.errors import InvalidRequest
from turnwise.service.pools.candidate import Candidate

Metadata = Mapping[str, Any]
Value = str | float | bool | None
_ValueT = TypeVar("_ValueT", bound=Value)

_MOST_LEVELS = 8
_MOST_VALUES = 200
"""Conditions and values of one filter: a search may check each of them for each candidate."""
_MOST_CHARACTERS = 16_000
"""Characters of one filter, which a session keeps and each of its turns reads."""
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_CONDITIONS = (*_COMPARISONS, "in", "not", "exists")


FieldPath = tuple[str, ...]
"""The names that lead to a value of the metadata."""


class Compared(NamedTuple):
    """A path, and the kinds of values that a filter compares with the values at it.

    Attributes:
        path: The path in the metadata of a candidate.
        kinds: The kinds of the filter's values, sorted. A value of another kind never matches.
    """

    path: FieldPath
    kinds: tuple[str, ...]


class Condition(ABC):
    """A part of a filter, which candidate stores write in their own language."""

    @property
    def compared(self) -> frozenset[Compared]:
        """The paths whose values it compares with values of the filter."""
        return frozenset()

    @property
    def size(self) -> int:
        """Number of paths that it may look up for a candidate."""
        return 1

    @abstractmethod
    def matches(self, metadata: Metadata) -> bool:
        """Return whether it holds for the metadata of a candidate."""


@dataclass(frozen=True, slots=True)
class Combined(Condition):
    """A condition: all, any or none of its parts hold."""

    how: Literal["all", "any", "none"]
    parts: tuple[Condition, ...]

    @property
    def compared(self) -> frozenset[Compared]:
        """The paths of its parts."""
        return frozenset[Compared]().union(*(part.compared for part in self.parts))

    @property
    def size(self) -> int:
        """The sum of its parts."""
        return sum(part.size for part in self.parts)

    def matches(self, metadata: Metadata) -> bool:
        """Return whether all, any or none of the parts hold, as required."""
        held = (part.matches(metadata) for part in self.parts)
        if self.how == "all":
            return all(held)
        if self.how == "any":
            return any(held)
        return not any(held)


@dataclass(frozen=True, slots=True)
class Among(Condition):
    """A condition: a value at the path is one of the wanted values."""

    path: FieldPath
    wanted: tuple[Value, ...]
    _keys: frozenset[object]

    @classmethod
    def of(cls, path: FieldPath, wanted: Sequence[Value]) -> Self:
        """Return the condition."""
        return cls(path, tuple(wanted), frozenset(map(_key, wanted)))

    @property
    def compared(self) -> frozenset[Compared]:
        """The path, with a value of any of the wanted kinds."""
        return frozenset([Compared(self.path, tuple(sorted({*map(_kind, self.wanted)})))])

    def matches(self, metadata: Metadata) -> bool:
        """Return whether one of the values is equal to a wanted one."""
        values = values_at(metadata, self.path)
        return bool(values) and not self._keys.isdisjoint(map(_key, values))


@dataclass(frozen=True, slots=True)
class Exists(Condition):
    """A condition: there is a value at the path."""

    path: FieldPath

    def matches(self, metadata: Metadata) -> bool:
        """Return whether there is one; null is a value."""
        return bool(values_at(metadata, self.path))


@dataclass(frozen=True, slots=True)
class Within(Condition):
    """A condition: a value at the path is within all bounds."""

    path: FieldPath
    bounds: Mapping[str, str | float]
    """The values to compare with, by `gt`, `gte`, `lt` and `lte`: all numbers, or all strings."""
    _kind: str
    _tests: tuple[tuple[Callable[[Any, Any], bool], str | float], ...]
    """The comparison with each bound, and the bound."""

    @classmethod
    def of(cls, path: FieldPath, bounds: Mapping[str, str | float]) -> Self:
        """Return the condition."""
        (kind,) = set(map(_kind, bounds.values()))
        tests = ((_COMPARISONS[name], bound) for name, bound in bounds.items())
        return cls(path, bounds, kind, tuple(tests))

    @property
    def compared(self) -> frozenset[Compared]:
        """The path, with a value of the kind of the bounds."""
        return frozenset([Compared(self.path, (self._kind,))])

    def matches(self, metadata: Metadata) -> bool:
        """Return whether one value is of the kind of the bounds, and within them."""
        values = values_at(metadata, self.path)
        comparable = (value for value in values if _kind(value) == self._kind)
        return any(all(holds(value, bound) for holds, bound in self._tests) for value in comparable)


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter.

    Attributes:
        source: Its JSON; filters with equal sources match the same candidates, and are equal.
        condition: What must hold for a candidate.
    """

    source: str
    condition: Condition = field(compare=False)

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
        if len(source) > _MOST_CHARACTERS:
            raise InvalidRequest.field(f"has more than {_MOST_CHARACTERS} characters", "where")
        return cls(source, _Parser().parse_filter(where, ("where",), 1))

    @classmethod
    def having(cls, path: FieldPath) -> Self:
        """Return the filter that matches candidates with a value at a path."""
        return cls(json.dumps({".".join(path): {"exists": True}}), Exists(path))

    @classmethod
    def comparable(cls, compared: Compared) -> Self:
        """Return the filter that matches candidates with a value of one of the kinds."""
        path, kinds = compared
        parts = tuple(part for kind in kinds for part in _HAVING[kind](path))
        return cls(json.dumps({".".join(path): {"kinds": kinds}}), Combined("any", parts))

    def __and__(self, other: "Filter") -> "Filter":
        """Return a filter that matches where both do."""
        both = Combined("all", (self.condition, other.condition))
        return Filter(f"[{self.source}, {other.source}]", both)

    @property
    def size(self) -> int:
        """Number of paths that it may look up for a candidate."""
        return self.condition.size

    def matches(self, metadata: Metadata) -> bool:
        """Return whether the metadata of a candidate match."""
        return self.condition.matches(metadata)

    def accepts(self, candidate: Candidate) -> bool:
        """Return whether it matches a candidate."""
        return self.matches(candidate.metadata)


class _Parser:
    """Reads one filter, and counts its conditions and values."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def parse_filter(self, where: object, loc: tuple[str | int, ...], depth: int) -> Condition:
        if not isinstance(where, dict) or not where:
            raise InvalidRequest.field("should be an object with at least one field", *loc)
        if depth > _MOST_LEVELS:
            raise InvalidRequest.field(f"is nested more than {_MOST_LEVELS} levels deep", *loc)
        return _join_conditions(
            [self._parse_part(name, value, (*loc, name), depth) for name, value in where.items()]
        )

    def _parse_part(
        self, name: str, value: object, loc: tuple[str | int, ...], depth: int
    ) -> Condition:
        if name not in {"all", "any", "none"}:
            return self._parse_conditions(tuple(name.split(".")), value, loc)
        if not isinstance(value, list) or not value:
            raise InvalidRequest.field("should be a list of at least one filter", *loc)
        parts = [
            self.parse_filter(one, (*loc, index), depth + 1) for index, one in enumerate(value)
        ]
        return Combined(cast("Literal['all', 'any', 'none']", name), tuple(parts))

    def _parse_conditions(
        self, path: FieldPath, value: object, loc: tuple[str | int, ...]
    ) -> Condition:
        if not isinstance(value, dict):
            return Among.of(path, [self._parse_value(value, loc)])
        if not value:
            raise InvalidRequest.field("should have at least one condition", *loc)
        bounds = {
            name: self._parse_bound(bound, (*loc, name))
            for name, bound in value.items()
            if name in _COMPARISONS
        }
        _check_one_kind(bounds, loc)
        parts: list[Condition] = [Within.of(path, bounds)] if bounds else []
        for name, given in value.items():
            if name not in _COMPARISONS:
                parts.append(self._parse_other(path, name, given, (*loc, name)))
        return _join_conditions(parts)

    def _parse_other(
        self, path: FieldPath, name: str, given: object, loc: tuple[str | int, ...]
    ) -> Condition:
        if name == "exists":
            if not isinstance(given, bool):
                raise InvalidRequest.field("should be true or false", *loc)
            self._count(loc)
            return Exists(path) if given else Combined("none", (Exists(path),))
        if name == "in":
            if not isinstance(given, list) or not given:
                raise InvalidRequest.field("should be a list of at least one value", *loc)
            wanted = [self._parse_value(one, (*loc, index)) for index, one in enumerate(given)]
            return Among.of(path, wanted)
        if name == "not":
            return Combined("none", (Among.of(path, [self._parse_value(given, loc)]),))
        conditions = ", ".join(_CONDITIONS)
        inner = ".".join(str(part) for part in loc[-2:])
        raise InvalidRequest.field(
            f"is not a condition ({conditions}); for a field inside an object write '{inner}'", *loc
        )

    def _parse_value(self, value: object, loc: tuple[str | int, ...]) -> Value:
        if isinstance(value, list):
            raise InvalidRequest.field(
                'should be one value; for one of several: {"in": [...]}', *loc
            )
        if value is not None and not isinstance(value, str | int | float | bool):
            raise InvalidRequest.field("should be a string, a number, true, false or null", *loc)
        self._count(loc)
        return _check_finite(value, loc)

    def _parse_bound(self, value: object, loc: tuple[str | int, ...]) -> str | float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InvalidRequest.field("should be a number or a string", *loc)
        self._count(loc)
        return _check_finite(value, loc)

    def _count(self, loc: tuple[str | int, ...]) -> None:
        self._left -= 1
        if self._left < 0:
            raise InvalidRequest.field(f"a filter has at most {_MOST_VALUES} values", *loc)


def _join_conditions(parts: list[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else Combined("all", tuple(parts))


def _check_one_kind(bounds: Mapping[str, str | float], loc: tuple[str | int, ...]) -> None:
    """Reject a range of a number and a string: no value is within both."""
    kinds = {name: _kind(bound) for name, bound in bounds.items()}
    first = next(iter(kinds), "")
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise InvalidRequest.field(f"should be {kinds[first]}, as '{first}' is", *loc, name)


def _check_finite(value: _ValueT, loc: tuple[str | int, ...]) -> _ValueT:
    if isinstance(value, float) and not math.isfinite(value):  # 1e999 is JSON
        raise InvalidRequest.field("is too large a number", *loc)
    return value


def values_at(value: Any, path: Sequence[str]) -> Sequence[Any]:  # noqa: ANN401 - any JSON
    """Return the values at a path; of a list, each of its items."""
    for depth, name in enumerate(path):
        if isinstance(value, list):
            return [inner for item in value for inner in values_at(item, path[depth:])]
        if not isinstance(value, dict) or name not in value:
            return ()
        value = value[name]
    if isinstance(value, list):
        return [inner for item in value for inner in values_at(item, ())]
    return (value,)


def _key(value: object) -> object:
    """Return a key that is equal for equal JSON values: `true` is not 1, but 1 is 1.0."""
    if isinstance(value, str | int | float | bool) or value is None:
        return (_kind(value), value)
    return None  # an object equals no value


def _kind(value: object) -> str:
    return _KINDS.get(type(value)) or type(value).__name__


_KINDS = {
    bool: "true or false",
    type(None): "null",
    int: "a number",
    float: "a number",
    str: "a string",
}
_HAVING: dict[str, Callable[[FieldPath], list[Condition]]] = {
    "true or false": lambda path: [Among.of(path, [True, False])],
    "null": lambda path: [Exists(path)],  # that no candidate has null is no mistake
    "a number": lambda path: [Within.of(path, {"gte": 0}), Within.of(path, {"lt": 0})],
    "a string": lambda path: [Within.of(path, {"gte": ""})],
}
"""Conditions for each kind of value: a field has such a value if one of them holds."""

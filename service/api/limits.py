"""The limits of the settings, checked on the values of a request by the names of their fields."""

from collections.abc import Iterator, Sized

from pydantic import BaseModel

from turnwise.service.errors import InvalidRequest
from turnwise.service.settings import Limits
from turnwise.service.wire.problems import FieldError, Loc

ITEMS = {
    "candidates": "max_candidates",
    "ids": "max_candidates",
    "goals": "max_goals",
    "avoid": "max_goals",
    "context": "max_turns",
}
NUMBERS = {"top_k": "max_top_k", "top": "max_top_k", "last_rows": "max_turns"}
_CHECKED = {"text", *ITEMS, *NUMBERS}
_VALUES_AN_ITEM = 4
"""An item is an object of three fields at most."""


def check_limits(limits: Limits, request: BaseModel) -> None:
    """Compare a request with the limits.

    Args:
        limits: The settings.
        request: A value of `service.requests`, or one like them.

    Raises:
        InvalidRequest: Something is too long, too many or too large; each is named.
    """
    if errors := list(_violations(limits, "", request, ())):
        raise InvalidRequest(errors)


def check_counts(limits: Limits, body: object) -> None:
    """Refuse a body that holds far more than it may before validating it takes long.

    Raises:
        InvalidRequest: A list, or an object, has too many values; the field is named.
    """
    if not isinstance(body, dict):
        return
    left = _VALUES_AN_ITEM * sum(getattr(limits, most) for most in ITEMS.values())
    for name, value in body.items():
        most = getattr(limits, ITEMS[name]) if name in ITEMS else left
        if isinstance(value, list) and len(value) > most:
            raise InvalidRequest.field(_excess(len(value), most, "items"), name)
        left = _left_after(value, left)
        if left < 0:
            raise InvalidRequest.field("holds more values than a request may", name)


def _left_after(value: object, left: int) -> int:
    """Return how many values may come after one and all inside it; below 0: these are too many."""
    left -= 1
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            if left < 0:
                break
            left = _left_after(each, left)
    return left


def text_error(limits: Limits, text: str, loc: Loc) -> Iterator[FieldError]:
    """Yield the error of a text that is too long."""
    return _too_long(text, limits.max_text_chars, "characters", loc)


def _violations(limits: Limits, name: str, value: object, loc: Loc) -> Iterator[FieldError]:
    if isinstance(value, str):
        yield from text_error(limits, value, loc)
    elif isinstance(value, BaseModel):
        for field, inner in vars(value).items():
            if field in _CHECKED:
                yield from _violations(limits, field, inner, (*loc, field))
    elif isinstance(value, list):
        most = getattr(limits, ITEMS[name])
        yield from _too_long(value, most, "items", loc)
        for place, item in enumerate(value[:most]):
            yield from _violations(limits, name, item, (*loc, place))
    elif isinstance(value, int) and value > (most := getattr(limits, NUMBERS[name])):
        yield FieldError(loc, f"{value} is more than the limit of {most}")


def _too_long(value: Sized, most: int, unit: str, loc: Loc) -> Iterator[FieldError]:
    if len(value) > most:
        yield FieldError(loc, _excess(len(value), most, unit))


def _excess(count: int, most: int, unit: str) -> str:
    return f"{count} {unit} are more than the limit of {most}"

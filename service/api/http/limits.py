"""Checks of requests against the limits of the settings. A field's name decides its limit."""

from collections.abc import Iterator, Sized

from pydantic import BaseModel

from turnwise.service.errors import InvalidRequest
from turnwise.service.settings import Limits, describe_excess
from turnwise.service.wire.problems import FieldError, Loc

ITEMS = {
    "candidates": "max_candidates",
    "documents": "max_candidates",
    "ids": "max_candidates",
    "exclude": "max_candidates",
    "goals": "max_goals",
    "avoid": "max_goals",
    "input": "max_candidates",
    "context": "max_turns",
}
NUMBERS = {"top_k": "max_top_k", "top": "max_top_k", "last_rows": "max_turns"}
_CHECKED = {"text", *ITEMS, *NUMBERS}
_VALUES = 21_000
"""Most values of a body, not counting its context. No request within the other limits has as
many."""
_VALUES_A_TURN = 4
"""Values that each turn of a context may add. A turn is an object of two fields; `max_turns` limits
their number."""


def check_limits(limits: Limits, request: BaseModel) -> None:
    """Reject a request that exceeds a limit.

    Args:
        limits: The settings.
        request: A validated request.

    Raises:
        InvalidRequest: Fields exceed a limit; the error lists them all.
    """
    if errors := list(_violations(limits, "", request, ())):
        raise InvalidRequest(errors)


def check_counts(limits: Limits, body: object) -> None:
    """Reject a body with far too many values, before validation spends time on it.

    Raises:
        InvalidRequest: A list or an object has too many values; the error names the field.
    """
    if not isinstance(body, dict):
        return
    left = _VALUES + _VALUES_A_TURN * limits.max_turns
    for name, value in body.items():
        most = getattr(limits, ITEMS[name]) if name in ITEMS else left
        if isinstance(value, list) and len(value) > most:
            raise InvalidRequest.field(describe_excess(len(value), most, "items"), name)
        left = _left_after(value, left)
        if left < 0:
            raise InvalidRequest.field("has more values than a request may have", name)


def _left_after(value: object, left: int) -> int:
    """Return `left` minus the number of values in `value`; counting stops below 0."""
    left -= 1
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            if left < 0:
                break
            left = _left_after(each, left)
    return left


def text_error(limits: Limits, text: str, loc: Loc) -> Iterator[FieldError]:
    """Yield an error if a text is too long."""
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
        yield FieldError(loc, describe_excess(len(value), most, unit))

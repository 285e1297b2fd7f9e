"""Checks of requests that the types of their fields cannot express."""

from turnwise.service.errors import InvalidRequest
from turnwise.service.settings import Limits, describe_excess
from turnwise.service.wire.fields import Aggregated, OptionalContext
from turnwise.service.wire.problems import FieldError

_VALUES = 21_000
"""Most values of a body, those of its context not counted: no request within the other limits has
as many."""
_VALUES_A_TURN = 4
"""Values that each turn of a context may add. A turn is an object of two fields; `max_turns` limits
their number."""


def check_turns(limits: Limits, request: OptionalContext | Aggregated) -> None:
    """Reject a request about more utterances than a session may have turns.

    Raises:
        InvalidRequest: The context or `last_rows` exceeds `max_turns`; the error names the field.
    """
    most = limits.max_turns
    errors: list[FieldError] = []
    if isinstance(request, OptionalContext) and len(request.context or ()) > most:
        message = describe_excess(len(request.context or ()), most, "items")
        errors.append(FieldError(("context",), message))
    if isinstance(request, Aggregated) and (request.last_rows or 0) > most:
        message = f"{request.last_rows} is more than the limit of {most}"
        errors.append(FieldError(("last_rows",), message))
    if errors:
        raise InvalidRequest(errors)


def check_counts(limits: Limits, body: object) -> None:
    """Reject a body with far too many values, before validation spends time on it.

    Raises:
        InvalidRequest: The body has too many values; the error names the field where they end.
    """
    if not isinstance(body, dict):
        return
    left = _VALUES + _VALUES_A_TURN * limits.max_turns
    for name, value in body.items():
        left = _count_down(value, left)
        if left < 0:
            raise InvalidRequest.field("has more values than a request may have", name)


def _count_down(value: object, left: int) -> int:
    """Return `left` minus the number of values in `value`; counting stops below 0."""
    left -= 1
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            if left < 0:
                break
            left = _count_down(each, left)
    return left

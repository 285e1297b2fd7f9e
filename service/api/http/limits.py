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
_BYTES_A_VALUE = 2
"""Fewest bytes of a value and its separator."""
_QUOTES_A_VALUE = 4
"""Most quotes of a value: those of its name, and its own."""


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


def check_counts(limits: Limits, body: bytes) -> None:
    """Reject a body with far too many values, before parsing and validation spend time on it.

    Raises:
        InvalidRequest: The JSON text has too many values.
    """
    most = _VALUES + _VALUES_A_TURN * limits.max_turns
    if len(body) < _BYTES_A_VALUE * most:
        return
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # A text of many strings is slow to split.
    has_many_strings = unescaped.count(b'"') > _QUOTES_A_VALUE * most
    if has_many_strings or _count_values(unescaped) > most:
        raise InvalidRequest.field("has more values than a request may have")


def _count_values(unescaped: bytes) -> int:
    """Return the number of values in JSON text without escapes; empty containers count twice.

    Each value but the first of a list or object follows a comma.
    """
    outside = b"".join(unescaped.split(b'"')[::2])
    return sum(outside.count(mark) for mark in (b",", b"[", b"{"))

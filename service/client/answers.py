"""Reading answers of the service: as values or as errors."""

from collections.abc import Hashable
from email.utils import parsedate_to_datetime
from functools import cache
from time import time
from typing import Any, TypeVar, cast

import httpx
from pydantic import TypeAdapter, ValidationError

from turnwise.service.client.errors import ProblemError, UnexpectedAnswerError
from turnwise.service.wire.problems import PROBLEM_JSON, Problem

T = TypeVar("T")


def parse(response: httpx.Response, kind: type[T]) -> T:
    """Return the value of a successful answer. Fields that this client does not know are ignored.

    Raises:
        UnexpectedAnswerError: The answer is not a `kind`.
    """
    try:
        return parse_text(response.content or b"null", kind)
    except ValidationError:
        raise UnexpectedAnswerError(str(response.url), response.status_code) from None


def parse_text(text: str | bytes, kind: type[T]) -> T:
    """Return the value of JSON text; raise pydantic's ValidationError if it is not a `kind`."""
    value: T = _adapter(cast(Hashable, kind)).validate_json(text, extra="ignore")
    return value


def check(response: httpx.Response) -> None:
    """Raise the error of an answer that is not a success. Its body must have been read.

    Raises:
        ProblemError: The answer is a problem document.
        UnexpectedAnswerError: The answer does not come from Turnwise.
    """
    if response.is_success:
        return
    unexpected = UnexpectedAnswerError(str(response.url), response.status_code)
    unexpected.retry_after = retry_after = _retry_after(response)
    if not response.headers.get("content-type", "").startswith(PROBLEM_JSON):
        raise unexpected
    try:
        problem = parse_text(response.content, Problem)
    except ValidationError:
        raise unexpected from None
    raise ProblemError.of(problem, retry_after)


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds until `Retry-After`, which may be a number or a date."""
    value = response.headers.get("retry-after", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return None


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))

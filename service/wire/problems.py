"""Schemas of error answers: problem documents (RFC 9457)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from turnwise.models.errors import message_of
from turnwise.service.wire.fields import RULES, Value

PROBLEM_JSON = "application/problem+json"
PROBLEM_PREFIX = "urn:turnwise:problem:"

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldError:
    """A field with an invalid value."""

    loc: Loc
    """Path of the field: `("candidates", 3, "text")`; in an answer, after "body" or "query"."""
    msg: str


@dataclass(frozen=True, slots=True)
class ChatError:
    """An error as the clients of OpenAI read it."""

    message: str
    """The `detail` of the problem."""
    type: str
    """`invalid_request_error`, or `server_error` from status 500 on."""
    param: str | None
    """The first invalid field."""
    code: str
    """The last part of the problem's `type`."""


def explain_error(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a field, in words where pydantic names only a pattern."""
    if error["type"] == "string_pattern_mismatch" and (rule := RULES.get(error["ctx"]["pattern"])):
        return rule
    return message_of(error)


class Problem(Value):
    """An error answer (RFC 9457)."""

    type: str = Field(examples=[f"{PROBLEM_PREFIX}invalid-request"])
    """Identifies the kind of problem. Programs should compare this, not the title."""
    title: str = Field(examples=["Invalid request"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["body.text: is required"])
    """Explanation of this occurrence, for people."""
    errors: tuple[FieldError, ...] = ()
    """Each invalid field, by its path: `["body", "candidates", 3, "text"]`."""
    request_id: str | None = None
    """The request's `X-Request-ID`, to find the request in logs."""
    error: ChatError | None = None
    """The same error for the clients of OpenAI; only from the routes that they call."""

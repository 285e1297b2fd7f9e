"""Schemas of error answers: problem documents (RFC 9457)."""

from dataclasses import dataclass

from pydantic import Field

from turnwise.service.wire.fields import Value

PROBLEM_JSON = "application/problem+json"
PROBLEM_PREFIX = "urn:turnwise:problem:"

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldError:
    """A field with an invalid value."""

    loc: Loc
    """Path of the field: `("candidates", 3, "text")`; in an answer, after "body" or "query"."""
    msg: str


class Problem(Value):
    """An error answer (RFC 9457)."""

    type: str = Field(examples=[f"{PROBLEM_PREFIX}invalid-request"])
    """Identifies the kind of problem. Programs should compare this, not the title."""
    title: str = Field(examples=["Invalid request"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["body.text: Field required"])
    """Explanation of this occurrence, for people."""
    errors: tuple[FieldError, ...] = ()
    """Each invalid field, by its path: `["body", "candidates", 3, "text"]`."""
    request_id: str | None = None
    """The request's `X-Request-ID`, to find the request in logs."""

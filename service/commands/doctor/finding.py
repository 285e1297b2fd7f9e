"""The result of one check of `turnwise doctor`."""

from dataclasses import dataclass
from typing import Literal

Grade = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    subject: str
    """The thing that was checked."""
    grade: Grade
    """`fail` keeps the service from serving; `warn` does not."""
    found: str
    advice: str = ""
    """The fix; empty if none is needed."""

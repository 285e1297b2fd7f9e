"""What an examination says of one thing."""

from dataclasses import dataclass
from typing import Literal

Grade = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing, as it was found."""

    subject: str
    """What was looked at."""
    grade: Grade
    """Good; good enough to start with; or not good enough to serve."""
    found: str
    advice: str = ""
    """What to do about it; empty where nothing is to be done."""

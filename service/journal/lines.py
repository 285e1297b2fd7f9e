"""The lines of the journal: a turn, an event of feedback, an undo, a deletion.

The version of a session orders its lines, whichever replica wrote them: it grows with every change,
and a new session has larger ones than a deleted session of its name. Feedback changes no version;
its time orders it. The version of a new session is the time of Redis in microseconds, whatever the
clock of the replica says. A deletion has the last version of its session, or the time of Redis if
it is of a prefix or of an expired session.
"""

from time import time
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from turnwise.service.wire.fields import Omittable, Value
from turnwise.service.wire.filters import Where
from turnwise.service.wire.pools import PoolVersion
from turnwise.service.wire.sessions import FeedbackEvent


class _Line(Value):
    at: float = Field(default_factory=time)
    """Unix seconds."""
    namespace: str


class _SessionLine(_Line):
    session: str
    version: int
    """The session's version after the change."""
    turn: int


class Offered(Value):
    """A candidate that a turn offered."""

    id: str
    text: str
    score: float


class TurnLine(_SessionLine):
    """A turn, and what it offered."""

    what: Literal["turn"] = "turn"
    speaker: str
    text: str
    candidate: Omittable[str] = None
    """The candidate that the responder said: the turn names it, or feedback before it chose it."""
    responder: str
    model: str
    pool: PoolVersion | None
    where: Where | None
    """The filter of the session and of the turn."""
    offered: list[Offered]
    """Best first."""


class FeedbackLine(_SessionLine):
    """An event on a candidate that a turn offered."""

    what: Literal["feedback"] = "feedback"
    candidate: str
    event: FeedbackEvent
    text: str | None


class UndoLine(_SessionLine):
    """The turn was undone."""

    what: Literal["undo"] = "undo"


class DeletionLine(_Line):
    """The deletion of a session, or of all sessions whose ids begin with a prefix."""

    what: Literal["deletion"] = "deletion"
    session: str | None = None
    prefix: str | None = None
    version: int
    """All lines up to this version are deleted."""


SessionLine = TurnLine | FeedbackLine | UndoLine
Line = SessionLine | DeletionLine

_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="what")])


def parse(line: bytes) -> Line:
    """Return a line of a file; fields of later releases are ignored.

    Raises:
        ValueError: It is not such a line, for example because a crash cut it off.
    """
    return _LINES.validate_json(line, extra="ignore")


def dump(line: Line) -> bytes:
    """Return a line as a file holds it."""
    return line.model_dump_json().encode() + b"\n"

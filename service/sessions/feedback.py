"""Keeps the feedback of a session: events on the candidates that its turns offered.

It is the hash `feedback`, one of the session's keys. A field names the turn, the event and the
candidate; its value is the rank of the candidate, and the text of an edit. The *choice*
of a turn is the candidate that was chosen or edited last. The hash `meta` keeps its id.
"""

from typing import NamedTuple

from redis.asyncio import Redis

from turnwise.models.texts import write_count
from turnwise.service.errors import Conflict, FeedbackFull, InvalidRequest, TurnNotFound
from turnwise.service.observe.metrics import Metrics
from turnwise.service.redis.connection import load_scripts, redis_errors
from turnwise.service.sessions.store import FEEDBACK, OFFERS_KEPT, SessionKey, session_not_found
from turnwise.service.wire.sessions import Feedback, FeedbackRequest

FEEDBACK_KEPT = 1000
"""Most events of feedback that a session keeps."""


class Kept(NamedTuple):
    """An event that a session keeps, and what the turn had offered.

    Attributes:
        feedback: The event.
        is_new: Whether the session did not have it before.
        version: The session's version after the event.
        pool: The pool of the candidates; empty if the session does not know it any more.
        model: The model that found them; empty with the pool.
    """

    feedback: Feedback
    is_new: bool
    version: int
    pool: str
    model: str


class FeedbackStore:
    """Reads and adds feedback in Redis; raises StateUnavailable without Redis."""

    def __init__(self, redis: Redis, metrics: Metrics) -> None:
        self._redis = redis
        self._metrics = metrics
        self._add = load_scripts("turnwise.service.sessions", redis)["add_feedback"]

    async def add(self, session: SessionKey, turn: int, request: FeedbackRequest) -> Kept:
        """Keep an event on a candidate that a turn offered.

        Raises:
            SessionNotFound: There is no such session.
            TurnNotFound: It has no such turn.
            InvalidRequest: The turn did not offer the candidate.
            Conflict: The turn offered nothing, or is too old; or the event was kept with another
                text.
            FeedbackFull: The session has as many events as the limit allows.
        """
        arguments: list[str | int] = [
            turn,
            request.event,
            request.candidate,
            request.text or "",
            FEEDBACK_KEPT,
        ]
        with redis_errors(self._metrics, "session_feedback") as outcome:
            facts = await self._add(keys=session.keys("meta", FEEDBACK), args=arguments)
            reply = [fact.decode() for fact in facts]
            if reply[0] not in {"new", "kept"}:
                outcome.result = "conflict"
        match reply:
            case ["new" | "kept" as what, kept, version, pool, model]:
                feedback = _make_feedback(turn, request.event, request.candidate, kept)
                if feedback.text != request.text:
                    raise Conflict(f"turn {turn} has this event with another text")
                return Kept(feedback, what == "new", int(version), pool, model)
            case ["session"]:
                raise session_not_found(session)
            case ["turn", turns]:
                count = write_count(int(turns), "turn")
                raise TurnNotFound(f"session '{session.id}' has {count}, no turn {turn}")
            case ["candidate"]:
                raise InvalidRequest.field(f"turn {turn} did not offer this candidate", "candidate")
            case ["full"]:
                raise FeedbackFull(
                    f"session '{session.id}' has {FEEDBACK_KEPT} events, which is the limit"
                )
            case _:
                raise Conflict(
                    f"turn {turn} offered no candidates, or is not among the newest {OFFERS_KEPT}"
                )

    async def read(self, session: SessionKey) -> list[Feedback]:
        """Return the feedback of a session, by turn and rank; none where there is no session."""
        with redis_errors(self._metrics, "session_read"):
            found: dict[bytes, bytes] = await self._redis.hgetall(*session.keys(FEEDBACK))  # type: ignore[assignment]
        events = []
        for field, kept in found.items():
            turn, event, candidate = field.decode().split(" ", 2)
            events.append(_make_feedback(int(turn), event, candidate, kept.decode()))
        return sorted(events, key=lambda each: (each.turn, each.rank, each.event))


def _make_feedback(turn: int, event: str, candidate: str, kept: str) -> Feedback:
    """Return an event; `kept` is the value of its field in Redis."""
    rank, _, text = kept.partition(" ")
    return Feedback.model_construct(
        turn=turn, candidate=candidate, event=event, text=text or None, rank=int(rank)
    )

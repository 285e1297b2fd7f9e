"""Sessions: turns, settings, the transcript, feedback, undo and the score matrix."""

from typing import Literal

from pydantic import ConfigDict, Field, PositiveInt, StrictBool, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from turnwise.service.wire.fields import (
    MAX_CANDIDATES,
    MAX_TOP_K,
    RESPONDER,
    Aggregated,
    CandidateId,
    Count,
    Flag,
    Message,
    Name,
    Omittable,
    Repeat,
    Rerank,
    SessionPrefix,
    Share,
    Slots,
    Speaker,
    TopK,
    Value,
    Warnings,
    Wordings,
    given_schema,
)
from turnwise.service.wire.filters import Where
from turnwise.service.wire.pools import PoolVersion, Selected

FeedbackEvent = Literal["shown", "chosen", "edited", "rejected"]


class TurnRequest(Aggregated):
    """A turn, and options of the selection after it."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [given_schema("text"), given_schema("candidate")]}
    )

    speaker: Speaker
    candidate: CandidateId | None = None
    """The candidate of the pool that the responder said. Only the responder may name one."""
    text: Message | None = Field(default=None, validate_default=True)
    """What was said; by default the text of the candidate."""
    pool: Name = "default"
    """The pool to select from, and of the candidate that was said."""
    top_k: TopK = 5
    """Number of candidates to return."""
    rerank: Rerank | None = "auto"
    """With `auto` the model's own re-ranker, if it has one, orders the first candidates where the
    first is not sure; a name orders the whole short list; with null nothing is re-ranked."""
    where: Where | None = None
    """A filter: only candidates whose metadata match it are returned."""
    slots: Slots = Field(default={})
    """Values for slots, in addition to those of the session. Candidates with other slots are not
    offered."""
    repeat: Repeat = "last"
    """Which replies that the responder has said may be offered: `last` leaves out those of its last
    utterance, false those of the whole session, `near` also replies close to these, true none."""
    wordings: Wordings = "best"
    """Whether to return the best wording of each group, or `all` of them."""
    exclude: list[CandidateId] = Field(default=[], max_length=MAX_CANDIDATES)
    """Ids of candidates that must not be returned."""
    diversity: Share = 0.0
    """How much candidates must differ from each other: 0 orders them by score alone, 1 by their
    difference alone (maximal marginal relevance)."""
    min_confidence: Share | None = None
    """Return no candidates if the confidence is lower; by default the pool's, or 0."""
    respond: StrictBool | None = None
    """Whether to return candidates; by default yes, unless the responder speaks."""
    explain: StrictBool = False
    """Whether to return each utterance's contribution to each candidate's score."""
    expected_turn: Count | None = None
    """The number that this turn must get. If it would get another, the answer is 409."""
    commit: StrictBool = True
    """False for a preview: the answer that this turn would get, without adding it to the session.
    A preview ignores `Idempotency-Key`."""

    @field_validator("text")
    @classmethod
    def _check_text_or_candidate(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is None and info.data.get("candidate", "") is None:
            raise PydanticCustomError("missing", "is required")
        return text


class TurnAnswer(Value):
    """The number of the turn, and the best candidates."""

    session_id: str
    turn: int | None
    """Number of this turn, from 1; null for a preview."""
    candidates: list[Selected]
    confidence: float | None = None
    """Probability that the first candidate is a right one; null if that cannot be known."""
    abstained: bool = False
    """Whether there are no candidates because the confidence was too low."""
    reranked: Flag = False
    """True if `auto` ordered the first candidates by the model's own re-ranker; else left out."""
    truncated: Flag = False
    """True if the newest utterance is longer than what the model reads of it, its beginning and its
    end; else left out. The transcript has all of it."""
    warnings: Warnings = Field(default=[])
    warning: Omittable[str] = Field(default=None, deprecated=True)
    """The first of `warnings`."""
    pool: PoolVersion | None
    """Null if no candidates were selected."""
    model: str
    timings_ms: dict[str, float]
    """Milliseconds: encode, state, retrieve, rerank, total."""
    replayed: bool = False
    """Whether this is the stored answer to an earlier request with the same Idempotency-Key."""


class SessionRequest(Value):
    """Settings of a session. Those that are left out stay as they are."""

    responder: Speaker = RESPONDER
    """The speaker who will say the candidates; it cannot change after the first turn."""
    where: Where | None = None
    """A filter for all turns, in addition to the filter of a turn; null removes it."""
    slots: Slots | None = None
    """Values for the slots of candidates, for all turns; null removes them."""


class TranscriptTurn(Value):
    """A turn of the transcript."""

    turn: int
    speaker: str
    text: str
    at: float
    """Unix seconds."""
    candidate: Omittable[str] = None
    """The candidate that the responder said: the turn names it, or feedback before it chose it."""


class FeedbackRequest(Value):
    """An event on a candidate that a turn offered."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"event": {"const": "edited"}}},
            "then": given_schema("text"),
            "else": {"properties": {"text": {"type": "null"}}},
        }
    )

    candidate: CandidateId
    event: FeedbackEvent
    """`shown` to whoever chooses, `chosen` as the reply, `edited` into the reply, or `rejected` as
    wrong. A turn without `shown` counts as having shown all that it offered."""
    text: Message | None = Field(default=None, validate_default=True)
    """The reply after the edit; only with `edited`."""
    learn: StrictBool | None = None
    """Whether the utterance before the choice becomes a learned example of the candidate; only with
    `chosen` and `edited`. True needs the scope `pools`. By default the setting of the pool."""

    @field_validator("learn")
    @classmethod
    def _check_learn(cls, learn: bool | None, info: ValidationInfo) -> bool | None:
        event = info.data.get("event")
        if learn and event in {"shown", "rejected"}:
            raise ValueError(f"makes no sense with the event '{event}'")
        return learn

    @field_validator("text")
    @classmethod
    def _check_edited_text(cls, text: str | None, info: ValidationInfo) -> str | None:
        event = info.data.get("event")
        if event == "edited" and text is None:
            raise PydanticCustomError("missing", "is needed with the event 'edited'")
        if event != "edited" and event is not None and text is not None:
            raise ValueError(f"makes no sense with the event '{event}'")
        return text


class Feedback(Value):
    """An event that a session keeps."""

    turn: int
    """The turn that offered the candidate."""
    candidate: str
    event: FeedbackEvent
    text: str | None
    rank: int
    """The candidate's place among those that the turn offered, from 1."""
    learned: Omittable[bool] = None
    """Whether the examples of the candidate now have the utterance before the choice, or a near
    copy of it; left out unless the feedback should teach."""


class Transcript(Value):
    """A session's turns."""

    session_id: str
    responder: str
    where: Where | None = None
    """The filter of its turns."""
    slots: Slots = Field(default={}, exclude_if=lambda value: not value)
    """The values for slots; left out if there are none."""
    turns: int
    transcript: list[TranscriptTurn]
    feedback: list[Feedback] = Field(default=[])
    """The events, sorted by turn and rank."""
    model: str
    """Fingerprint of the model whose vectors are stored. The `model` of a turn is the name."""
    expires_at: float
    """Unix seconds."""


class Undone(Value):
    """The session after its last turn was removed."""

    session_id: str
    turn: int
    removed: TranscriptTurn


class SessionsQuery(Value):
    """The sessions to list."""

    prefix: SessionPrefix | None = None
    """The beginning of their ids; by default all."""
    cursor: str | None = None
    """The cursor that the page before returned; none for the first page."""


class SessionsPage(Value):
    """Ids of sessions, in no order."""

    ids: list[str]
    cursor: str | None
    """The cursor of the next page; null after the last one. A page before the last may be empty."""


class DeletionQuery(Value):
    """The sessions to delete."""

    prefix: SessionPrefix
    """The beginning of their ids."""
    cursor: str | None = None
    """The cursor that the request before returned; none for the first request."""
    learned: bool = False
    """Whether the last request also removes what candidates have learned from such sessions."""


class SessionsDeleted(Value):
    """The result of one request of a deletion."""

    deleted: int
    """Number of sessions that this request deleted."""
    cursor: str | None
    """The cursor of the next request; null if all sessions are deleted."""
    learned: Omittable[int] = None
    """Number of learned examples that the last request removed, if it was asked to."""


class ScoresQuery(Aggregated):
    """The part of the score matrix to return."""

    last_rows: PositiveInt | None = None
    """Number of rows that `last_rows` sums."""
    pool: Name = "default"
    ids: list[CandidateId] = Field(default=[], max_length=MAX_CANDIDATES)
    """Candidates, a column each; repeat the parameter for several: `ids=a&ids=b`. MaxSim scores 100
    at most. Without it, the columns are the candidates that the running query finds first."""
    top_k: PositiveInt = Field(default=5, le=MAX_TOP_K)
    """Number of candidates without `ids`."""


class ScoreMatrix(Value):
    """The score matrix: a line for each utterance, a column for each candidate."""

    session_id: str
    pool: PoolVersion
    ids: list[str]
    turns: list[int]
    """Number of the last turn of each utterance."""
    scores: list[list[float]]

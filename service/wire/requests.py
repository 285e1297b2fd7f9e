"""What the use cases take and return: values that say nothing of HTTP."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StringConstraints,
    field_validator,
    model_validator,
)


def _number(value: object) -> object:
    """Refuse what would be taken for a number although its JSON is none."""
    if isinstance(value, bool | str):
        raise ValueError("Input should be a number")  # noqa: TRY004 - what pydantic takes
    return value


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$")]
"""A session or a pool: safe in a URL, a file name and a key."""
_SOMETHING = r"\S"
Speaker = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=64, pattern=_SOMETHING),
]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=_SOMETHING)]
Finite = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_number)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False), BeforeValidator(_number)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_number)]
AggregationName = Literal["mean", "last_rows", "max_sim"]

RerankerName = Literal["ioi"]

RESPONDER = "bot"


def _given(*names: str) -> dict[str, JsonValue]:
    """Return the JSON schema of an object in which these fields are there and not null."""
    return {"required": [*names], "properties": {n: {"not": {"type": "null"}} for n in names}}


def _either(one: str, other: str) -> dict[str, JsonValue]:
    """Return the JSON schema of an object in which one of two fields is given, and not both."""
    return {"oneOf": [_given(one), _given(other)]}


class Value(BaseModel):
    """A value; a field that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Aggregated(Value):
    """How the context folds up into one score; what is left out says the model's card."""

    aggregation: AggregationName | None = None
    """All rows, the last ones, or MaxSim over a short list."""
    last_rows: Count | None = None
    """How many rows `last_rows` sums."""


class TurnRequest(Aggregated):
    """An utterance as it is said, and what to select after it."""

    speaker: Speaker
    text: Text
    pool: Name = "default"
    """Where the candidates come from."""
    top_k: Count = 5
    """Candidates to return."""
    rerank: RerankerName | None = None
    """What puts the best candidates in their final order, where the service has it."""
    respond: StrictBool | None = None
    """Whether candidates are returned; left out: when the responder did not say this."""
    explain: StrictBool = False
    """Whether each candidate tells what each utterance contributes to its score."""
    expected_turn: Count | None = None
    """The number that this turn must get, or 409."""


class Selected(Value):
    """A candidate of a pool, selected."""

    id: str
    text: str
    score: float
    metadata: dict[str, Any]
    contributions: list[float] | None = Field(default=None, exclude_if=lambda value: value is None)
    """One a context utterance, oldest first; they add up to the score."""


class PoolVersion(Value):
    """Which contents of a pool an answer rests on."""

    name: str
    version: int


class TurnAnswer(Value):
    """Where the session stands, and the best candidates."""

    session_id: str
    turn: int
    """Number of this post, from 1."""
    candidates: list[Selected]
    pool: PoolVersion | None
    """None where no candidates were asked for."""
    model: str
    timings_ms: dict[str, float]
    """Milliseconds: encode, state, retrieve, rerank, total."""
    replayed: bool = False
    """Whether this answers a request that was answered before."""


class Post(Value):
    """One utterance as it was posted."""

    speaker: Speaker
    text: Text


class Candidate(Value):
    """A candidate given with the request."""

    text: Text
    id: str | None = None
    speaker: Speaker | None = None
    """Who would say it; the responder where left out."""


class Goal(Value):
    """An utterance to lead to."""

    text: Text
    speaker: Speaker | None = None
    """Who would say it; the responder where left out."""
    weight: Weight = 1.0
    """Its part in the score; negative leads away from it."""


class Avoided(Value):
    """An utterance not to lead to."""

    text: Text
    threshold: Finite
    """Reachability (eq. 4 of C3L) from which a candidate is rejected."""
    speaker: Speaker | None = None
    """Who would say it; the responder where left out."""


class OptionalHistory(Value):
    """A session, a context, or neither."""

    model_config = ConfigDict(json_schema_extra={"not": _given("session_id", "context")})

    session_id: Name | None = None
    context: list[Post] | None = None

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.session_id is not None and self.context is not None:
            raise ValueError("give session_id or context, not both")
        return self


_SOMETHING_TO_RANK_BY: dict[str, JsonValue] = {
    "anyOf": [
        {"properties": {"context": {"minItems": 1}}},
        {
            "required": ["goals"],
            "properties": {"goals": {"minItems": 1}, "pool": {"type": "null"}},
        },
    ]
}


class RankRequest(OptionalHistory, Aggregated):
    """Candidates to rank after a history, or toward goals."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _either("session_id", "context"),
                _either("candidates", "pool"),
                _SOMETHING_TO_RANK_BY,
            ]
        }
    )

    candidates: list[Text | Candidate] | None = Field(default=None, min_length=1)
    pool: Name | None = None
    """Instead of candidates: the best of a pool by the next-utterance score."""
    goals: list[Goal] = []
    avoid: list[Avoided] = []
    fit_weight: Weight = 0.0
    """With goals: weight of the next-utterance score beside eq. 4."""
    rerank: RerankerName | None = None
    """What gives the next-utterance scores, instead of the encoder."""
    top_k: Count | None = None
    """Best candidates to return; all where left out."""
    explain: StrictBool = False
    """Whether each candidate tells its `fit`, and what each utterance contributes to it."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.candidates is None) == (self.pool is None):
            raise ValueError("give either candidates or pool")
        if self.session_id is None and self.context is None:
            raise ValueError("give either session_id or context")
        return self

    @property
    def wants_fit(self) -> bool:
        """Whether next-utterance scores of the candidates are of use."""
        return self.explain or self.fit_weight != 0 or not self.goals


class Ranked(Value):
    """A candidate and what its score is made of."""

    index: int
    """Its place among the candidates of the request, or of the pool's short list, from 0."""
    id: str | None
    text: str
    score: float
    fit: float | None
    """Next-utterance score; None without an utterance of context."""
    goals: list[float]
    """Reachability of each goal (eq. 4 of C3L)."""
    contributions: list[float] | None = Field(default=None, exclude_if=lambda value: value is None)
    """One a context utterance, oldest first; they add up to `fit`."""


class Rejected(Value):
    """A candidate that leads to an utterance to avoid."""

    index: int
    id: str | None
    text: str
    reason: str
    avoid: int
    """Place of the utterance in the request's `avoid`, from 0."""
    reachability: float


class RankAnswer(Value):
    """Candidates by decreasing score; those of equal score in the order given."""

    ranking: list[Ranked]
    rejected: list[Rejected]
    pool: PoolVersion | None
    model: str
    timings_ms: dict[str, float]


class PlanGoal(Value):
    """A goal to put in order."""

    text: Text
    id: str | None = Field(default=None, min_length=1, max_length=128)
    """Its place in the request, from 0, where left out."""
    speaker: Speaker | None = None
    """Who would say it; the responder where left out."""


_HISTORY_IF_NEEDED: dict[str, JsonValue] = {
    "anyOf": [
        {"properties": {"method": {"const": "chain"}}},
        _given("session_id"),
        {"required": ["context"], "properties": {"context": {"type": "array", "minItems": 1}}},
    ]
}


def _names(goals: list[PlanGoal]) -> list[str]:
    return [goal.id or str(place) for place, goal in enumerate(goals)]


class PlanRequest(OptionalHistory):
    """Goals to put into the order in which a dialogue can reach them."""

    model_config = ConfigDict(
        json_schema_extra={"allOf": [{"not": _given("session_id", "context")}, _HISTORY_IF_NEEDED]}
    )

    goals: list[PlanGoal] = Field(min_length=2)
    method: Literal["chain", "chain_curved", "greedy"] = "chain"
    """IEC, IEC & CU, or greedy curving (CCL section 6)."""
    top: Count = 1
    """Orders to return."""

    @field_validator("goals")
    @classmethod
    def _distinct(cls, goals: list[PlanGoal]) -> list[PlanGoal]:
        if len(set(_names(goals))) < len(goals):
            raise ValueError("two goals have the same id")
        return goals

    @property
    def names(self) -> list[str]:
        """The id of each goal."""
        return _names(self.goals)


class PlannedOrder(Value):
    """Ids of the goals, first to pursue first."""

    order: list[str]
    score: float


class PlanAnswer(Value):
    """Orders by decreasing score."""

    orders: list[PlannedOrder]
    next_goal: str
    method: str
    optimal: bool
    """False where there are too many goals to be sure that no order is better."""
    model: str
    timings_ms: dict[str, float]


class SessionRequest(Value):
    """What is fixed before a session's first turn."""

    responder: Speaker = RESPONDER
    """Who will say the candidates."""


class TranscriptPost(Value):
    """A post of the transcript."""

    turn: int
    speaker: str
    text: str
    at: float
    """Unix seconds."""


class Transcript(Value):
    """A session as its clients see it."""

    session_id: str
    responder: str
    turns: int
    transcript: list[TranscriptPost]
    model: str
    """Fingerprint of the model whose vectors are stored."""
    expires_at: float
    """Unix seconds."""


class ScoreMatrix(Value):
    """The running score matrix: an utterance a line, a candidate a column."""

    session_id: str
    pool: PoolVersion
    ids: list[str]
    turns: list[int]
    """Number of the last post of each utterance."""
    scores: list[list[float]]


class Undone(Value):
    """Where the session stands after its last post was taken back."""

    session_id: str
    turn: int
    removed: TranscriptPost

"""`/rank`: candidates after a context, or toward goals."""

from typing import Any, Self

from pydantic import ConfigDict, Field, JsonValue, StrictBool, model_validator

from turnwise.service.wire.fields import (
    MAX_CANDIDATES,
    MAX_GOALS,
    Aggregated,
    Finite,
    Flag,
    Name,
    Omittable,
    OptionalContext,
    Repeat,
    Rerank,
    Share,
    Slots,
    Speaker,
    Text,
    TopK,
    Value,
    Warnings,
    Weight,
    Wordings,
    either_schema,
    given_schema,
)
from turnwise.service.wire.filters import Where
from turnwise.service.wire.pools import Matched, PoolVersion

FIT_WEIGHT_OF_POOL = 0.5
"""Most candidates of a pool fit badly, and toward a goal alone one of these may be first."""


class GivenCandidate(Value):
    """A candidate that the request gives."""

    text: Text
    id: str | None = None
    speaker: Speaker | None = None
    """The speaker who would say it; by default the responder."""


class Goal(Value):
    """A goal: an utterance that the conversation should lead to."""

    text: Text
    speaker: Speaker | None = None
    """The speaker who should say it; by default the responder."""
    weight: Weight = 1.0
    """Factor of its reachability in the score; a negative weight leads away from the goal."""


class Avoided(Value):
    """An utterance to avoid."""

    text: Text
    threshold: Finite
    """Candidates whose reachability of it (eq. 4 of C3L) is this or more are rejected."""
    speaker: Speaker | None = None
    """The speaker who would say it; by default the responder."""


_SOMETHING_TO_RANK_BY: dict[str, JsonValue] = {
    "anyOf": [
        {"properties": {"context": {"minItems": 1}}},
        {
            "required": ["goals"],
            "properties": {"goals": {"minItems": 1}, "pool": {"type": "null"}},
        },
    ]
}


_OPTIONS_OF_A_POOL: dict[str, JsonValue] = {
    "anyOf": [
        given_schema("pool"),
        {
            "properties": {
                "where": {"type": "null"},
                "slots": {"maxProperties": 0},
                "repeat": {"const": True},
                "diversity": {"const": 0},
            }
        },
    ]
}


class RankRequest(OptionalContext, Aggregated):
    """Candidates to rank after a context, or toward goals."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                either_schema("session_id", "context"),
                either_schema("candidates", "pool"),
                _SOMETHING_TO_RANK_BY,
                _OPTIONS_OF_A_POOL,
            ]
        }
    )

    candidates: list[Text | GivenCandidate] | None = Field(
        default=None, min_length=1, max_length=MAX_CANDIDATES
    )
    pool: Name | None = None
    """A pool, instead of `candidates`: its candidates with the best next-utterance scores."""
    where: Where | None = None
    """A filter: only candidates of the pool whose metadata match it are ranked."""
    slots: Slots = Field(default={})
    """Values for slots of the pool's candidates, in addition to those of the session. Candidates
    with other slots are not offered."""
    repeat: Repeat = True
    """Which replies that the responder has said may be ranked: `last` leaves out those of its last
    utterance, false those of the whole session, `near` also replies close to these, true none."""
    wordings: Wordings = "best"
    """Whether to return the best wording of each group of the pool, or `all` of them."""
    diversity: Share = 0.0
    """How much candidates of the pool must differ from each other, as for a turn."""
    goals: list[Goal] = Field(default=[], max_length=MAX_GOALS)
    avoid: list[Avoided] = Field(default=[], max_length=MAX_GOALS)
    fit_weight: Weight | None = None
    """With goals: weight of the next-utterance score, which is added to the reachability. By
    default 0.5 for a pool, and 0 for `candidates`."""
    rerank: Rerank | None = "auto"
    """The re-ranker that gives the next-utterance scores, instead of the encoder. `auto` acts as
    for a turn on the candidates of a pool, and not at all with goals or given candidates."""
    top_k: TopK | None = None
    """Number of candidates to return; by default all."""
    explain: StrictBool = False
    """Whether to return each candidate's `fit` and each utterance's contribution to it."""

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if (self.candidates is None) == (self.pool is None):
            raise ValueError("give either candidates or pool")
        if self.session_id is None and self.context is None:
            raise ValueError("give either session_id or context")
        return self

    @property
    def wants_fit(self) -> bool:
        """Whether the answer depends on next-utterance scores."""
        return self.explain or self.weight_of_fit != 0

    @property
    def weight_of_fit(self) -> float:
        """Weight of the next-utterance score."""
        if not self.goals:
            return 1.0
        if self.fit_weight is not None:
            return self.fit_weight
        return FIT_WEIGHT_OF_POOL if self.pool else 0.0


class Ranked(Value):
    """A candidate and the parts of its score."""

    index: int
    """Its place among the candidates of the request, or of the pool's short list, from 0."""
    id: str | None
    text: str
    score: float
    fit: float | None
    """Next-utterance score; null if the context is empty, or nothing in the request needs it."""
    goals: list[float]
    """Reachability of each goal (eq. 4 of C3L)."""
    metadata: Omittable[dict[str, Any]] = None
    """The metadata of a candidate of the pool."""
    group: Omittable[str] = None
    """The answer that a candidate of the pool is a wording of."""
    body: Omittable[str] = None
    """The body of a candidate of the pool."""
    template: Omittable[str] = None
    """The text of a candidate of the pool as it is there, if slots or braces changed it."""
    matched: Omittable[Matched] = None
    """The example that found a candidate of the pool, where that says more than its text, and the
    reply that it follows."""
    contributions: Omittable[list[float]] = None
    """One for each utterance of the context, oldest first; they add up to `fit`."""


class Rejected(Value):
    """A candidate that is rejected because it leads to an utterance to avoid."""

    index: int
    id: str | None
    text: str
    reason: str
    avoid: int
    """Place of the utterance in the request's `avoid`, from 0."""
    reachability: float


class RankAnswer(Value):
    """Candidates by decreasing score; equal scores keep the order of the request.

    With diversity, in the order in which they were chosen.
    """

    ranking: list[Ranked]
    rejected: list[Rejected]
    confidence: float | None = None
    """Probability that the first candidate of a pool is a right one. Null unless the model's own
    aggregation ranks the pool, alone or with the model's own re-ranker."""
    reranked: Flag = False
    """True if `auto` ordered the first candidates by the model's own re-ranker; else left out."""
    estimated: Flag = False
    """True if the reachability of the goals comes from estimated vectors of the candidates, whose
    order is good and whose numbers are not exact; else left out."""
    warnings: Warnings = Field(default=[])
    pool: PoolVersion | None
    model: str
    timings_ms: dict[str, float]

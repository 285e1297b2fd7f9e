"""`/plan`: goals in the order in which a dialogue can reach them."""

from typing import Final, Literal

from pydantic import ConfigDict, Field, JsonValue, field_validator

from turnwise.service.wire.fields import OptionalContext, Speaker, Text, TopK, Value, given_schema

Method = Literal["chain", "chain_curved", "greedy", "iec", "iec_cu", "gc"]
WITHOUT_CONTEXT: Final[tuple[Method, ...]] = ("chain", "iec")
"""Methods that read no context."""
MAX_PLANNED_GOALS = 16
"""Most goals that the exact search can order (`models.planning.MAX_GOALS`)."""


class PlanGoal(Value):
    """A goal to put in order."""

    text: Text
    id: str | None = Field(default=None, min_length=1, max_length=128)
    """By default its index in the request, from 0."""
    speaker: Speaker | None = None
    """The speaker who should say it; by default the responder."""


_CONTEXT_IF_NEEDED: dict[str, JsonValue] = {
    "anyOf": [
        {"properties": {"method": {"enum": list(WITHOUT_CONTEXT)}}},
        given_schema("session_id"),
        {"required": ["context"], "properties": {"context": {"type": "array", "minItems": 1}}},
    ]
}


def _name_goals(goals: list[PlanGoal]) -> list[str]:
    return [goal.id or str(index) for index, goal in enumerate(goals)]


class PlanRequest(OptionalContext):
    """Goals to put into the order in which a dialogue can reach them."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [{"not": given_schema("session_id", "context")}, _CONTEXT_IF_NEEDED]
        }
    )

    goals: list[PlanGoal] = Field(min_length=2, max_length=MAX_PLANNED_GOALS)
    method: Method = "chain"
    """`chain` orders the goals by how well each leads to the next; it reads no context. `greedy`
    orders them by their pull, half the mean cosine of the last two utterances with the goal.
    `chain_curved` uses both. `iec` (the same as `chain`), `gc` and `iec_cu` are these methods as
    CCL publishes them, where the pull is the sum of the cosines of the whole context."""
    top: TopK = 1
    """Number of orders to return."""

    @field_validator("goals")
    @classmethod
    def _check_distinct(cls, goals: list[PlanGoal]) -> list[PlanGoal]:
        if len(set(_name_goals(goals))) < len(goals):
            raise ValueError("two goals have the same id")
        return goals

    @property
    def names(self) -> list[str]:
        """The id of each goal."""
        return _name_goals(self.goals)


class PlannedOrder(Value):
    """Ids of the goals, in the order in which to pursue them."""

    order: list[str]
    score: float


class PlanAnswer(Value):
    """Orders by decreasing score."""

    orders: list[PlannedOrder]
    next_goal: str
    method: str
    optimal: bool
    """Always true: no other order scores higher."""
    model: str
    timings_ms: dict[str, float]

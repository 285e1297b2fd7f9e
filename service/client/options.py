"""Types of the keyword arguments of calls. Arguments left out are not sent."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from turnwise.service.wire.fields import AggregationName, RerankerName
from turnwise.service.wire.ranking import Avoided, GivenCandidate, Goal


class AggregationOptions(TypedDict, total=False):
    """The aggregation of the context; by default that of the model card."""

    aggregation: AggregationName
    last_rows: int


class TurnOptions(AggregationOptions, total=False):
    """Options of a turn; `wire.sessions.TurnRequest` describes them."""

    pool: str
    top_k: int
    rerank: RerankerName
    respond: bool
    explain: bool
    expected_turn: int


class RankOptions(AggregationOptions, total=False):
    """Options of a ranking, with `candidates` or `pool`; see `wire.ranking.RankRequest`."""

    candidates: Sequence[str | GivenCandidate]
    pool: str
    goals: Sequence[Goal]
    avoid: Sequence[Avoided]
    fit_weight: float
    rerank: RerankerName
    top_k: int
    explain: bool


class ScoresOptions(TypedDict, total=False):
    """Options of a score matrix; `wire.sessions.ScoresQuery` describes them."""

    aggregation: Literal["mean", "last_rows"]
    last_rows: int
    pool: str


class PlanOptions(TypedDict, total=False):
    """Options of planning; `wire.planning.PlanRequest` describes them."""

    method: Literal["chain", "chain_curved", "greedy"]
    top: int

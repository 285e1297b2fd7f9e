"""Keyword arguments of calls, as types that both clients share; what is left out is not sent."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from turnwise.service.wire.fields import AggregationName, RerankerName
from turnwise.service.wire.ranking import Avoided, GivenCandidate, Goal


class AggregationOptions(TypedDict, total=False):
    """How the context folds up; what is left out says the model's card."""

    aggregation: AggregationName
    last_rows: int


class TurnOptions(AggregationOptions, total=False):
    """What `wire.sessions.TurnRequest` tells of each."""

    pool: str
    top_k: int
    rerank: RerankerName
    respond: bool
    explain: bool
    expected_turn: int


class RankOptions(AggregationOptions, total=False):
    """What `wire.ranking.RankRequest` tells of each; `candidates` or `pool` is needed."""

    candidates: Sequence[str | GivenCandidate]
    pool: str
    goals: Sequence[Goal]
    avoid: Sequence[Avoided]
    fit_weight: float
    rerank: RerankerName
    top_k: int
    explain: bool


class ScoresOptions(TypedDict, total=False):
    """What `wire.sessions.ScoresQuery` tells of each."""

    aggregation: Literal["mean", "last_rows"]
    last_rows: int
    pool: str


class PlanOptions(TypedDict, total=False):
    """What `wire.planning.PlanRequest` tells of each."""

    method: Literal["chain", "chain_curved", "greedy"]
    top: int

"""What only HTTP knows: bodies and answers, of the API and its client, that no use case does."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveInt

from turnwise.service.errors import FieldError, InvalidRequest
from turnwise.service.wire.catalogue import CandidateId, PoolInfo, Retrieval
from turnwise.service.wire.requests import Aggregated, Count, Name, Selected, Text, Value

NDJSON = "application/x-ndjson"
PROBLEM_JSON = "application/problem+json"
PROBLEM_PREFIX = "urn:turnwise:problem:"


class Problem(Value):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=[f"{PROBLEM_PREFIX}{InvalidRequest.slug}"])
    """Tells kinds of problems apart; programs should look at this, not at the title."""
    title: str = Field(examples=[InvalidRequest.title])
    status: int = Field(examples=[InvalidRequest.status])
    detail: str = Field(examples=["body.text: Field required"])
    """What went wrong this time, for people."""
    errors: tuple[FieldError, ...] = ()
    """Each field at fault, by its path: `["body", "candidates", 3, "text"]`."""
    request_id: str | None = None
    """The request's `X-Request-ID`, for the search through logs."""


class PoolRequest(Value):
    """What is said of a pool when it is created."""

    description: str = Field(default="", max_length=1000)
    encoder: Retrieval | None = None
    """What its candidates are encoded with, for good; left out, the default encoder."""


@dataclass(frozen=True, slots=True)
class UploadStep:
    """How far the service is with an upload."""

    encoded: int
    total: int


class PoolList(Value):
    """The pools of a namespace, by name."""

    pools: list[PoolInfo]


class SearchRequest(Value):
    """A text to which the pool's best replies are looked up."""

    text: Text
    top_k: Count = 5
    """Candidates to return."""


class SearchAnswer(Value):
    """Candidates by decreasing score."""

    candidates: list[Selected]


class ScoresQuery(Aggregated):
    """Which part of the running score matrix."""

    aggregation: Literal["mean", "last_rows"] | None = None
    """All rows, or the last ones; MaxSim has no running matrix."""
    last_rows: PositiveInt | None = None
    """How many rows `last_rows` sums."""
    pool: Name = "default"
    ids: list[CandidateId] = Field(min_length=1)
    """Candidates, a column each; given more than once: `ids=a&ids=b`."""


class Alive(Value):
    """The process answers."""

    alive: bool = True


class Ready(Value):
    """Every check passed."""

    ready: bool
    checks: dict[str, bool]


class ModelFacts(Value):
    """What the loaded model is, and where it runs."""

    name: str
    fingerprint: str
    kind: str
    dimension: int
    aggregation: str
    """How a context folds up where a request does not say, from the model's card."""
    runtime: str
    """What computes, in which arithmetic, on which device."""


class Version(Value):
    """What runs here, and every limit in force."""

    version: str
    python: str
    model: ModelFacts
    limits: dict[str, int | float]

"""What only HTTP knows: bodies and answers that are no values of the use cases."""

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from service.pools import PoolInfo
from service.requests import Aggregated, Count, Name, Selected, Text, Value

CandidateId = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,128}$")]


class PoolRequest(Value):
    """What is said of a pool when it is created."""

    description: str = Field(default="", max_length=1000)


class UploadedCandidate(Value):
    """A reply of a pool."""

    text: Text
    id: CandidateId | None = None
    """Derived from the text where left out, so that the same text comes in once."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Given back with the candidate; it plays no part in the score."""


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

"""The cascade: where the first stage is not sure, a re-ranker orders its first hits again.

The first stage scores the whole pool with one vector for each candidate. A re-ranker reads a
candidate together with the context, which orders better and takes longer. So it reads only the
first hits, and only where the confidence in the first one is low (Viola and Jones, 2001). Of the
k hits that it reads, the combined score is

    logit_i + weight · z_i,   z = (score - mean) / deviation

with the re-ranker's logit and the first stage's score in standard deviations of the scores of all
candidates (`models.confidence`). A hit that it does not read comes after all of these, as far below
the lowest of them as its z is below the lowest z that was read, times `weight`.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from turnwise.models.arrays import Float32, Float64
from turnwise.models.confidence import NARROWEST, Spread, Values, expit, logits
from turnwise.models.errors import ModelError

CONFIG = "config.json"
"""The configuration of a model's own re-ranker; the cascade is one of its fields."""
_FIELD = "cascade"


@dataclass(frozen=True, slots=True)
class RerankedCalibration:
    """The coefficients of the logit of the confidence after re-ranking, and the intercept.

    Attributes:
        before: Coefficient of the logit of the confidence of the first stage.
        logit: Coefficient of the re-ranker's logit for the candidate that is first now.
        margin: Coefficient of the distance of its combined score from that of the next answer.
        stayed: Added where the first candidate was the first before.
        offset: The intercept.
        fitted: Figures of the fit, for people.
    """

    before: float
    logit: float
    margin: float
    stayed: float
    offset: float
    fitted: dict[str, float] = field(default_factory=dict)

    def confidence(self, features: Float64) -> Float64:
        """Return the confidence of one answer (4,) of `reranked_features`, or of n (n, 4)."""
        weights = [self.before, self.logit, self.margin, self.stayed]
        return expit(features @ np.array(weights) + self.offset)


@dataclass(frozen=True, slots=True)
class Cascade:
    """The rule for when a re-ranker reads which hits, and how its logits count.

    Attributes:
        candidates: Hits that it reads, at least 2.
        weight: Weight of the standardised score of the first stage, at least 0.
        below: Confidence of the first stage below which it reads them.
        confidence: The calibration of the confidence after re-ranking.
    """

    candidates: int
    weight: float
    below: float
    confidence: RerankedCalibration

    def __post_init__(self) -> None:
        """Reject a cascade that could not order its hits (ValueError)."""
        if self.candidates < 2 or self.weight < 0:
            raise ValueError("a cascade needs at least 2 candidates and a weight of at least 0")


def read_cascade(folder: Path) -> Cascade:
    """Return the cascade in the configuration of a re-ranker.

    Raises:
        ModelError: It cannot be read.
    """
    try:
        fields = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return TypeAdapter(Cascade).validate_python(fields[_FIELD])
    except (OSError, ValueError, LookupError) as error:
        raise ModelError(f"'{folder / CONFIG}' describes no cascade: {error}") from error


def standardise_scores(scores: Float32 | Float64, spread: Spread) -> Float64:
    """Return scores (n,) of the first stage in standard deviations from the mean of all."""
    deviation = max(spread.deviation, NARROWEST)
    return (np.asarray(scores, np.float64) - spread.mean) / deviation


def combine_scores(read: Float32 | Float64, z: Float64, weight: float) -> Float64:
    """Return the scores (n,) of the hits of a search after the re-ranker read the first k.

    Args:
        read: (k,) the re-ranker's logits of the first hits, 1 ≤ k ≤ n.
        z: (n,) the standardised scores of all hits, best first.
        weight: Weight of z, at least 0.
    """
    k = len(read)
    combined = weight * z
    combined[:k] += read
    combined[k:] += combined[:k].min() - weight * z[:k].min()
    return combined


def reranked_features(
    before: Values, logit: Values, margin: Values, stayed: Values | bool
) -> Float64:
    """Return the features (4,) of a re-ranked answer or (n, 4) of n, in the coefficients' order.

    Args:
        before: The confidence of the first stage in the candidate that it had first.
        logit: The re-ranker's logit for the candidate that is first now.
        margin: Its combined score, minus that of the next candidate with another answer.
        stayed: Whether it was the first before.
    """
    columns = np.broadcast_arrays(logits(before), logit, margin, np.asarray(stayed, np.float64))
    return np.stack(columns, axis=-1)

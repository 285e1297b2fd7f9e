"""Fusion: the score of a candidate by its own text meets its score by its examples.

An example is an utterance of another speaker after which the candidate fits. The encoder reads
it as it reads the newest utterance of a turn, so that both compare by their cosine: the example
score s of a candidate is the largest cosine over its examples. Its reply score r = Q · a is defined
in `models.scores`. Either may be right: a reply may fit a question that nobody wrote down, and a
known question may have a reply that shares no word with it. So the fusion is a soft maximum of the
two, in standard deviations of the reply scores of the pool:

    z = (r - mean of r) / deviation of r                                     the reply
    h = example · s + height · (s - mean of s) / deviation of s + offset   the best example
    fused = softness · log(e^(z / softness) + e^(h / softness))

The mean and deviation of s are over all examples of the pool. The result comes in the units of r,
as r + deviation of r · softness · log(1 + e^((h - z) / softness)), which has three consequences:

- A candidate without examples keeps its reply score to the bit.
- An example never lowers the score of its candidate.
- A better match of an example never gives a lower score.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float64
from turnwise.models.confidence import Spread

NO_EXAMPLE = -np.inf
"""Example score of a candidate that has no examples."""
NARROWEST = 1e-6
"""Least standard deviation of scores: nothing is divided by zero."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """The coefficients of the fusion, in the model's card.

    Attributes:
        example: Of the cosine of the best example; at least 0.
        height: Of the standard deviations from the mean cosine to that one; at least 0.
        offset: Added to both.
        softness: Width of the soft maximum, above 0; near 0 the larger of the two counts alone.
        fitted: Figures of the fit, for people.
    """

    example: float
    height: float
    offset: float
    softness: float
    fitted: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject coefficients with which a better example could lower a score (ValueError)."""
        if self.example < 0 or self.height < 0 or self.softness <= 0:
            raise ValueError("a fusion needs example ≥ 0, height ≥ 0 and softness > 0")

    def evidence(self, examples: Float64, spread: Spread) -> Float64:
        """Return h (n,), what the example scores of candidates say; -inf for `NO_EXAMPLE`.

        Args:
            examples: (n,) the largest cosine of the newest utterance with a candidate's examples.
            spread: The cosines of the newest utterance with all examples of the pool.
        """
        height = (examples - spread.mean) / max(spread.deviation, NARROWEST)
        return np.asarray(self.example * examples + self.height * height + self.offset)

    def scores(
        self, replies: Float64, examples: Float64, of_replies: Spread, of_examples: Spread
    ) -> Float64:
        """Return the fused scores (n,) of n candidates, in the units of the reply scores.

        Args:
            replies: (n,) reply scores Q · a.
            examples: (n,) example scores; `NO_EXAMPLE` for a candidate without examples.
            of_replies: The reply scores of all candidates of the pool.
            of_examples: The cosines of the newest utterance with all examples of the pool.
        """
        deviation = max(of_replies.deviation, NARROWEST)
        reply = (replies - of_replies.mean) / deviation
        above = (self.evidence(examples, of_examples) - reply) / self.softness
        return np.asarray(replies + deviation * self.softness * np.logaddexp(0.0, above))

    def has_matched(
        self, replies: Float64, examples: Float64, of_replies: Spread, of_examples: Spread
    ) -> NDArray[np.bool_]:
        """Return whether the best example says more for each of n candidates than its reply.

        Arguments as in `scores`.
        """
        deviation = max(of_replies.deviation, NARROWEST)
        reply = (replies - of_replies.mean) / deviation
        return np.asarray(self.evidence(examples, of_examples) >= reply)


DEFAULT_FUSION = Fusion(example=3.6, height=1.2, offset=-3.4, softness=0.56)
"""The fusion of a model whose card has none: rounded coefficients of the shipped model."""

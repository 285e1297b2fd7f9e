"""Fusion: the score of a candidate by its own text meets its score by its examples.

An example is an utterance of another speaker after which the candidate fits. The encoder reads
it as it reads the newest utterance of a turn, so that both compare by their cosine in the space of
examples: the example score s of a candidate is the largest cosine over its examples. Its reply
score r = Q · a is defined in `models.scores`. Either may be right: a reply may fit a question that
nobody wrote down, and a known question may have a reply that shares no word with it. So the fusion
is a soft maximum of the two, in standard deviations of the reply scores of the pool:

    z = (r - mean of r) / deviation of r                                   the reply
    h = example · s + height · (s - mean of s) / deviation of s
        + agreement · z + utterances · log n + offset                      the best example
    fused = softness · log(e^(z / softness) + e^(h / softness))

The mean and deviation of s are over all examples of the pool. n is the number of utterances of the
context, at most `MOST_UTTERANCES`: in a longer conversation more utterances say little alone ("yes
please"), so `utterances` is below 0. Of two candidates whose examples match alike, the
one whose reply fits the context better comes first: the agreement. The result comes in the units of
r, as r + deviation of r · softness · log(1 + e^((h - z) / softness)), which has three consequences:

- A candidate without examples keeps its reply score to the bit.
- An example never lowers the score of its candidate.
- A better match of an example, or a better reply score, never gives a lower score.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float64
from turnwise.models.confidence import NARROWEST, Spread

Counts = int | NDArray[np.intp]
"""A count of one answer, or the counts of n answers."""
NO_EXAMPLE = -np.inf
"""Example score of a candidate that has no examples."""
MOST_UTTERANCES = 8
"""Most utterances of a context that count: the coefficients were fitted on no longer ones."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """The coefficients of the fusion, in the model's card.

    Attributes:
        example: Coefficient of the cosine of the best example; at least 0.
        height: Coefficient of the standard deviations from the mean cosine to that one; at least 0.
        offset: The intercept.
        softness: Width of the soft maximum, above 0; near 0 the larger of the two counts alone.
        agreement: Coefficient of the standardised reply score, in h; at least 0.
        utterances: Coefficient of log n, in h.
        fitted: Figures of the fit, for people.
    """

    example: float
    height: float
    offset: float
    softness: float
    agreement: float = 0.0
    utterances: float = 0.0
    fitted: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject coefficients with which a better match could lower a score (ValueError)."""
        if min(self.example, self.height, self.agreement) < 0 or self.softness <= 0:
            raise ValueError("a fusion needs example, height and agreement ≥ 0, and softness > 0")

    def scores(
        self,
        replies: Float64,
        examples: Float64,
        of_replies: Spread,
        of_examples: Spread,
        utterances: int = 1,
    ) -> Float64:
        """Return the fused scores (n,) of n candidates, in the units of the reply scores.

        Args:
            replies: (n,) reply scores Q · a.
            examples: (n,) example scores; `NO_EXAMPLE` for a candidate without examples.
            of_replies: The reply scores of all candidates of the pool.
            of_examples: The cosines of the newest utterance with all examples of the pool.
            utterances: Number of utterances of the context, at least 1.
        """
        excess = self._excess(replies, examples, of_replies, of_examples, utterances)
        scale = max(of_replies.deviation, NARROWEST) * self.softness
        return np.asarray(replies + scale * np.logaddexp(0.0, excess / self.softness))

    def has_matched(
        self,
        replies: Float64,
        examples: Float64,
        of_replies: Spread,
        of_examples: Spread,
        utterances: int = 1,
    ) -> NDArray[np.bool_]:
        """Return for each of n candidates whether its best example says more than its reply.

        Arguments as in `scores`.
        """
        return self._excess(replies, examples, of_replies, of_examples, utterances) >= 0

    def _excess(
        self,
        replies: Float64,
        examples: Float64,
        of_replies: Spread,
        of_examples: Spread,
        utterances: int,
    ) -> Float64:
        """Return h - z (n,): how much more the examples say than the replies."""
        reply = (replies - of_replies.mean) / max(of_replies.deviation, NARROWEST)
        matched = examples != NO_EXAMPLE
        cosine = np.where(matched, examples, 0.0)  # a coefficient of 0 times -inf has no value
        height = (cosine - of_examples.mean) / max(of_examples.deviation, NARROWEST)
        evidence = (
            self.example * cosine
            + self.height * height
            + self.agreement * reply
            + self.utterances * log_utterances(utterances)
            + self.offset
        )
        return np.where(matched, evidence - reply, -np.inf)


def log_utterances(utterances: Counts) -> Float64:
    """Return the logarithms of numbers of utterances, or of `MOST_UTTERANCES` if they are more."""
    return np.asarray(np.log(np.minimum(utterances, MOST_UTTERANCES)))


DEFAULT_FUSION = Fusion(
    example=3.2, height=0.72, offset=-2.2, softness=0.18, agreement=0.38, utterances=-0.48
)
"""The fusion of a model whose card has none: coefficients that an earlier shipped model had."""

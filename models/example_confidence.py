"""The confidence of an answer from a pool with examples.

A first candidate may owe its place to an example. `models.confidence` was fitted on replies alone:
there a first candidate of a large pool has to be far above the others to be a right one. An example
that is close to the newest utterance says so in a pool of any size, and says more, the fewer
utterances came before. So a logistic regression corrects the logit of the plain confidence:

    logit · plain + cosine · s + later · s · log n + candidates · log C + offset    with examples
    logit · plain + without + offset                                             without examples

s is the cosine of the newest utterance and the best example of the first candidate, n the number of
utterances of the context, at most `fusion.MOST_UTTERANCES`, and C the number of candidates. Which
line holds depends on the first candidate. Pools without examples need no correction.
"""

from dataclasses import dataclass, field

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.confidence import Values, expit, logits
from turnwise.models.fusion import NO_EXAMPLE, Counts, log_utterances


@dataclass(frozen=True, slots=True)
class ExampleCalibration:
    """The coefficients of the logit of the confidence, for pools with examples.

    Attributes:
        logit: Coefficient of the logit of the plain confidence.
        cosine: Coefficient of s.
        without: Term that replaces all terms of an example where the first candidate has none.
        offset: The intercept.
        later: Coefficient of s · log n.
        candidates: Coefficient of log C.
        fitted: Figures of the fit, for people.
    """

    logit: float
    cosine: float
    without: float
    offset: float
    later: float = 0.0
    candidates: float = 0.0
    fitted: dict[str, float] = field(default_factory=dict)

    def confidence(
        self, plain: Values, example: Values, candidates: Counts, utterances: Counts
    ) -> Float64:
        """Return the confidence of one answer, or (n,) of n answers.

        Args:
            plain: `Calibration.confidence` of the features of the fused scores.
            example: Example score of the first candidate; `fusion.NO_EXAMPLE` without examples.
            candidates: Number of candidates of the pool, or of those that match the filter.
            utterances: Number of utterances of the context, at least 1.
        """
        weights = [self.logit, self.cosine, self.without, self.later, self.candidates]
        columns = example_features(plain, example, candidates, utterances)
        return expit(columns @ np.array(weights) + self.offset)


def example_features(
    plain: Values, example: Values, candidates: Counts, utterances: Counts
) -> Float64:
    """Return (5,) of one answer or (n, 5) of n: what the coefficients but the offset multiply.

    Arguments as in `ExampleCalibration.confidence`.
    """
    has_examples = np.not_equal(example, NO_EXAMPLE)
    cosine = np.where(has_examples, example, 0.0)
    later = cosine * log_utterances(utterances)
    size = np.where(has_examples, np.log(candidates), 0.0)
    return np.stack([logits(plain), cosine, np.where(has_examples, 0.0, 1.0), later, size], axis=-1)

"""The confidence of an answer from a pool with examples.

A first candidate may owe its place to an example. Its fused score is then far above the reply
scores. `models.confidence` knows only replies, so its confidence needs a correction: a logistic
regression on its logit and on the cosine of the example. Pools without examples need none.
"""

from dataclasses import dataclass, field

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.confidence import Values, expit, logits


@dataclass(frozen=True, slots=True)
class ExampleCalibration:
    """The coefficients of the logit of the confidence, for pools with examples.

    Attributes:
        logit: Of the logit of the plain confidence.
        cosine: Of the cosine of the newest utterance and the first candidate's best example.
        without: In place of that product where the first candidate has no examples.
        offset: The intercept.
        fitted: Figures of the fit, for people.
    """

    logit: float
    cosine: float
    without: float
    offset: float
    fitted: dict[str, float] = field(default_factory=dict)

    def confidence(self, plain: Values, example: Values) -> Float64:
        """Return the confidence of one answer, or (n,) of n answers.

        Args:
            plain: `Calibration.confidence` of the features of the fused scores.
            example: Example score of the first candidate; `fusion.NO_EXAMPLE` without examples.
        """
        columns = example_features(plain, example)
        logit = columns @ np.array([self.logit, self.cosine, self.without]) + self.offset
        return expit(logit)


def example_features(plain: Values, example: Values) -> Float64:
    """Return the features (3,) of one answer or (n, 3) of n, as the coefficients are ordered."""
    matched = np.isfinite(example)
    cosine = np.where(matched, example, 0.0)
    return np.stack([logits(plain), cosine, np.where(matched, 0.0, 1.0)], axis=-1)

import numpy as np
import pytest

from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.fusion import NO_EXAMPLE

CALIBRATION = ExampleCalibration(
    logit=0.9, cosine=7.0, without=5.0, offset=-4.0, later=-1.5, candidates=0.3
)
MATCHED = (7.0 - 1.5 * np.log(4)) * 0.8 + 0.3 * np.log(500)


@pytest.mark.parametrize(("example", "part"), [(0.8, MATCHED), (NO_EXAMPLE, 5.0)])
def test_the_logit_is_that_of_a_naive_computation(example: float, part: float) -> None:
    logit = 0.9 * np.log(0.3 / 0.7) + part - 4.0
    confidence = CALIBRATION.confidence(0.3, example, candidates=500, utterances=4)
    assert confidence == pytest.approx(1 / (1 + np.exp(-logit)))


def test_many_answers_have_the_confidences_of_each() -> None:
    both = CALIBRATION.confidence(
        np.array([0.1, 0.9]), np.array([NO_EXAMPLE, 0.4]), np.array([20, 5_000]), np.array([1, 3])
    )
    first = CALIBRATION.confidence(0.1, NO_EXAMPLE, 20, 1)
    second = CALIBRATION.confidence(0.9, 0.4, 5_000, 3)
    assert both == pytest.approx([float(first), float(second)])

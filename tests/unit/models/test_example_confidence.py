import numpy as np
import pytest

from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.fusion import NO_EXAMPLE

CALIBRATION = ExampleCalibration(logit=0.9, cosine=7.0, without=5.0, offset=-4.0)


@pytest.mark.parametrize(("example", "part"), [(0.8, 7.0 * 0.8), (NO_EXAMPLE, 5.0)])
def test_the_logit_is_that_of_a_naive_computation(example: float, part: float) -> None:
    logit = 0.9 * np.log(0.3 / 0.7) + part - 4.0
    assert CALIBRATION.confidence(0.3, example) == pytest.approx(1 / (1 + np.exp(-logit)))


def test_many_answers_have_the_confidences_of_each() -> None:
    plain = np.array([0.1, 0.9])
    examples = np.array([NO_EXAMPLE, 0.4])
    each = [float(CALIBRATION.confidence(*pair)) for pair in zip(plain, examples, strict=True)]
    assert CALIBRATION.confidence(plain, examples) == pytest.approx(each)

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from turnwise.models.confidence import Spread
from turnwise.models.errors import ModelError
from turnwise.models.rerankers.cascade import (
    CONFIG,
    Cascade,
    RerankedCalibration,
    combine_scores,
    read_cascade,
    reranked_features,
    standardise_scores,
)

CALIBRATION = RerankedCalibration(before=0.5, logit=0.25, margin=0.125, stayed=1.0, offset=-2.0)
NUMBERS = st.floats(-20, 20, width=32)


@given(arrays(np.float64, 7, elements=NUMBERS), arrays(np.float64, 4, elements=NUMBERS))
def test_hits_that_were_read_are_above_the_others_which_keep_their_order(
    scores: np.ndarray, logits: np.ndarray
) -> None:
    z = np.sort(scores)[::-1]
    combined = combine_scores(logits, z, 0.5)
    assert combined[:4].tolist() == pytest.approx((logits + 0.5 * z[:4]).tolist())
    assert combined[4:].max() <= combined[:4].min()
    assert (np.diff(combined[4:]) <= 0).all()


def test_a_hit_that_was_not_read_is_as_far_below_as_the_first_stage_has_it() -> None:
    combined = combine_scores(np.array([1.0, 3.0]), np.array([4.0, 2.0, 1.5, -1.0]), 2.0)
    assert combined.tolist() == [9.0, 7.0, 6.0, 1.0]


def test_scores_are_standardised_over_all_candidates() -> None:
    assert standardise_scores(np.array([3.0, 1.0]), Spread(1.0, 4.0, 10)).tolist() == [0.5, 0.0]


def test_the_confidence_grows_with_all_features() -> None:
    features = reranked_features(np.array([0.5, 0.5]), np.array([2.0, 2.0]), 4.0, [True, False])
    confidence = CALIBRATION.confidence(features)
    logits = np.log(confidence) - np.log1p(-confidence)
    assert logits.tolist() == pytest.approx([0.0, -1.0])
    alone = CALIBRATION.confidence(reranked_features(0.5, 2.0, 4.0, stayed=True))
    assert alone == pytest.approx(confidence[0])


def test_a_cascade_is_read_from_the_configuration(tmp_path: Path) -> None:
    fields = {
        "candidates": 5,
        "weight": 0.5,
        "below": 0.75,
        "confidence": {"before": 0.5, "logit": 0.25, "margin": 0.125, "stayed": 1, "offset": -2},
    }
    (tmp_path / CONFIG).write_text(json.dumps({"model_type": "bert", "cascade": fields}))
    assert read_cascade(tmp_path) == Cascade(5, 0.5, 0.75, CALIBRATION)


@pytest.mark.parametrize("cascade", ["", '{"cascade": {"candidates": 1, "weight": 1}}', "{}"])
def test_a_configuration_without_a_cascade_is_named(tmp_path: Path, cascade: str) -> None:
    (tmp_path / CONFIG).write_text(cascade)
    with pytest.raises(ModelError, match=r"config\.json' describes no cascade"):
        read_cascade(tmp_path)


def test_a_cascade_of_one_candidate_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 2 candidates"):
        Cascade(1, 0.5, 0.75, CALIBRATION)

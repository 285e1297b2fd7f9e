import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from turnwise.models.evaluation import metrics
from turnwise.models.evaluation.metrics import (
    average_settings,
    hits,
    median_ms,
    ranks,
    retrieval_metrics,
    sample,
    spans,
)


@given(
    arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.integers(0, 3)),
    st.integers(0, 5),
)
def test_a_rank_counts_the_better_ones_and_half_of_the_equal_ones(
    scores: np.ndarray, column: int
) -> None:
    true = np.full(len(scores), column % scores.shape[1])
    expected = []
    for line, place in zip(scores, true, strict=True):
        rank = 1.0
        for other, score in enumerate(line):
            if other != place:
                rank += 1.0 if score > line[place] else 0.5 if score == line[place] else 0.0
        expected.append(rank)
    np.testing.assert_array_equal(ranks(scores, true), expected)


def test_a_score_that_is_no_number_ranks_last() -> None:
    scores = np.array([[np.nan, 0.5, 0.2], [0.1, np.nan, 0.2]], np.float32)
    assert ranks(scores, np.array([0, 1])).tolist() == [3.0, 3.0]
    assert ranks(scores, np.array([2, 0])).tolist() == [2.0, 2.0]


def test_hits_count_ranks_up_to_k_and_half_of_a_tie_for_it() -> None:
    assert hits(np.array([1.0, 1.5, 3.0, 9.0]), (1, 3)) == {"hits@1": 0.375, "hits@3": 0.75}


def test_retrieval_metrics_of_known_ranks() -> None:
    metrics = retrieval_metrics(np.array([1.0, 2.0, 6.0]), 11)
    expected = {
        "average_rank": 3.0,
        "normalised_rank": 0.2,
        "r@1": 1 / 3,
        "r@5": 2 / 3,
        "r@10": 1.0,
        "mrr": (1 + 1 / 2 + 1 / 6) / 3,
    }
    assert metrics == pytest.approx(expected)


def test_the_normalised_rank_of_a_lone_candidate_is_zero() -> None:
    assert retrieval_metrics(np.array([1.0]), 1)["normalised_rank"] == 0


def test_settings_weigh_the_same() -> None:
    metrics = average_settings({"h=2": {"mrr": 0.2}, "h=3": {"mrr": 0.4}})
    assert metrics == pytest.approx({"mrr": 0.3, "mrr/h=2": 0.2, "mrr/h=3": 0.4})


def test_a_sample_spans_all_places() -> None:
    assert sample(5) == [0, 1, 2, 3, 4]
    assert sample(100, 3) == [0, 49, 99]


def test_the_first_timed_call_warms_up() -> None:
    called: list[int] = []
    assert median_ms(called.append, [4, 7]) >= 0
    assert called == [4, 4, 7]


def test_spans_of_lengths_hold_each_context_once() -> None:
    lengths = np.array([0, 1, 2, 3, 4, 5, 8, 9, 40])
    found = spans(lengths)
    assert list(found) == [f"turns={span}" for span in ("0", "1", "2", "3-4", "5-8", "9+")]
    assert sum(those.astype(int) for those in found.values()).tolist() == [1] * 9
    assert lengths[found["turns=5-8"]].tolist() == [5, 8]


def test_spans_that_do_not_occur_are_left_out() -> None:
    assert list(spans(np.array([3, 3]))) == ["turns=3-4"]


def test_what_takes_long_is_timed_at_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ENOUGH", 0.0)
    worked: list[int] = []
    median_ms(worked.append, [4, 5, 6])
    assert worked == [4, 4]  # the first call warms up

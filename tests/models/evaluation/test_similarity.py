import logging
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from turnwise.models.data import Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.correlation import pearson, spearman
from turnwise.models.evaluation.in_context import measures
from turnwise.models.evaluation.similarity import evaluate_similarity, placed_texts
from turnwise.models.evaluation.similarity_files import Pair, Question, Said
from turnwise.models.evaluation.truncation import warn_of_truncation
from turnwise.models.roles import EncoderKind

Encoders = Callable[[EncoderKind], UtteranceEncoder]
WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


def pairs(count: int = 24, *, contexts: bool = True) -> list[Pair]:
    generator = np.random.default_rng(3)

    def text() -> str:
        return " ".join(generator.choice(WORDS, 3))

    made = []
    for number in range(count):
        said = tuple(Utterance("AB"[n % 2], text()) for n in range(number % 3 * contexts))
        first, second = (Said(said, "C", text()) for _ in range(2))
        score = float(generator.integers(6))
        made.append(Pair(first, second, score, ("home", "shop")[number % 2], f"f, line {number}"))
    return made


def test_correlations_are_those_of_the_measure(tiny_encoder: Encoders) -> None:
    encoder, given = tiny_encoder(EncoderKind.TRIPLE), pairs()
    rows = {row.system: row.metrics for row in evaluate_similarity({"t": encoder}, given)}
    names = [f"t · {measure.name}" for measure in measures(encoder)]
    assert list(rows) == ["word overlap", *names]
    for measure in measures(encoder):
        similar = measure.similar([p.first for p in given], [p.second for p in given])
        scores = np.array([pair.score for pair in given])
        home = np.array([pair.domain == "home" for pair in given])
        short = np.array([len(pair.first.context) == 1 for pair in given])
        found = rows[f"t · {measure.name}"]
        for name, those in {"": scores >= 0, "/domain=home": home, "/turns=1": short}.items():
            theirs = stats.pearsonr(similar[those], scores[those]).statistic
            assert found[f"pearson{name}"] == pytest.approx(theirs, abs=1e-4)
            theirs = stats.spearmanr(similar[those], scores[those]).statistic
            assert found[f"spearman{name}"] == pytest.approx(theirs, abs=1e-4)


def test_without_contexts_the_measures_that_would_read_them_are_left_out(
    tiny_encoder: Encoders,
) -> None:
    rows = evaluate_similarity({"t": tiny_encoder(EncoderKind.TRIPLE)}, pairs(contexts=False))
    assert [row.system for row in rows] == [
        "word overlap",
        "t · as candidates",
        "t · as utterances",
    ]


def test_a_domain_of_two_pairs_has_no_correlation() -> None:
    (overlap,) = evaluate_similarity({}, pairs(5))
    assert "pearson/domain=home" in overlap.metrics
    assert "pearson/domain=shop" not in overlap.metrics


def test_a_constant_has_no_correlation() -> None:
    assert pearson(np.ones(5), np.arange(5.0)) is None
    assert spearman(np.arange(5.0), np.ones(5)) is None
    assert pearson(np.arange(5.0), np.arange(5.0) * 3 - 1) == pytest.approx(1)


def test_spearman_sees_order_alone() -> None:
    x = np.array([0.1, 0.2, 0.4, 0.9])
    assert spearman(x, np.exp(9 * x)) == pytest.approx(1)
    assert spearman(x, -(x**3)) == pytest.approx(-1)


def test_texts_that_are_cut_are_said_with_their_place(
    tiny_encoder: Encoders, caplog: pytest.LogCaptureFixture
) -> None:
    long = Said((), "A", "x " * 200)
    said = Said((Utterance("A", "y " * 200),), "B", "short")
    items = [
        Pair(said, long, 1, "", "file, line 1"),
        Question(said, ("z " * 200,), 0, "", "file, line 2"),
    ]
    with caplog.at_level(logging.WARNING, "turnwise.evaluation"):
        for item in items:
            warn_of_truncation({"s": tiny_encoder(EncoderKind.SINGLE)}, placed_texts([item]))
    assert [record.getMessage() for record in caplog.records] == [
        'file, line 1, field "context": longer than s reads, and cut, as are 2 of 3 in all',
        'file, line 2, field "context": longer than s reads, and cut, as are 2 of 3 in all',
    ]

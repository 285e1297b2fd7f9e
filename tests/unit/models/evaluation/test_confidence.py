from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.confidence import Calibration, Spread, features
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.confidence import (
    Bank,
    FirstCandidates,
    Searches,
    confidence_metrics,
    evaluate_confidence,
    make_searches,
)
from turnwise.models.evaluation.metrics import Indices
from turnwise.models.roles import EncoderKind, Role
from turnwise.models.training.calibration import fit_calibration

MORE = [f"filler number {n}" for n in range(40)]
CALIBRATION = Calibration(0.5, 0.8, 1.0, -0.2, 0.1, -2.0)


@pytest.fixture
def encoder(tiny_encoder: Encoders) -> UtteranceEncoder:
    return tiny_encoder(EncoderKind.TRIPLE)


@pytest.fixture
def searches(encoder: UtteranceEncoder, dialogues: list[Dialogue]) -> Searches:
    bank = Bank.of(encoder, MORE, 30)
    return make_searches(encoder, dialogues, bank, contexts=20)


def test_pools_hold_own_texts_first_and_never_the_context(searches: Searches) -> None:
    rng = np.random.default_rng(0)
    for context, true in zip(searches.split.contexts, searches.split.true, strict=True):
        without = [searches.split.pool.index(text) for text in {*context.texts}]
        small = searches.draw(5, [*without, int(true)], rng)
        assert len({*small.tolist()}) == 5
        assert max(small) < searches.own
        everything = searches.draw(10_000, [*without, int(true)], rng)
        left = {*range(len(searches.split.pool))} - {*without, int(true)}
        assert {*everything.tolist()} == left


def test_answers_are_those_of_a_naive_search(
    searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[list[int]] = []
    draw = Searches.draw

    def noted(*given: Any) -> Indices:
        drawn = draw(*given)
        pools.append(drawn.tolist())
        return drawn

    monkeypatch.setattr(Searches, "draw", noted)
    answers = searches.run([20])
    place = {text: number for number, text in enumerate(searches.split.pool)}
    for number, context in enumerate(searches.split.contexts):
        query = searches.queries[number].astype(np.float64)
        scores = searches.vectors.astype(np.float64) @ query
        true = place[context.target.text]
        others = [scores[p] for p in pools[number]]
        with_reply = [*others[:-1], scores[true]]
        for row, candidates in ((2 * number, with_reply), (2 * number + 1, others)):
            second, first = sorted(candidates)[-2:]
            spread = Spread(np.mean(candidates), np.std(candidates), len(candidates))
            norm = float(np.linalg.norm(query))
            wanted = features(first, second, spread, norm, len(context.utterances))
            assert answers.features[row] == pytest.approx(wanted, rel=1e-3, abs=1e-3)
            there = row % 2 == 0
            assert answers.has_reply[row] == there
            assert answers.right[row] == (there and scores[true] > max(others[:-1]))


def test_pools_that_there_are_too_few_texts_for_are_one_of_the_largest_size(
    searches: Searches,
) -> None:
    answers = searches.run([5, 1_000, 10_000])
    longest = max(len({*c.texts, c.target.text}) for c in searches.split.contexts)
    whole = len(searches.split.pool) - longest
    assert np.exp(answers.features[:, 3]).round().astype(int).tolist() == answers.size.tolist()
    assert answers.size.tolist() == [5, 5, whole, whole] * len(searches.split.contexts)


def test_dialogues_that_begin_alike_are_apart(
    encoder: UtteranceEncoder, dialogues: list[Dialogue]
) -> None:
    hello = Utterance("C", "Hello")
    greeted = [Dialogue(d.id, (hello, *d.utterances)) for d in dialogues]
    found = make_searches(encoder, greeted, Bank.of(encoder, (), 0)).run([5])
    assert len(set(found.dialogue.tolist())) == len(dialogues)
    for chosen, measured in ((found.dialogue == 0, False), (found.dialogue < 3, True)):
        some = replace(found[chosen], right=np.arange(chosen.sum()) % 3 == 0)
        calibration = fit_calibration(some)
        assert calibration
        assert ("calibration_error" in calibration.fitted) == measured


def test_queries_are_those_of_the_card(encoder: UtteranceEncoder, searches: Searches) -> None:
    context = searches.split.contexts[3]
    first, second = (
        encoder.encode_in_roles(context.inputs(role)) for role in (Role.FIRST, Role.SECOND)
    )
    assert searches.queries[3] == pytest.approx(encoder.aggregation.query(first, second), abs=1e-5)


def test_joined_answers_keep_dialogues_apart(searches: Searches) -> None:
    one = searches.run([5])
    both = FirstCandidates.join([one, one])
    half = len(one.right)
    assert {*both.dialogue[:half]}.isdisjoint(both.dialogue[half:])
    assert both.features[half:] == pytest.approx(one.features)


def test_metrics_of_an_oracle() -> None:
    right = np.array([True, False, True, False])
    answers = FirstCandidates(
        np.where(right, 9.0, -9.0)[:, None] * [[1.0, 0, 0, 0, 0]],
        right,
        np.full(4, 5),
        right,
        np.arange(4),
    )
    metrics = confidence_metrics(Calibration(1, 0, 0, 0, 0, 0), answers)
    assert metrics["auroc"] == 1
    assert metrics["calibration_error"] < 1e-3
    assert metrics["right"] == metrics["risk/100%"] == 0.5
    assert metrics["risk/50%"] == 0
    assert metrics["risk"] == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)


def test_what_cannot_be_measured_is_named(
    encoder: UtteranceEncoder, dialogues: list[Dialogue], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TurnwiseError, match="model 'tiny' has no calibration"):
        next(evaluate_confidence({"tiny": encoder}, dialogues))
    monkeypatch.setattr(encoder, "calibration", CALIBRATION)
    alone = [Dialogue("1", (Utterance("A", "Hello"),))]
    with pytest.raises(TurnwiseError, match="no dialogue has two utterances"):
        next(evaluate_confidence({"tiny": encoder}, alone))
    short = [Dialogue("1", (Utterance("A", "Hello"), Utterance("B", "Hi")))]
    with pytest.raises(TurnwiseError, match="too few texts for a pool"):
        next(evaluate_confidence({"tiny": encoder}, short))

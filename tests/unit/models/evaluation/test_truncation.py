import logging
from collections.abc import Callable

import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.evaluation.truncation import (
    Located,
    Model,
    contexts_of,
    utterances_of,
    warn_of_truncation,
)
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.roles import EncoderKind

LONG = Dialogue("d", (Utterance("A", "a b"), Utterance("B", "c " * 200), Utterance("A", "d e")))
FULL = Dialogue("f", (Utterance("A", "a " * 60), Utterance("B", "b " * 70), Utterance("A", "c")))
REST = "and cut, as are"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[Model, Located, Located], list[str]]:
    """What is said of a model named m."""

    def warned(model: Model, texts: Located, histories: Located) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "turnwise.evaluation"):
            warn_of_truncation({"m": model}, texts, histories)
        return [record.getMessage() for record in caplog.records]

    return warned


def test_every_model_is_said_to_cut_what_it_cuts(
    tiny_encoder: Encoders,
    pairwise: PairwiseModel,
    ioi: IoI,
    said: Callable[[Model, Located, Located], list[str]],
) -> None:
    warning = f'x.csv, dialogue "d", utterance 2: longer than m reads, {REST} 1 of 3 in all'
    for model in (*map(tiny_encoder, EncoderKind), pairwise, ioi):
        assert said(model, utterances_of([LONG], "x.csv"), ()) == [warning]
        assert said(model, [("bread", "x.csv")], ()) == []


def test_a_plain_encoder_reads_whole_histories(
    tiny_encoder: Encoders, said: Callable[[Model, Located, Located], list[str]]
) -> None:
    texts = utterances_of([FULL], "x")
    histories = list(contexts_of([FULL], [1, 2, 3], "x"))
    place = 'x, dialogue "f", first 2 utterances'
    warning = f"{place}: longer than m · whole history reads, {REST} 1 of 2 in all"
    assert said(tiny_encoder(EncoderKind.SINGLE), texts, histories) == [warning]
    assert said(tiny_encoder(EncoderKind.TRIPLE), texts, histories) == []

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import ModelError
from turnwise.models.rerankers.pairs import Pair, PairReranker, PairTokens
from turnwise.models.roles import EncoderKind
from turnwise.models.training.cascade import ABSENT, ShortLists, fit_cascade, read_short_lists

SEARCHES = 400


def short_lists(signal: float) -> ShortLists:
    """Return lists whose logits say more about the true reply, the stronger the signal is."""
    rng = np.random.default_rng(0)
    true = rng.integers(-1, 10, SEARCHES)
    z = np.sort(rng.normal(3, 0.5, (SEARCHES, 10)))[:, ::-1]
    logits = rng.normal(0, 1, (SEARCHES, 10))
    logits[np.arange(SEARCHES)[true >= 0], true[true >= 0]] += signal
    before = np.where(true == 0, rng.uniform(0.4, 1, SEARCHES), rng.uniform(0, 0.5, SEARCHES))
    return ShortLists(z, logits, true, before, true >= 0, np.arange(SEARCHES) // 4)


def test_a_strong_re_ranker_decides_among_all_hits() -> None:
    cascade = fit_cascade(short_lists(signal=8.0))
    assert cascade
    assert cascade.candidates == 10
    assert cascade.weight < 1
    assert cascade.confidence.fitted["right"] > 0.9
    assert cascade.confidence.fitted["calibration_error"] < 0.05


def test_sure_answers_are_not_re_ranked() -> None:
    cascade = fit_cascade(short_lists(signal=8.0))
    assert cascade
    assert 0.3 < cascade.below <= 0.5
    assert cascade.confidence.fitted["share"] < 1


def test_a_re_ranker_that_finds_no_more_has_no_cascade() -> None:
    lists = short_lists(signal=0.0)
    assert fit_cascade(replace(lists, true=np.minimum(lists.true, 0))) is None


def test_a_first_stage_that_is_always_sure_has_no_cascade() -> None:
    lists = replace(short_lists(signal=8.0), before=np.full(SEARCHES, 0.9))
    assert fit_cascade(lists) is None


def test_a_shorter_list_may_lack_the_reply() -> None:
    lists = short_lists(signal=1.0)
    few = lists.first(5)
    assert few.z.shape == few.logits.shape == (SEARCHES, 5)
    assert (few.true[lists.true >= 5] == ABSENT).all()
    assert (few.true[lists.true < 5] == lists.true[lists.true < 5]).all()


class Lengths(PairReranker):
    """Scores a candidate by its length."""

    name = "lengths"
    runtime = "nothing"

    def __init__(self) -> None:
        super().__init__(marked=False)

    def tokenize(self, pairs: Sequence[Pair]) -> list[PairTokens]:
        return [PairTokens([len(candidate)], [0]) for _, candidate in pairs]

    def forward(self, tokens: list[PairTokens]) -> Float32:
        return np.array([each.ids for each in tokens], np.float32)


@pytest.fixture
def dialogues() -> list[Dialogue]:
    return [
        Dialogue(str(n), tuple(Utterance("AB"[t % 2], f"{n} {'x' * t} {t}") for t in range(6)))
        for n in range(6)
    ]


def test_the_lists_are_the_first_hits_of_a_search(
    tiny_encoder: Encoders, dialogues: list[Dialogue], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    monkeypatch.setattr(encoder, "calibration", Calibration(0.5, 0.8, 1.0, -0.2, 0.1, -2.0))
    lists = read_short_lists(encoder, Lengths(), [dialogues[:3], dialogues[3:]], 15, [12])
    assert lists.z.shape == (60, 10)
    assert (np.diff(lists.z, axis=1) <= 0).all()
    assert lists.has_reply.sum() == 30
    assert (lists.true[~lists.has_reply] == ABSENT).all()
    assert (lists.true[lists.has_reply] != ABSENT).any()
    assert len(np.unique(lists.dialogue)) == 6
    few = Dialogue("few", tuple(Utterance("AB"[t % 2], f"few {t}") for t in range(6)))
    shorter = read_short_lists(encoder, Lengths(), [dialogues, [few, replace(few, id="copy")]])
    assert shorter.z.shape[1] < 10


def test_an_encoder_without_a_calibration_has_no_cascade(
    tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    with pytest.raises(ModelError, match="has no calibration"):
        read_short_lists(tiny_encoder(EncoderKind.TRIPLE), Lengths(), [dialogues])

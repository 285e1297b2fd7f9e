from pathlib import Path

import numpy as np
import pytest

from tests.unit.models.training.conftest import write_dialogues
from turnwise.models.errors import DataError
from turnwise.models.training import similar
from turnwise.models.training.config import Similar, UtteranceCorpus
from turnwise.models.training.similar import SimilarUtterances, draw_utterances, find_nearest


def test_neighbours_are_those_of_a_plain_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "_AT_ONCE", 7)
    drawn = np.random.default_rng(0).normal(size=(30, 5))
    vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    for index, found in enumerate(find_nearest(vectors, 4)):
        order = np.argsort(-(vectors @ vectors[index]))
        wanted = [other for other in order if other != index][:4]
        assert set(found.tolist()) == set(wanted)


def test_a_step_has_distinct_utterances_with_near_ones_among_them() -> None:
    angles = np.repeat(np.arange(20), 7) + np.tile(np.arange(7) / 1000, 20)  # 20 groups of 7
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    texts = [f"{group} {n}" for group in range(20) for n in range(7)]
    drawn, taught = SimilarUtterances(texts, vectors, 12).draw(np.random.default_rng(0))
    assert len(set(drawn)) == len(drawn) == 12
    np.testing.assert_array_equal(taught, vectors[[texts.index(text) for text in drawn]])
    groups = [text.split()[0] for text in drawn]
    assert len(set(groups)) <= 4  # an utterance comes with three of its neighbours


def test_questions_of_one_speaker_come_first(tmp_path: Path) -> None:
    said = [
        [f"what is number {n}?", f"is it {n} then?", f"tell me number {n}", "no"] for n in range(9)
    ]
    path = str(write_dialogues(tmp_path / "d.jsonl", said))
    corpus = UtteranceCorpus(path=path, utterances=10, speaker="A")
    drawn = list(draw_utterances(corpus, Path, frozenset(), np.random.default_rng(0)))
    assert len(set(drawn)) == 10
    assert [text.endswith("?") for text in drawn] == [True] * 6 + [False] * 4
    assert not any(text.startswith("is it") for text in drawn)
    apart = {tuple(dialogue) for dialogue in said[1:]}
    left = set(draw_utterances(corpus, Path, apart, np.random.default_rng(0)))
    assert left == {"what is number 0?", "tell me number 0"}


@pytest.mark.parametrize(
    ("speaker", "message"),
    [("B", r"d\.jsonl: only 2 utterances of 3 to 30 words"), ("C", r"d\.jsonl: .* by 'C'")],
)
def test_too_few_utterances_are_reported(tmp_path: Path, speaker: str, message: str) -> None:
    said = [["Where is it?", f"It is in hall {n}.", "Thanks!", "Bye."] for n in range(2)]
    path = str(write_dialogues(tmp_path / "d.jsonl", said))
    corpus = UtteranceCorpus(path=path, speaker=speaker)
    with pytest.raises(DataError, match=message):
        SimilarUtterances.read(Similar(teacher="none", data=(corpus,)), Path, frozenset(), 0)

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import DataError
from turnwise.models.roles import EncoderKind
from turnwise.models.training.config import Validation
from turnwise.models.training.corpora import validation_dialogues
from turnwise.models.training.pairs import hard_negatives, pairs_of, read_pairs
from turnwise.models.training.reranker_config import PairCorpus

SAID = tuple(Utterance("AB"[n % 2], f"word {n}") for n in range(5))


def write(folder: Path, dialogues: list[list[str]]) -> str:
    path = folder / "dialogues.jsonl"
    lines = [
        {"utterances": [{"speaker": "AB"[n % 2], "text": text} for n, text in enumerate(texts)]}
        for texts in dialogues
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return str(path)


def test_each_utterance_answers_the_ones_before_it() -> None:
    pairs = pairs_of(Dialogue("d", SAID), turns=2)
    assert [pair.target for pair in pairs] == list(SAID[1:])
    assert [pair.utterances for pair in pairs] == [SAID[:1], SAID[:2], SAID[1:3], SAID[2:4]]


def test_nobody_answers_in_a_dialogue_of_one() -> None:
    assert pairs_of(Dialogue("d", SAID[:1]), turns=2) == []


def test_dialogues_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, [["a", "b"], ["c", "d"], ["e", "f"]])
    leaks = tmp_path / "leaks.json"
    leaks.write_text('{"exact": ["dialogues-2"]}')
    pairs = read_pairs(PairCorpus(path=path, leave_out=str(leaks)), Path, 3, lambda _: False)
    assert [pair.target.text for pair in pairs] == ["b", "f"]


@pytest.mark.parametrize("dialogues", [[["alone"]], [["a", "same"], ["b", "same"]]])
def test_a_corpus_without_a_wrong_response_is_refused(
    tmp_path: Path, dialogues: list[list[str]]
) -> None:
    with pytest.raises(DataError, match=r"dialogues\.jsonl"):
        read_pairs(PairCorpus(path=write(tmp_path, dialogues)), Path, 3, lambda _: False)


def test_texts_that_the_model_cuts_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, [["a", "b"], ["c", "dd", "ee"]])
    read_pairs(PairCorpus(path=path), Path, 3, lambda text: len(text) > 1)
    (warning,) = caplog.messages
    assert warning.startswith(f'{path}, dialogue "dialogues-2", utterance 2: ')
    assert "2 utterances in all" in warning


def test_validation_takes_the_head_of_each_file(tmp_path: Path) -> None:
    path = write(tmp_path, [["a", "b"], ["c", "d"], ["e", "f"]])
    files = validation_dialogues(Validation(paths=(path,), dialogues=2), Path, history=1)
    assert [d.utterances[0].text for d in files[path]] == ["a", "c"]


def test_validation_needs_a_dialogue_that_is_long_enough(tmp_path: Path) -> None:
    path = write(tmp_path, [["a", "b"], ["c"]])
    with pytest.raises(DataError, match=f"{path}: no dialogue in it is longer than 2"):
        validation_dialogues(Validation(paths=(path,)), Path, history=2)


@pytest.mark.parametrize("kind", [EncoderKind.TRIPLE, EncoderKind.SINGLE])
def test_hard_negatives_are_the_best_wrong_ones(
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder], kind: EncoderKind
) -> None:
    said = [Utterance("AB"[n % 2], text) for n, text in enumerate("abcdefgh")]
    pairs = pairs_of(Dialogue("d", tuple(said)), turns=3)
    all_of_them = hard_negatives(tiny_encoder(kind), pairs, among=100)
    two = hard_negatives(tiny_encoder(kind), pairs, among=2)
    for pair, found, best in zip(pairs, all_of_them, two, strict=True):
        assert sorted(found) == sorted(set("bcdefgh") - {pair.target.text})
        assert len(best) == 2
        assert set(best) < set(found)
    assert len(set(map(frozenset, two))) > 1

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.answers import (
    OUTSIDE,
    Answer,
    encode_answers,
    evaluate_answers,
    find_first_answers,
    read_answers,
)
from turnwise.models.fusion import DEFAULT_FUSION, NO_EXAMPLE
from turnwise.models.roles import EncoderKind
from turnwise.models.text_files import write_jsonl

ANSWERS = [
    Answer("rain", "winter rain", ("rain lamp", "lamp rain river", "river rain")),
    Answer("music", "music", ("garden music", "music letter", "letter garden music")),
    Answer("bread", "bread window", ("bread", "bread train", "train bread bread")),
]
OUTSIDE_ALL = ["window window"]


@pytest.fixture
def encoder(tiny_encoder: Encoders) -> UtteranceEncoder:
    return tiny_encoder(EncoderKind.TRIPLE)


def test_a_trial_asks_the_phrasings_that_are_no_examples(encoder: UtteranceEncoder) -> None:
    trial = encode_answers(encoder, ANSWERS, OUTSIDE_ALL).draw_trial(2, 1.0, seed=0)
    assert trial.right.tolist() == [0, 1, 2, OUTSIDE]
    assert {spread.candidates for spread in trial.of_examples} == {6}
    assert (trial.examples < 1 - 1e-6).all()


def test_partly_covered_pools_have_answers_without_examples(encoder: UtteranceEncoder) -> None:
    trial = encode_answers(encoder, ANSWERS).draw_trial(1, 0.34, seed=0)
    without = (trial.examples == NO_EXAMPLE).all(axis=0)
    assert without.sum() == 2
    scores = trial.scores(DEFAULT_FUSION)
    assert (scores[:, without] == trial.replies[:, without]).all()
    assert (scores[:, ~without] > trial.replies[:, ~without]).all()


def test_without_examples_the_reply_scores_decide(encoder: UtteranceEncoder) -> None:
    trial = encode_answers(encoder, ANSWERS, OUTSIDE_ALL).draw_trial(0, 1.0, seed=0)
    assert (trial.scores(DEFAULT_FUSION) == trial.replies).all()
    found = find_first_answers(trial, DEFAULT_FUSION)
    of_right = trial.replies[np.arange(9), trial.right[:9], None]
    assert found.rank.tolist() == [*(trial.replies[:9] >= of_right).sum(axis=1), 3]
    assert found.outside.tolist() == [False] * 9 + [True]


def test_an_answer_with_one_phrasing_leaves_nothing_to_ask(encoder: UtteranceEncoder) -> None:
    lonely = replace(ANSWERS[0], questions=("rain",))
    with pytest.raises(TurnwiseError, match="'rain' needs at least two examples"):
        list(evaluate_answers({"tiny": encoder}, [lonely, *ANSWERS[1:]], [], [1]))


def test_a_file_of_answers_takes_the_first_wording(tmp_path: Path) -> None:
    lines = [
        {"id": each.id, "texts": [each.text, "x"], "examples": list(each.questions)}
        for each in ANSWERS
    ]
    write_jsonl(tmp_path / "answers.jsonl", lines)
    assert read_answers([tmp_path / "answers.jsonl"]) == ANSWERS
    write_jsonl(tmp_path / "answers.jsonl", lines[:1])
    with pytest.raises(DataError, match="fewer than two answers"):
        read_answers([tmp_path / "answers.jsonl"])

from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from tests.unit.models.conftest import Encoders, Folder
from turnwise.models.arrays import Float64
from turnwise.models.card import read_card, update_card
from turnwise.models.confidence import Calibration
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder.example_space import ExampleSpace, load_example_space
from turnwise.models.errors import DataError
from turnwise.models.evaluation.answers import Answer, Contexts, EncodedAnswers
from turnwise.models.evaluation.dialogue_answers import EncodedDialogueAnswers, find_answers
from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.fusion import DEFAULT_FUSION, NO_EXAMPLE, Fusion
from turnwise.models.roles import EncoderKind
from turnwise.models.text_files import write_jsonl
from turnwise.models.training.config import EncoderConfig
from turnwise.models.training.corpora import finder
from turnwise.models.training.fusion import (
    calibrate_examples,
    draw_trials,
    enlarge_pools,
    fit_examples,
    fit_fusion,
    keep_examples,
    negative_log_likelihood,
    read_pool,
    standardise_trial,
)

CALIBRATION = Calibration(0.5, 0.8, 1.0, -0.2, 0.1, -2.0)
ANSWERS = [
    [
        Answer("rain", "winter rain", ("rain lamp", "lamp rain river", "river rain")),
        Answer("music", "music", ("garden music", "music letter", "letter garden music")),
    ],
    [
        Answer("bread", "bread window", ("bread", "bread train", "train bread bread")),
        Answer("river", "river garden", ("river", "river lamp", "lamp river garden")),
    ],
]
REPLIES = {"rain": "winter rain", "music": "music letter", "bread": "bread window"}
DIALOGUES = [
    Dialogue(
        str(number),
        (
            Utterance("A", "lamp"),
            Utterance("B", f"river {number}"),
            Utterance("A", f"{asked} lamp" if number % 2 else asked),
            Utterance("B", reply),
        ),
    )
    for number in range(20)
    for asked, reply in REPLIES.items()
]


def units(rng: np.random.Generator, *shape: int) -> Float64:
    vectors = rng.standard_normal((*shape, 16))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def pool_of(noise: float) -> EncodedAnswers:
    """Six answers whose questions lie around a point, and whose replies lie elsewhere."""
    rng = np.random.default_rng(0)
    questions = units(rng, 6)[:, None] + noise * units(rng, 6, 8)
    questions /= np.linalg.norm(questions, axis=-1, keepdims=True)
    replies = units(rng, 6).astype(np.float32)
    asked = np.stack([questions, questions], axis=2).astype(np.float32)
    return EncodedAnswers(replies, tuple(asked), np.empty((0, 2, 16), np.float32))


def dialogues_of(noise: float) -> EncodedDialogueAnswers:
    """Six recurring replies; the newest utterance of a context is near their examples."""
    pool = pool_of(noise)
    rng = np.random.default_rng(1)
    newest = np.concatenate([questions[:2, 1] for questions in pool.questions])
    contexts = Contexts(
        queries=(2 * units(rng, 12)).astype(np.float32),
        newest=newest,
        utterances=np.arange(2, 14),
        left_out=np.eye(12, 6, k=1, dtype=np.bool_),
        right=np.repeat(np.arange(6), 2),
    )
    examples = tuple(questions[2:, 1] for questions in pool.questions)
    return EncodedDialogueAnswers(pool.replies, contexts, examples)


POOLS = [pool_of(0.8), dialogues_of(0.8)]
W = np.array([3.0, 1.0, -2.0, 0.3, -0.4, 0.6, 1.2])
"""Example, height, offset, agreement, utterances, softness and sharpness."""
FUSION = Fusion(example=3.0, height=1.0, offset=-2.0, softness=0.6, agreement=0.3, utterances=-0.4)


def test_a_larger_pool_has_more_candidates_and_the_same_right_ones() -> None:
    trial = pool_of(0.5).draw_trial(2, 0.5, seed=0)
    bank = units(np.random.default_rng(2), 600).astype(np.float32)
    own, larger = enlarge_pools(trial, bank)
    assert (own.replies == trial.replies).all()
    assert larger.replies[:, :6] == pytest.approx(trial.replies)
    assert larger.replies[:, 6:] == pytest.approx(trial.contexts.queries @ bank[:500].T)
    assert (larger.examples[:, 6:] == NO_EXAMPLE).all()
    assert {spread.candidates for spread in larger.of_replies} == {506}
    assert (larger.right == trial.right).all()


@pytest.mark.parametrize("pool", POOLS)
def test_the_gradient_is_that_of_finite_differences(
    pool: EncodedAnswers | EncodedDialogueAnswers,
) -> None:
    trial = standardise_trial(pool.draw_trial(2, 0.5, seed=1))
    _, gradient = negative_log_likelihood(W, trial)
    for index, step in enumerate(np.eye(7) * 1e-6):
        up, down = (negative_log_likelihood(W + sign * step, trial)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-6, abs=1e-5)


@pytest.mark.parametrize("pool", POOLS)
def test_the_loss_is_that_of_fused_scores(pool: EncodedAnswers | EncodedDialogueAnswers) -> None:
    drawn = pool.draw_trial(2, 0.5, seed=1)
    loss, _ = negative_log_likelihood(W, standardise_trial(drawn))
    fused = drawn.scores(FUSION)
    deviations = np.array([spread.deviation for spread in drawn.of_replies])
    likelihood = np.exp(1.2 * fused / deviations[:, None])
    right = likelihood[np.arange(len(fused)), drawn.right] / likelihood.sum(axis=1)
    assert loss == pytest.approx(-np.log(right).mean())


def test_where_replies_say_nothing_examples_decide() -> None:
    pool = pool_of(0.5)
    fusion = fit_fusion([[draw_trials(pool)]])
    trial = pool.draw_trial(3, 1.0, seed=9)
    assert (trial.scores(fusion).argmax(axis=1) == trial.right).mean() > 0.9


def test_the_fusion_and_the_confidence_are_fitted_on_questions_and_dialogues(
    tiny_encoder: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    monkeypatch.setattr(encoder, "calibration", None)
    fusion, nothing = fit_examples(encoder, ANSWERS, ["window window"])
    assert nothing is None
    monkeypatch.setattr(encoder, "calibration", CALIBRATION)
    dialogues = [find_answers(DIALOGUES)]
    both, calibration = fit_examples(encoder, ANSWERS, ["window window"], dialogues)
    assert both != fusion
    assert calibration is not None
    assert 0 < calibration.confidence(0.5, 0.9, 20, 1) < 1


def test_a_run_writes_both_into_the_card(tiny_encoder_folder: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    copytree(tiny_encoder_folder(EncoderKind.TRIPLE), folder)
    update_card(folder, "confidence", CALIBRATION)
    for name, answers in zip("ab", ANSWERS, strict=True):
        lines = [
            {"id": each.id, "texts": [each.text], "examples": each.questions} for each in answers
        ]
        write_jsonl(tmp_path / f"{name}.jsonl", lines)
    write_jsonl(tmp_path / "dialogues.jsonl", map(asdict, DIALOGUES))
    files = ["dialogues.jsonl"]
    answers = {"pools": ["a.jsonl", "b.jsonl"], "dialogues": files, "others": files}
    calibrate_examples(folder, config_of(answers), finder([tmp_path]))
    card = read_card(folder)
    assert card.fusion != DEFAULT_FUSION
    assert card.example_confidence is not None


def test_a_pool_whose_answers_have_one_example_each_is_reported(tmp_path: Path) -> None:
    records = [{"id": n, "texts": [f"reply {n}"], "examples": [f"question {n}"]} for n in "ab"]
    write_jsonl(tmp_path / "pool.jsonl", records)
    with pytest.raises(DataError, match=r"pool\.jsonl: no answer has two examples"):
        read_pool(tmp_path / "pool.jsonl")


def test_a_model_trained_further_keeps_what_its_base_knows_about_examples(
    tiny_encoder_folder: Folder, tmp_path: Path
) -> None:
    base, folder = tmp_path / "base", tmp_path / "model"
    for copy in (base, folder):
        copytree(tiny_encoder_folder(EncoderKind.TRIPLE), copy)
    before = read_card(folder)
    keep_examples(folder, str(base))  # it has none
    assert read_card(folder) == before
    assert load_example_space(folder) is None
    ExampleSpace(np.zeros(32, np.float32), np.eye(32, dtype=np.float32)).save(base)
    fusion = replace(DEFAULT_FUSION, offset=-9.0)
    calibration = ExampleCalibration(logit=1.0, cosine=2.0, without=3.0, offset=4.0)
    update_card(base, "fusion", fusion)
    update_card(base, "example_confidence", calibration)
    keep_examples(folder, str(base))
    assert load_example_space(folder) is not None
    card = read_card(folder)
    assert (card.fusion, card.example_confidence) == (fusion, calibration)


def config_of(answers: dict[str, list[str]]) -> EncoderConfig:
    fields = {
        "kind": "triple",
        "base": "base",
        "data": [{"path": "corpus.jsonl"}],
        "objectives": {"running_query": 1},
        "precision": "float32",
        "answers": answers,
    }
    return EncoderConfig.model_validate(fields)

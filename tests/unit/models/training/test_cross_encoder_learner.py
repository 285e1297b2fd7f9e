import re
import shutil
from pathlib import Path

import pytest
import torch

from tests.support.rerankers import CASCADE
from tests.unit.models.conftest import Folder
from turnwise.models.card import OWN_RERANKER, update_card
from turnwise.models.confidence import Calibration
from turnwise.models.encoder.torch import UtteranceEncoder, transformer_of
from turnwise.models.errors import ModelError
from turnwise.models.rerankers import pack
from turnwise.models.rerankers.cascade import read_cascade
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.pack import unpack
from turnwise.models.roles import EncoderKind
from turnwise.models.text_files import write_jsonl
from turnwise.models.training import cascade
from turnwise.models.training.cascade import add_reranker
from turnwise.models.training.config import CrossEncoderConfig, MinimalPairs
from turnwise.models.training.learners.cross_encoder import (
    CrossEncoderLearner,
    as_speech,
    read_minimal_lists,
)
from turnwise.models.training.run import train_stages
from turnwise.models.training.trainer import silent


@pytest.fixture
def config(cross_encoder_config: CrossEncoderConfig) -> CrossEncoderConfig:
    return cross_encoder_config


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    asked = {"speaker": "bot", "text": "Shall I?"}
    lines = [
        {
            "kind": "yes_no",
            "context": [asked],
            "answers": ["yes", "no"],
            "replies": [f"done {n}", f"left {n}"],
        }
        for n in range(3)
    ]
    write_jsonl(path, lines)
    return path


def test_a_new_network_starts_with_layers_of_the_base_and_keeps_its_word_vectors(
    config: CrossEncoderConfig,
) -> None:
    base = transformer_of(UtteranceEncoder(config.base).model)
    network = CrossEncoderLearner(config, Path).model.network
    body = network.base_model
    for name in ("embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight"):
        assert torch.equal(body.state_dict()[name], base.state_dict()[name])
    assert len(body.encoder.layer) == 1
    assert len(body.embeddings.position_embeddings.weight) == 32
    frozen = [name for name, p in network.named_parameters() if not p.requires_grad]
    assert [name for name in frozen if "word_embeddings" in name] == frozen


@pytest.mark.parametrize(
    ("values", "message"),
    [({"layers": (0, 99)}, "has no layer 99"), ({"pieces": 9999}, "at most, not 9999")],
)
def test_what_the_base_lacks_is_an_error(
    config: CrossEncoderConfig, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        CrossEncoderLearner(config.model_copy(update=values), Path)


def test_each_context_of_a_minimal_pair_has_both_replies(pairs: Path) -> None:
    source = MinimalPairs(paths=(str(pairs),))
    examples = read_minimal_lists(source, Path, seed=0)
    assert len(examples) == 6
    for example in examples:
        (right,) = (c for c, label in zip(example.candidates, example.labels, strict=True) if label)
        word = "done" if example.context[-1].text == "yes" else "left"
        assert re.match(word, right)
        assert len(set(example.candidates)) >= 2
        assert "Shall I?" in example.candidates


def test_minimal_pairs_join_the_corpora(config: CrossEncoderConfig, pairs: Path) -> None:
    source = MinimalPairs(paths=(str(pairs),), pairs=2)
    learner = CrossEncoderLearner(config.model_copy(update={"minimal_pairs": source}), Path)
    lists = [example for batch in learner.batches(0) for example in batch]
    assert sum("Shall I?" in example.candidates for example in lists) == 4
    assert learner.counts[-1] == 6


@pytest.mark.parametrize(
    ("text", "spoken"), [("Yes, please!", "yes please"), ("It is 5:30.", "it is 530"), ("?!", "?!")]
)
def test_speech_has_no_capitals_and_marks(text: str, spoken: str) -> None:
    assert as_speech(text) == spoken


@pytest.mark.train
def test_a_run_writes_the_base_with_its_re_ranker(
    tiny_encoder_folder: Folder,
    config: CrossEncoderConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cascade, "fit_cascade", lambda _: CASCADE)  # it learns too little for one
    monkeypatch.setattr(pack, "export_graph", lambda *_, **__: None)  # which takes seconds
    base = tmp_path / "base"
    shutil.copytree(tiny_encoder_folder(EncoderKind.HEADS), base)
    update_card(base, "confidence", Calibration(0.5, 0.8, 1.0, -0.2, 0.1, -2.0))
    once = config.model_copy(update={"base": str(base), "epochs": 1})
    train_stages([once], tmp_path / "run", find=Path, resume=False, report=silent)
    served = tmp_path / "run" / "served"
    trained = CrossEncoder(tmp_path / "run" / "model")
    unpack(served, tmp_path / "unpacked")
    models = (trained, CrossEncoder(tmp_path / "unpacked"))
    pair = trained.pair(["[O] a z"], "a y")
    logits = [model.forward(model.tokenize([pair])) for model in models]
    assert logits[1] == pytest.approx(logits[0], abs=0.5)
    assert read_cascade(served / OWN_RERANKER) == CASCADE


def test_a_base_without_a_confidence_gets_no_cascade(
    config: CrossEncoderConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_reranker(tmp_path / "trained", config, Path, tmp_path / "served")
    assert "no cascade is fitted" in caplog.text
    assert not (tmp_path / "served").exists()

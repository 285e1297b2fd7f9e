"""A model's own re-ranker: what is packed is what both graphs and torch compute."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer, BertForSequenceClassification

from tests.support.processor import needs_vnni
from tests.support.rerankers import CASCADE, save_classifier_over
from tests.unit.models.conftest import Folder
from turnwise.models.arrays import Float32
from turnwise.models.card import OWN_RERANKER
from turnwise.models.encoder import eight_bits
from turnwise.models.errors import ModelError
from turnwise.models.rerankers import own
from turnwise.models.rerankers import pack as pack_module
from turnwise.models.rerankers.cascade import CONFIG, read_cascade
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.own import WEIGHTS, OwnReranker
from turnwise.models.rerankers.pack import pack, unpack
from turnwise.models.roles import EncoderKind

PAIRS = [
    ("[O] Where is it?", "Let me see."),
    ("[O] Hello [E] Hello! What is it? [O] It is late.", "Which one do you mean?"),
    ("[O] no", "ok"),
    ("[O] " + "a very long one " * 9, "a long reply " * 9),
]

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def model(with_reranker: Path) -> Path:
    return with_reranker


@pytest.fixture(scope="module")
def in_float32(model: Path) -> OwnReranker:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own, "multiplies_bytes", lambda: False)
        return OwnReranker(model)


def trained_scores(model: Path) -> Float32:
    """The logits of the classifier before it was packed."""
    folder = model.parent / "classifier"
    classifier = BertForSequenceClassification.from_pretrained(folder).eval()
    tokens = AutoTokenizer.from_pretrained(folder)(PAIRS[:3], padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits: Float32 = classifier(**tokens).logits[:, 0].numpy()
    return logits


def scores(reranker: OwnReranker | CrossEncoder) -> Float32:
    return reranker.forward(reranker.tokenize(PAIRS))[:, 0]


def test_rounding_changes_the_logits_of_the_classifier_little(
    model: Path, in_float32: OwnReranker
) -> None:
    wanted = trained_scores(model)
    assert scores(in_float32)[:3] == pytest.approx(wanted, abs=0.25 * float(np.ptp(wanted)))


def test_torch_computes_what_the_graph_does(
    model: Path, in_float32: OwnReranker, tmp_path: Path
) -> None:
    unpack(model, tmp_path / "unpacked")
    in_torch = CrossEncoder(tmp_path / "unpacked", device="cpu")
    tokens = in_torch.tokenize(PAIRS)
    assert in_float32.tokenize(PAIRS) == tokens
    assert max(map(len, tokens)) == 64
    assert scores(in_float32) == pytest.approx(scores(in_torch), abs=1e-5)
    assert in_float32.runtime == "onnxruntime float32 on cpu"


@needs_vnni
def test_products_of_8_bits_change_the_logits_little(model: Path, in_float32: OwnReranker) -> None:
    wanted = scores(in_float32)
    in_8_bits = OwnReranker(model)
    assert in_8_bits.runtime == "onnxruntime 8 bits on cpu"
    assert scores(in_8_bits) == pytest.approx(wanted, abs=0.25 * float(np.ptp(wanted)))


def test_a_classifier_that_was_trained_for_8_bits_keeps_its_scales(
    tiny_encoder_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_module, "export_graph", lambda *_, **__: None)  # which takes seconds
    encoder = tiny_encoder_folder(EncoderKind.HEADS)
    trained = save_classifier_over(encoder, tmp_path / "trained")
    network = BertForSequenceClassification.from_pretrained(trained)
    ids = torch.tensor([[2, 7, 9, 3]])
    eight_bits.simulate(network, lambda: network(ids))
    eight_bits.save(network, trained)
    model = Path(shutil.copytree(encoder, tmp_path / "model"))
    pack(trained, model, CASCADE, PAIRS[:1])
    stored = load_file(model / OWN_RERANKER / WEIGHTS)
    wanted = eight_bits.scales_of(network)
    assert wanted
    for name, scale in wanted.items():
        assert stored[name].tolist() == scale.tolist()


def test_the_cascade_is_in_its_configuration(model: Path) -> None:
    assert read_cascade(model / OWN_RERANKER) == CASCADE


def test_other_word_vectors_are_rejected(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "multiplies_bytes", lambda: False)
    other = Path(shutil.copytree(model, tmp_path / "other"))
    weights = load_file(other / WEIGHTS)
    weights[own.WORD_VECTORS] = weights[own.WORD_VECTORS][::-1].copy()
    save_file(weights, other / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="it is the re-ranker of another model, or damaged"):
        OwnReranker(other)
    with pytest.raises(ModelError, match="has other word vectors than model"):
        pack(model.parent / "classifier", other, CASCADE, PAIRS)


@pytest.mark.parametrize("file", ["model.onnx", WEIGHTS, CONFIG])
def test_a_file_that_is_damaged_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(own, "multiplies_bytes", lambda: False)
    damaged = Path(shutil.copytree(model, tmp_path / "model"))
    (damaged / OWN_RERANKER / file).write_text(json.dumps({}))
    with pytest.raises(ModelError, match=r"^model '.*/model': reranker/model\.onnx cannot be used"):
        OwnReranker(damaged)

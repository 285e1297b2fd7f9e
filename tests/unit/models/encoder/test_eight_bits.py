"""An encoder in 8 bits: what torch simulates is what the graph computes."""

import shutil
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.support.processor import needs_vnni
from tests.unit.models.conftest import Folder
from turnwise.models.encoder import eight_bits, export
from turnwise.models.encoder import onnx as onnx_module
from turnwise.models.encoder.eight_bits import (
    EightBitLinear,
    matrices,
    round_weights,
    simulate,
    simulate_with,
)
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE
from turnwise.models.encoder.onnx import EIGHT_BITS_FILE, FILE, OnnxEncoder
from turnwise.models.encoder.torch import UtteranceEncoder, transformer_of
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText
from turnwise.models.training.checkpoint import save_encoder
from turnwise.service.cli.models.card import card

TEXTS = ["good evening", "two rooms please", "a very long reply " * 12, "", "ok"]
ITEMS = [RoleText(text, Role.SECOND, Relation.OTHER) for text in TEXTS]


@pytest.fixture(scope="module")
def simulated(tiny_encoder_folder: Folder) -> UtteranceEncoder:
    """A tiny encoder whose weights have the values that they have in 8 bits."""
    encoder = UtteranceEncoder(tiny_encoder_folder(EncoderKind.HEADS), device="cpu")
    for _, linear in matrices(transformer_of(encoder.model)):
        linear.weight.data *= 20  # or the layers would hardly change their inputs
    transformer = transformer_of(encoder.model)
    simulate(transformer, lambda: [encoder.forward([ids]) for ids in encoder.tokenize(ITEMS)])
    round_weights(transformer)
    return encoder


@pytest.fixture(scope="module")
def folder(
    simulated: UtteranceEncoder,
    tiny_encoder_folder: Folder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The same encoder as training keeps it, with its graphs and its card."""
    folder = tmp_path_factory.mktemp("eight") / "model"
    shutil.copytree(tiny_encoder_folder(EncoderKind.HEADS), folder)
    save_encoder(simulated, folder)
    eight_bits.save(transformer_of(simulated.model), folder)
    card(str(folder))
    return folder


@given(st.integers(0, 10_000), st.floats(0.05, 20.0))
def test_a_matrix_multiplies_integers(seed: int, width: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, width, (4, 6))
    w = rng.normal(size=(3, 6))
    bias = rng.normal(size=3)
    smooth = rng.uniform(0.1, 4.0, 6)
    step = rng.uniform(0.01, 0.1)
    zero = int(rng.integers(256))
    linear = nn.Linear(6, 3)
    linear.weight.data = torch.tensor(w).float()
    linear.bias.data = torch.tensor(bias).float()
    scales = (torch.tensor(smooth).float(), torch.tensor(step).float(), torch.tensor(zero).int())
    EightBitLinear.convert(linear, *scales)
    got = linear(torch.tensor(x).float()).detach().numpy()
    inputs = x / (smooth * step)
    steps = np.abs(w * smooth).max(1, keepdims=True) / 127
    weights = w * smooth / steps
    integers = np.clip(np.rint(inputs) + zero, 0, 255) - zero
    wanted = step * steps.T * (integers @ np.rint(weights).T) + bias
    # Float32 may round a number that is halfway between two integers to the other one.
    halfway = min(np.abs(values % 1 - 0.5).min() for values in (inputs, weights))
    assert halfway < 1e-4 or got == pytest.approx(wanted, rel=1e-5, abs=1e-4)


def test_the_gradient_passes_through_the_rounding(simulated: UtteranceEncoder) -> None:
    model = deepcopy(simulated.model)
    features = model.tokenize(TEXTS[:2])
    model(features)["sentence_embedding"].sum().backward()
    for name, linear in matrices(transformer_of(model)):
        assert linear.weight.grad is not None, name
        assert linear.weight.grad.abs().max() > 0 or name.endswith("key"), name


def test_rounded_weights_stay_as_they_are(simulated: UtteranceEncoder) -> None:
    once = dict(matrices(transformer_of(simulated.model)))
    again = deepcopy(transformer_of(simulated.model)).half().float()
    round_weights(again)
    for name, linear in matrices(again):
        assert torch.allclose(linear.weight, once[name].weight, rtol=2e-3, atol=1e-6), name
    twice = deepcopy(again)
    round_weights(twice)
    for name, linear in matrices(twice):
        assert torch.allclose(linear.weight, dict(matrices(again))[name].weight, atol=1e-6), name


def test_scales_are_those_of_the_folder(simulated: UtteranceEncoder, folder: Path) -> None:
    read = UtteranceEncoder(folder, device="cpu")
    before = read.encode_in_roles(ITEMS)
    simulate_with(transformer_of(read.model), folder / SCALES_FILE)
    assert read.encode_in_roles(ITEMS) == pytest.approx(simulated.encode_in_roles(ITEMS), abs=2e-2)
    assert np.abs(read.encode_in_roles(ITEMS) - before).max() > 1e-5


def test_the_products_of_a_layer_are_of_integers(folder: Path) -> None:
    # Those of attention too, but the exporter folds them in so small a model: see test_default.py.
    graph = onnx.load(folder / EIGHT_BITS_FILE, load_external_data=False).graph
    operators = [node.op_type for node in graph.node]
    layers = 2  # of the tiny model
    assert operators.count("MatMulIntegerToFloat") == 2 * layers
    assert operators.count("MatMul") == layers  # the one that narrows a layer
    arrays = sum(array.ByteSize() for array in graph.initializer)
    assert arrays < 40_000, "the matrices are in model.safetensors"


@needs_vnni
def test_the_graph_computes_what_torch_simulates(folder: Path) -> None:
    read = UtteranceEncoder(folder, device="cpu")
    served = OnnxEncoder(folder)
    assert served.runtime == "onnxruntime 8 bits on cpu"
    tokens = served.tokenize(ITEMS)
    plain = read.forward(tokens)
    simulate_with(transformer_of(read.model), folder / SCALES_FILE)
    for name, linear in matrices(transformer_of(read.model)):
        if ".self." in name:  # folded, so that the graph computes it in float32
            linear.__class__ = nn.Linear
    together = served.forward(tokens)
    alone = np.concatenate([served.forward([ids]) for ids in tokens])
    assert together == pytest.approx(alone, abs=1e-6)
    wanted = read.forward(tokens)
    assert np.abs(together - wanted).mean() < 0.3 * np.abs(together - plain).mean()


def test_other_processors_compute_in_float32(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_module, "multiplies_bytes", lambda: False)
    served = OnnxEncoder(folder)
    assert served.runtime == "onnxruntime float32 on cpu"
    wanted = UtteranceEncoder(folder, device="cpu").forward(served.tokenize(ITEMS))
    assert served.forward(served.tokenize(ITEMS)) == pytest.approx(wanted, abs=1e-5)


def test_a_model_without_scales_has_one_graph(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    converted = SimpleNamespace(model_proto=onnx.load(folder / FILE))
    monkeypatch.setattr(export, "convert", lambda *_: converted)  # which takes seconds
    (copy / "eight_bits.safetensors").unlink()
    card(str(copy))
    assert ((copy / FILE).exists(), (copy / EIGHT_BITS_FILE).exists()) == (True, False)

import logging
import shutil
import warnings
from collections import Counter
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling

from tests.unit.models.conftest import Encoders, Folder
from turnwise.models.cores import usable_cores
from turnwise.models.encoder import export as export_module
from turnwise.models.encoder import torch as encoder_module
from turnwise.models.encoder.export import VERSION, export
from turnwise.models.encoder.onnx import FILE, OnnxForward
from turnwise.models.encoder.torch import UnitVectors, UtteranceEncoder
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText

TEXTS = ["good evening", "two rooms please", "a very long reply " * 12, "", "ok"]

IN_TORCH = "torch float32 on cpu"


def pieces(encoder: UtteranceEncoder, texts: list[str] = TEXTS) -> list[list[int]]:
    return encoder.tokenize([RoleText(text, Role.SECOND, Relation.OTHER) for text in texts])


def serve(folder: Path, cache: Path) -> UtteranceEncoder:
    return UtteranceEncoder.for_serving(folder, device="cpu", cache=cache)


def forbid_export(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("exported again")

    monkeypatch.setattr(export_module, "export", fail)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("abc de", max_size=60), min_size=1, max_size=9))
def test_vectors_are_those_of_torch(
    served_encoder: UtteranceEncoder, tiny_encoder: Encoders, texts: list[str]
) -> None:
    got = served_encoder.forward(pieces(served_encoder, texts))
    wanted = tiny_encoder(EncoderKind.TRIPLE).encode(texts, Role.SECOND, Relation.OTHER)
    assert got.dtype == np.float32
    assert got == pytest.approx(wanted, abs=1e-5)


def test_a_served_encoder_encodes_in_its_runtime(
    served_encoder: UtteranceEncoder, tiny_encoder: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tiny_encoder(EncoderKind.TRIPLE)
    monkeypatch.setattr(encoder_module.TorchForward, "__call__", lambda *_: np.zeros((1, 32)))
    got = served_encoder.encode(TEXTS, Role.SECOND, Relation.OTHER)
    monkeypatch.undo()
    assert (served_encoder.runtime, plain.runtime) == ("onnxruntime float32 on cpu", IN_TORCH)
    assert got == pytest.approx(plain.encode(TEXTS, Role.SECOND, Relation.OTHER), abs=1e-5)
    assert served_encoder.fingerprint == plain.fingerprint


def test_attention_is_one_operator_and_normalization_is_not(
    served_encoder: UtteranceEncoder, onnx_cache: Path
) -> None:
    (file,) = onnx_cache.glob(f"{served_encoder.fingerprint}-*/{FILE}")
    nodes = onnx.load(file, load_external_data=False).graph.node
    operators = Counter(node.op_type for node in nodes)
    layers = 2  # of the tiny model
    assert operators["Attention"] == operators["BiasGelu"] == layers
    assert operators["LayerNormalization"] == 1 + 2 * layers
    assert operators["SkipLayerNormalization"] == 0  # slower than its parts
    assert operators["MatMul"] == 3 * layers  # those of query, key and value are in Attention
    assert "Softmax" not in operators


def test_a_model_is_exported_once(
    served_encoder: UtteranceEncoder,
    tiny_encoder_folder: Folder,
    onnx_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forbid_export(monkeypatch)
    again = serve(tiny_encoder_folder(EncoderKind.TRIPLE), onnx_cache)
    assert again.runtime == served_encoder.runtime


def test_other_pooling_and_a_dense_layer_are_exported_and_nothing_is_said(
    tiny_encoder: Encoders,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    transformer = deepcopy(tiny_encoder(EncoderKind.SINGLE).model[0])
    del transformer.auto_model.encoder.layer[1:]  # one layer is exported sooner
    pooling = Pooling(32, pooling_mode="cls")
    torch.manual_seed(0)
    model = SentenceTransformer(modules=[transformer, pooling, Dense(32, 16)], device="cpu").eval()
    wanted = UtteranceEncoder(model)
    tokens = pieces(wanted)
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "onnxscript")
    with warnings.catch_warnings(record=True, action="always") as caught:
        export(UnitVectors(model), tmp_path / "model")
        got = OnnxForward(tmp_path / "model" / FILE, model.tokenizer.pad_token_id)(tokens)
    assert got.shape == (len(TEXTS), 16)
    assert got == pytest.approx(wanted.forward(tokens), abs=1e-5)
    assert not caught
    assert not [said for said in caplog.records if "onnx" in said.name]
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("onnxscript").level == logging.DEBUG


class Program:
    """What is exported, without the time that it takes."""

    def save(self, file: Path, **_: object) -> None:
        file.write_bytes(b"ours")


def convert_to(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    monkeypatch.setattr(export_module, "convert", lambda *_: program)


def test_what_another_process_exported_meanwhile_stays(
    tiny_encoder: Encoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_to(monkeypatch, Program())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / FILE).write_bytes(b"theirs")
    export(UnitVectors(tiny_encoder(EncoderKind.TRIPLE).model), folder)
    assert (folder / FILE).read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.fixture
def exported(served_encoder: UtteranceEncoder, onnx_cache: Path, tmp_path: Path) -> Path:
    """A copy of an exported model, to be damaged."""
    name = f"{served_encoder.fingerprint}-{VERSION}"
    return Path(shutil.copytree(onnx_cache / name, tmp_path / name))


def test_what_is_damaged_is_not_used(
    exported: Path, tiny_encoder_folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    (exported / FILE).write_bytes(b"half")
    encoder = serve(tiny_encoder_folder(EncoderKind.TRIPLE), exported.parent)
    assert (encoder.runtime, "runs in torch" in caplog.text) == (IN_TORCH, True)


def test_what_computes_something_else_is_not_used(
    exported: Path, tiny_encoder_folder: Folder, tiny_encoder: Encoders
) -> None:
    other = tiny_encoder(EncoderKind.CURVED)
    exported.rename(exported.with_name(f"{other.fingerprint}-{VERSION}"))
    encoder = serve(tiny_encoder_folder(EncoderKind.CURVED), exported.parent)
    assert encoder.runtime == IN_TORCH
    wanted = other.encode(TEXTS, Role.SECOND, Relation.OTHER)
    assert encoder.forward(pieces(encoder)) == pytest.approx(wanted, abs=1e-5)


def test_a_model_that_cannot_be_exported_runs_in_torch(
    tiny_encoder_folder: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise torch.onnx.OnnxExporterError("no such operator")

    monkeypatch.setattr(export_module, "export", refuse)
    assert serve(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path).runtime == IN_TORCH
    assert "no such operator" in caplog.text


@pytest.mark.parametrize(
    ("asked", "cores"), [(None, 8), ("3", 3), ("64", 8), ("0", 1), ("many", 8)]
)
def test_threads_are_no_more_than_there_are_cores_or_than_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, cores: int
) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usable_cores() == cores

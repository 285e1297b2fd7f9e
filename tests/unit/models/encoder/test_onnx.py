"""An encoder from the files that `turnwise card` completes."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from turnwise.models.card import CARD
from turnwise.models.encoder.onnx import FILE, OnnxEncoder
from turnwise.models.encoder.stated import TOKENIZER
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import Relation, Role, RoleText

WEIGHTS = "model.safetensors"
TEXTS = (
    "good evening",
    "a very long reply " * 20,
    "an endless word " * 9 + "a" * 99 + "!" * 999,
    "",
)
ITEMS = [RoleText(text, role, Relation.SAME) for role in Role for text in TEXTS]


@pytest.fixture
def damaged(with_graph: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(with_graph, tmp_path / "model"))


def test_a_failure_is_raised_and_not_printed(
    with_graph: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    served = OnnxEncoder(with_graph)
    with pytest.raises(Exception, match="indices element out of data bounds"):
        served.forward([[10**6]])
    assert capfd.readouterr().err == ""


def test_vectors_are_those_of_torch(with_graph: Path) -> None:
    folder = with_graph
    whole = UtteranceEncoder(folder, device="cpu")
    served = OnnxEncoder(folder)
    tokens = served.tokenize(ITEMS)
    assert tokens == whole.tokenize(ITEMS)
    assert [*map(served.is_too_long, ITEMS)] == [*map(whole.is_too_long, ITEMS)]
    read = [*map(served.prefixed, ITEMS)]
    assert served.tokenize(read) == whole.tokenize(read)
    got = served.in_roles(served.forward(tokens), ITEMS)
    assert got == pytest.approx(whole.encode_in_roles(ITEMS), abs=1e-5)
    for name in ("name", "kind", "dimension", "fingerprint", "aggregation", "calibration"):
        assert getattr(served, name) == getattr(whole, name)


@pytest.mark.parametrize("file", [FILE, TOKENIZER, WEIGHTS, CARD])
def test_a_file_that_is_damaged_is_named_as_the_model_s(damaged: Path, file: str) -> None:
    (damaged / file).write_bytes(b"{")
    with pytest.raises(ModelError, match=r"^model '.*/model': \S+ (cannot be used|is no)"):
        OnnxEncoder(damaged)


def test_other_weights_than_the_card_s_are_rejected(damaged: Path) -> None:
    weights = load_file(damaged / WEIGHTS)
    (name,) = (name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name] = np.flip(weights[name], 0).copy()
    save_file(weights, damaged / WEIGHTS)
    with pytest.raises(ModelError, match="write both with `turnwise card`"):
        OnnxEncoder(damaged)

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.models.card import update_card
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.onnx import OnnxEncoder
from turnwise.models.roles import EncoderKind
from turnwise.models.training import run
from turnwise.service.cli import app


def test_an_unwritable_folder_is_rejected_before_training(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "below"):
        result = CliRunner().invoke(app, ["train", "nowhere.toml", "--out", str(out)])
        assert result.exit_code == 2, result.output
        assert "folder" in result.output


def train(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the command, as if a training had left this model."""
    monkeypatch.setattr(run, "run", lambda *_, **__: model)
    result = CliRunner().invoke(app, ["train", "recipe.toml", "--out", str(model.parent)])
    assert result.exit_code == 0, result.output
    assert "best model in" in result.output


@pytest.mark.train
def test_a_trained_encoder_can_be_served_without_torch(
    tiny_encoder_folder: Callable[[EncoderKind], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Path(shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / "model"))
    facts = UtteranceEncoder(model, device="cpu").facts
    update_card(model, "encoder", facts)
    train(model, monkeypatch)
    assert OnnxEncoder(model).fingerprint == facts.fingerprint


def test_a_trained_reranker_has_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reranker.json").write_text(json.dumps({"kind": "ioi"}))
    train(tmp_path, monkeypatch)
    assert [file.name for file in tmp_path.iterdir()] == ["reranker.json"]

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from torch.onnx import OnnxExporterError
from typer.testing import CliRunner

from turnwise.models.card import CARD
from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind
from turnwise.models.training import run
from turnwise.service.cli.main import app


def test_an_unwritable_folder_is_rejected_before_training(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "below"):
        result = CliRunner().invoke(app, ["train", "nowhere.toml", "--out", str(out)])
        assert result.exit_code == 2, result.output
        assert "folder" in result.output


def train(model: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the command, as if a training had left this model; return its warnings."""
    monkeypatch.setattr(run, "run", lambda *_, **__: model)
    result = CliRunner().invoke(app, ["train", "recipe.toml", "--out", str(model.parent)])
    assert result.exit_code == 0, result.output
    assert "best model in" in result.output
    return result.stderr


@pytest.fixture
def trained(tiny_encoder_folder: Callable[[EncoderKind], Path], tmp_path: Path) -> Path:
    """The folder of an encoder with a card, which every training writes."""
    folder = tmp_path / "trained"
    copytree(tiny_encoder_folder(EncoderKind.TRIPLE), folder)
    (folder / CARD).write_text('{"aggregation": {"name": "mean"}}', encoding="utf-8")
    return folder


def test_a_trained_encoder_gets_its_graph(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph as `turnwise card` writes it; `models/encoder/test_onnx.py` tries such graphs."""
    written: list[tuple[str, Path]] = []

    def write(encoder: UtteranceEncoder, folder: Path) -> None:
        written.append((encoder.name, folder))

    monkeypatch.setattr(UtteranceEncoder, "write_graph", write)
    train(trained, monkeypatch)
    assert written == [(trained.name, trained)]


def test_an_encoder_without_a_graph_is_kept_and_the_reason_is_one_line(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OnnxExporterError("no operator for this\nand a long trace")

    monkeypatch.setattr(UtteranceEncoder, "write_graph", fail)
    said = train(trained, monkeypatch)
    assert said == "it has no graph, so that a service needs torch for it: no operator for this\n"


def test_a_trained_reranker_has_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reranker.json").write_text(json.dumps({"kind": "ioi"}))
    train(tmp_path, monkeypatch)
    assert [file.name for file in tmp_path.iterdir()] == ["reranker.json"]


def test_files_to_train_on_may_have_any_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}

    def train(*_: object, **options: object) -> Path:
        given.update(options)
        return tmp_path

    monkeypatch.setattr(run, "run", train)
    options = ["--dialogue", "Fall", "--speaker", "Wer", "--text", "Was", "--encoding", "cp1252"]
    command = ["train", "recipe.toml", "--data", "t.csv", *options, "--out", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert given["form"] == DialogueFormat("Fall", "Wer", "Was", "cp1252")

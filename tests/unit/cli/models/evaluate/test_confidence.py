import json
import shutil
from dataclasses import asdict
from pathlib import Path

from typer.testing import CliRunner

from turnwise.models.card import CARD
from turnwise.models.confidence import Calibration
from turnwise.models.scores import Aggregation
from turnwise.service.cli.main import app


def test_confidence_writes_a_table_and_a_picture(data: Path, triple: str, tmp_path: Path) -> None:
    model = tmp_path / "calibrated"
    out = tmp_path / "out"
    shutil.copytree(triple, model)
    calibration = Calibration(0.5, 0.8, 1.0, -0.2, 0.1, -2.0)
    card = {"aggregation": asdict(Aggregation()), "confidence": asdict(calibration)}
    (model / CARD).write_text(json.dumps(card))
    options = ["--data", data, "--pool", data, "--size", 5, 20, "--contexts", 12]
    words = [*options, "--model", model, "--out", out]
    result = CliRunner().invoke(app, ["evaluate", "confidence", *map(str, words)])
    assert result.exit_code == 0, result.output
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert len(rows) == 9
    assert rows[0]["system"] == "calibrated · all sizes"
    assert {"auroc", "calibration_error", "risk", "risk/50%"} <= rows[0]["metrics"].keys()
    assert "calibration error" in result.output
    assert (out / "risk.png").is_file()


def test_a_model_without_a_calibration_is_named(data: Path, triple: str) -> None:
    words = ["evaluate", "confidence", "--data", str(data), "--model", triple]
    result = CliRunner().invoke(app, words)
    assert "has no calibration" in str(result.exception)

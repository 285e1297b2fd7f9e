from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnwise.models.roles import EncoderKind
from turnwise.service.cli import app

Folders = Callable[[EncoderKind], Path]
Results = Callable[[Path], dict[str, Any]]
run = CliRunner().invoke


def test_long_term_takes_settings(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    model = ["--model", str(tiny_encoder_folder(EncoderKind.SINGLE)), "--base", ""]
    args = ["evaluate", "long-term", "--data", str(data), "--setting", "3,1,0", "3,2,1"]
    assert run(app, [*args, *model, "--out", str(tmp_path)]).exit_code == 0
    metrics = results(tmp_path)["rows"][0]["metrics"]
    assert {"hits@1/h=3 d=1 f=0", "hits@1/h=3 d=2 f=1"} <= metrics.keys()


def test_options_take_many_values(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    more = data.with_name("more.jsonl")
    more.write_text(data.read_text())
    models = [str(tiny_encoder_folder(kind)) for kind in (EncoderKind.CURVED, EncoderKind.SINGLE)]
    args = ["evaluate", "long-term", "--data", str(data), str(more), "--model", *models]
    result = run(app, [*args, "--base", "", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    written = results(tmp_path / "out")
    assert written["data"] == [str(data), str(more)]
    chains = [name for name in written["systems"] if name.endswith(" · chain")]
    assert chains == ["BM25 · chain", "tiny-curved · chain", "tiny-single · chain"]


def test_two_models_of_one_name_are_told_apart(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    folder = tiny_encoder_folder(EncoderKind.CURVED)
    other = tmp_path / folder.name
    other.symlink_to(folder)
    args = ["evaluate", "long-term", "--data", str(data), "--model", str(folder), str(other)]
    result = run(app, [*args, "--base", "", "--out", str(tmp_path / "out"), "--limit", "2"])
    assert result.exit_code == 0, result.output
    chains = [n for n in results(tmp_path / "out")["systems"] if n.endswith(" · chain")]
    assert chains == ["BM25 · chain", "tiny-curved · chain", f"{other} · chain"]


@pytest.mark.parametrize("setting", ["2,2", "a,b,c", "0,2,1"])
def test_a_bad_setting_is_refused(data: Path, setting: str) -> None:
    result = run(app, ["evaluate", "long-term", "--data", str(data), "--setting", setting])
    assert result.exit_code == 2
    assert setting in result.output

from pathlib import Path

from typer.testing import CliRunner

from turnwise.service.cli import app


def test_an_unwritable_folder_is_rejected_before_training(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "below"):
        result = CliRunner().invoke(app, ["train", "nowhere.toml", "--out", str(out)])
        assert result.exit_code == 2, result.output
        assert "folder" in result.output

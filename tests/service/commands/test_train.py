from pathlib import Path

from typer.testing import CliRunner

from turnwise.service.cli import app


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "below"):
        result = CliRunner().invoke(app, ["train", "nowhere.toml", "--out", str(out)])
        assert result.exit_code == 2, result.output
        assert "folder" in result.output

from pathlib import Path

from typer.testing import CliRunner

from turnwise.service.cli.main import app


def test_answers_may_be_any_file_of_candidates(triple: str, tmp_path: Path) -> None:
    rows = ["bread?,bread.,shop", "bread bread?,bread.,shop", "rain?,rain.,", "rain rain?,rain.,"]
    rows += ["bread lamp?,more bread.,shop", ",music.,"]
    (tmp_path / "a.csv").write_text("\n".join(["Question,Answer,Group", *rows]))
    (tmp_path / "o.txt").write_text("lamp\n")
    files = ["--data", tmp_path / "a.csv", "--outside", tmp_path / "o.txt", "--examples", 1]
    command = ["evaluate", "answers", *files, "--model", triple, "--out", tmp_path]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 0, result.output
    made = (tmp_path / "results.md").read_text()
    assert "2 answers, 1 question outside" in made
    assert "Nobody asks for 1 other with fewer than two examples." in made

from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.rerankers import save_tiny_pairwise
from turnwise.models.roles import EncoderKind
from turnwise.service.cli import app

Folders = Callable[[EncoderKind], Path]
Results = Callable[[Path], dict[str, Any]]
run = CliRunner().invoke


def test_next_utterance_writes_and_prints_the_table(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    triple, single = (
        str(tiny_encoder_folder(kind)) for kind in (EncoderKind.TRIPLE, EncoderKind.SINGLE)
    )
    args = ["evaluate", "next-utterance", "--data", str(data), "--out", str(tmp_path / "out")]
    result = run(app, [*args, "--model", triple, "--base", single])
    assert result.exit_code == 0, result.output
    assert "BM25" in result.output
    written = results(tmp_path / "out")
    assert written["task"] == "next-utterance"
    assert written["data"] == [str(data)]
    assert "base · mean of the context" in written["systems"]
    assert "tiny-triple · last 2 rows" in written["systems"]
    assert (tmp_path / "out" / "average_rank.png").is_file()


def test_next_utterance_takes_a_pairwise_model(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    folder = save_tiny_pairwise(tmp_path / "pairs", tiny_encoder_folder(EncoderKind.SINGLE))
    args = ["evaluate", "next-utterance", "--data", str(data), "--out", str(tmp_path / "out")]
    result = run(app, [*args, "--model", str(folder), "--base", ""])
    assert result.exit_code == 0, result.output
    assert results(tmp_path / "out")["systems"] == ["random", "BM25", "pairs · pairwise"]

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.rerankers import tiny_ioi
from turnwise.models.errors import DataError
from turnwise.service.cli.main import app

EXAMPLES = Path(__file__).parents[5] / "examples"
run = CliRunner().invoke


def test_a_network_without_vectors_is_rejected(tmp_path: Path) -> None:
    tiny_ioi().save(tmp_path / "net")
    file = str(EXAMPLES / "similarity.en.jsonl")
    models = ["--model", str(tmp_path / "net"), "--base", ""]
    result = run(app, ["evaluate", "similarity", "--data", file, *models])
    assert result.exit_code == 2
    assert "net" in result.output


@pytest.mark.parametrize("scores", [(1, 2), (3, 3, 3)])
def test_scores_that_nothing_correlates_with_are_rejected(
    tmp_path: Path, scores: tuple[int, ...]
) -> None:
    path = tmp_path / "pairs.jsonl"
    pair = {"context": [], "sentence1": "rain", "sentence2": "bread"}
    path.write_text("\n".join(json.dumps(pair | {"score": score}) for score in scores))
    args = ["evaluate", "similarity", "--data", str(path), "--out", str(tmp_path / "out")]
    result = run(app, args)
    assert isinstance(result.exception, DataError)
    assert str(path) in str(result.exception)

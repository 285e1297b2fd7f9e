import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from turnwise.models.evaluation.systems import SHORT_LIST
from turnwise.service.app import wiring
from turnwise.service.cli.main import app

run = CliRunner().invoke


def test_a_file_that_was_built_can_be_ranked(
    data: Path, tmp_path: Path, single: str, evaluate: Callable[..., Any]
) -> None:
    built = tmp_path / "built.jsonl"
    chosen = ["--negatives", "random", "same-dialogue", "--candidates", "4", "--replies", "2"]
    result = run(
        app,
        ["evaluate", "build-ranking", "--data", str(data), *chosen, "--out", str(built)],
    )
    assert "12 contexts written" in result.output
    assert all(len(json.loads(line)["candidates"]) == 4 for line in built.read_text().splitlines())
    written = evaluate("ranking", "--data", built, "--model", single)
    assert "r_4@1" in written.json["rows"][0]["metrics"]


def test_bad_data_is_named_before_a_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "r10.jsonl"
    path.write_text(json.dumps({"context": [], "candidates": ["a"], "labels": [1]}))
    result = run(app, ["evaluate", "ranking", "--data", str(path), "--model", "nowhere"])
    assert result.exit_code == 1
    assert 'line 1, field "context"' in str(result.exception)


def test_the_short_list_is_as_long_as_the_service_s() -> None:
    assert wiring.SHORT_LIST == SHORT_LIST

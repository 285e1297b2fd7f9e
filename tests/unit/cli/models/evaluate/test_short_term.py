import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.models.evaluate.test_similarity import (
    language_model_folder,  # noqa: F401 - a fixture
)
from turnwise.models.evaluation import language_model


def test_saved_candidates_give_the_same_results(
    data: Path, tmp_path: Path, triple: str, single: str, evaluate: Callable[..., Any]
) -> None:
    saved = tmp_path / "saved.jsonl"
    chosen = ["--history", "2", "5", "--distance", "1", "2", "--retriever", single]
    one = evaluate(
        "short-term", "--data", data, "--model", triple, *chosen, "--save-candidates", saved
    )
    two = evaluate("short-term", "--candidates", saved, "--model", triple)
    assert two.json["data"] == [str(saved)]
    assert one.systems == two.systems
    for row, again in zip(one.json["rows"], two.json["rows"], strict=True):
        assert row["metrics"] == pytest.approx(again["metrics"])


def test_the_retriever_decides_on_the_candidates_whatever_is_measured(
    data: Path, tmp_path: Path, triple: str, single: str, evaluate: Callable[..., Any]
) -> None:
    saved = []
    for base in ("", single):
        file = tmp_path / "saved.jsonl"
        args = ["--data", data, "--history", "2", "--distance", "1", "--model", triple]
        args += ["--retriever", triple, "--save-candidates", file]
        written = evaluate("short-term", *args, base=base)
        assert written.json["note"] == f"Candidates were retrieved by {triple}."
        saved.append(file.read_text())
    assert saved[0] == saved[1]


def test_a_warning_names_the_place_of_a_candidate_that_is_cut(
    tmp_path: Path, triple: str, evaluate: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "examples.jsonl"
    example = {"context": ["rain"], "candidates": ["lamp", "river " * 70], "true": "bread"}
    path.write_text(json.dumps(example | {"goal": "train", "goal_distance": 1}))
    evaluate("short-term", "--candidates", path, "--model", triple)
    (warning,) = (r.getMessage() for r in caplog.records if r.name == "turnwise.evaluation")
    place = f'{path}, example 1, field "candidates"'
    assert warning == f"{place}: longer than tiny-triple reads, and cut, as are 1 of 5 in all"


def test_a_language_model_writes_the_candidates(
    data: Path,
    triple: str,
    language_model_folder: Path,  # noqa: F811 - the fixture
    evaluate: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(language_model, "NEW_TOKENS", 4)
    saved = data.with_name("saved.jsonl")
    args = ["--data", data, "--limit", "1", "--history", "2", "--distance", "1", "--model", triple]
    args += ["--generator", language_model_folder, "--save-candidates", saved]
    written = evaluate("short-term", *args)
    assert written.json["note"] == f"Candidates were sampled from {language_model_folder}."
    examples = [json.loads(line) for line in saved.read_text().splitlines()]
    texts = [text for example in examples for text in example["candidates"]]
    assert texts
    assert not [text for text in texts if f'"{text}"' in data.read_text()]

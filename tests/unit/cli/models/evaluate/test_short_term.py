from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_saved_candidates_give_the_same_results(
    data: Path, tmp_path: Path, triple: str, single: str, evaluate: Callable[..., Any]
) -> None:
    saved = tmp_path / "saved.jsonl"
    chosen = ["--limit", "3", "--history", "2", "--distance", "1", "2", "--retriever", single]
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
        args = ["--data", data, "--limit", 2, "--history", 2, "--distance", 1, "--model", triple]
        args += ["--retriever", triple, "--save-candidates", file]
        written = evaluate("short-term", *args, base=base)
        assert written.json["note"] == f"Candidates were retrieved by {triple}."
        saved.append(file.read_text())
    assert saved[0] == saved[1]

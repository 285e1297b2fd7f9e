"""Dialogues of made-up words, and what an evaluation wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise.models.evaluation import metrics

WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "dialogues.jsonl"
    lines = []
    for number in range(6):
        texts = [f"{WORDS[(number * 3 + n) % 10]} {WORDS[(n * n) % 10]}" for n in range(12)]
        said = [{"speaker": "AB"[n % 2], "text": text} for n, text in enumerate(texts)]
        lines.append(json.dumps({"id": str(number), "utterances": said}))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(autouse=True)
def _no_time_for_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ENOUGH", 0.0)


@pytest.fixture
def results() -> Callable[[Path], dict[str, Any]]:
    """From a folder to its `results.json`, with the names of the systems as `systems`."""

    def read(folder: Path) -> dict[str, Any]:
        written: dict[str, Any] = json.loads((folder / "results.json").read_text())
        return written | {"systems": [row["system"] for row in written["rows"]]}

    return read

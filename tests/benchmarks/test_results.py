"""Runs are joined only where they were measured with the same code."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.results")


def test_runs_of_two_commits_are_not_joined(results: ModuleType) -> None:
    about = {"versions": {}, "model": "default", "processor": "some", "cores": 2}
    runs = [{"benchmark": name, "commit": name, **about} for name in ("load", "peer")]
    with pytest.raises(SystemExit, match="peer ran on another commit"):
        results.join_runs(runs)

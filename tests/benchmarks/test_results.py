"""The figures of speed in README and docs are those of the recorded runs."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.results")


def test_the_figures_of_readme_and_page_are_those_of_the_recorded_runs(results: ModuleType) -> None:
    recorded = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert all(f"<!-- benchmarks/results.json: {name} -->\n" in page for name in results.FIGURES)
    assert results.with_figures(page, results.FIGURES, recorded) == page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "turns a second" in results.table(results.FIRST, recorded)
    assert results.with_figures(readme, results.FIRST, recorded) == readme


def test_runs_of_two_commits_are_not_joined(results: ModuleType) -> None:
    about = {"versions": {}, "model": "default", "processor": "some", "cores": 2}
    runs = [{"benchmark": name, "commit": name, **about} for name in ("load", "peer")]
    with pytest.raises(SystemExit, match="peer ran on another commit"):
        results.joined(runs)

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


def test_the_figures_of_readme_and_pages_are_those_of_the_recorded_runs(
    results: ModuleType,
) -> None:
    recorded = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    pages = {page.stem: page.read_text(encoding="utf-8") for page in results.PAGES}
    markers = [f"benchmarks/results.json: {name}" for name in results.FIGURES]
    markers += ["benchmarks/systems.json", "benchmarks/systems-million.json"]
    markers += ["research/stores.json", "research/tier.json"]
    for marker in markers:
        assert f"<!-- {marker} -->\n" in "".join(pages.values())
    for page in pages.values():
        assert results.with_figures(page, results.FIGURES, recorded) == page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "turns a second" in results.table(results.FIRST, recorded)
    assert results.with_figures(readme, results.FIRST, recorded) == readme


def test_runs_of_two_commits_are_not_joined(results: ModuleType) -> None:
    about = {"versions": {}, "model": "default", "processor": "some", "cores": 2}
    runs = [{"benchmark": name, "commit": name, **about} for name in ("load", "peer")]
    with pytest.raises(SystemExit, match="peer ran on another commit"):
        results.joined(runs)


def test_how_far_it_goes_counts_with_recorded_figures() -> None:
    page = " ".join((ROOT / "docs" / "how-far.md").read_text(encoding="utf-8").split())
    speeds, stores = (
        json.loads((ROOT / name).read_text(encoding="utf-8"))
        for name in ("benchmarks/results.json", "research/stores.json")
    )
    runs = speeds["runs"]
    ten_thousand, million = (
        [row for row in runs["turn"]["rows"] if row["candidates"] == size][-1]
        for size in (10_000, 1_000_000)
    )
    sessions = next(row for row in runs["load"]["rows"] if "turns_per_second" in row)
    heads = next(row for row in runs["heads"]["rows"] if row["what"].startswith("turns a second"))
    memory, _, _, _, one, many, pg_one, pg_many = stores["rows"]
    of_100k, of_million = (turns_at_16(f"systems{size}.json") for size in ("", "-million"))
    rate = "searches_per_second"
    for figure in (
        f"a turn in {ten_thousand['turnwise_ms']:.0f} ms",
        f"a turn in {million['turnwise_ms']:.0f} ms",
        f"Two cores take {sessions['turns_per_second']:.0f} turns a second",
        f"32 sessions at once), {heads['prefixes']:.0f} with a model without",
        f"{memory[rate]:,.0f} searches a second from one client",
        f"{one[rate]:.0f} searches a second from one client and {many[rate]:.0f} from 16",
        f"asked directly: {pg_one[rate]:.0f} and {pg_many[rate]:.0f} searches",
        f"[{of_million['memory']:.0f} turns a second over HTTP]",
        f"memory took {of_million['memory'] / of_million['PostgreSQL']:.1f} times as many turns",
        f"Milvus {of_million['Milvus'] / of_million['PostgreSQL']:.1f} times as many; with 100,000 "
        f"candidates {of_100k['memory'] / of_100k['PostgreSQL']:.1f} "
        f"and {of_100k['Milvus'] / of_100k['PostgreSQL']:.1f} times",
    ):
        assert figure in page


def turns_at_16(file: str) -> dict[str, float]:
    """The turns a second of 16 clients, by a word of the system's name."""
    rows = json.loads((ROOT / "benchmarks" / file).read_text(encoding="utf-8"))["rows"]
    return {
        word: row["turns_per_second"]
        for row in rows
        for word in ("memory", "Milvus", "PostgreSQL")
        if row["at_once"] == 16 and word in row["system"]
    }


@pytest.mark.usefixtures("results")
def test_the_trial_of_several_replicas_is_that_of_its_record() -> None:
    picture = importlib.import_module("research.replicas_picture")
    recorded = json.loads((ROOT / "research" / "replicas.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "replicas.md").read_text(encoding="utf-8")
    whole = recorded["rows"][0]
    assert whole["wrong"] == 0
    assert f"\n{picture.table(recorded['rows'])}\n" in page
    assert f"{whole['turns']:,} turns" in page
    assert f"commit `{recorded['commit']}`" in page

from collections.abc import Callable
from pathlib import Path

from tests.unit.cli.models.evaluate.conftest import Written
from turnwise.models.text_files import write_jsonl


def test_pairs_writes_a_row_a_system_and_a_column_a_kind(
    triple: str, tmp_path: Path, evaluate: Callable[..., Written]
) -> None:
    data = tmp_path / "pairs.jsonl"
    pair = {"context": [], "answers": ["bread", "rain"], "replies": ["bread train", "rain river"]}
    write_jsonl(data, [{"kind": kind, **pair} for kind in ("yes_no", "negation")])
    written = evaluate("pairs", "--data", data, "--model", triple)
    bm25 = next(row for row in written.json["rows"] if row["system"] == "BM25")
    assert {"both", "single", "both/negation", "both/yes_no"} <= bm25["metrics"].keys()
    assert any(system.endswith("last 1 row") for system in written.systems)
    assert "2 pairs; chance is a quarter" in (written.folder / "results.md").read_text()

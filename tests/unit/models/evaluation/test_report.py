import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from turnwise.models.evaluation import report as module
from turnwise.models.evaluation.report import Report, Row, Table
from turnwise.models.evaluation.significance import Outcomes


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.setattr(module, "draw_report", lambda *_: None)  # which takes a second
    plain = {"average_rank": 2.5, "mrr": 0.25, "average_rank/h=2": 3.0, "average_rank/h=3": 2.0}
    rows = (Row("random", plain, 0.0), Row("new · mean", plain | {"full_pool_r@1": 0.5}, 1.25))
    return Report("next-utterance", ("dialogues.jsonl",), rows)


def test_the_json_has_the_documented_shape(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path / "new" / "folder")
    written = json.loads((tmp_path / "new" / "folder" / "results.json").read_text())
    assert written.keys() == {"task", "data", "rows"}
    assert (written["task"], written["data"]) == ("next-utterance", ["dialogues.jsonl"])
    row = {"system": "new · mean", "metrics": report.rows[1].metrics, "ms_per_context": 1.25}
    assert written["rows"][1] == row | {"p_against_best": None}


def ranked(name: str, ranks: np.ndarray, candidates: int) -> Row:
    outcomes = Outcomes(ranks, np.full(len(ranks), "h=2"), np.arange(len(ranks)), candidates)
    return Row(name, {"average_rank": float(ranks.mean())}, 0.0, outcomes)


@pytest.fixture
def compared() -> Report:
    """Ranks among six orders and among three goals, and a row without outcomes."""
    three = np.tile([2.0, 3.0, 4.0], 20)
    alike = np.tile([3.0, 2.0, 4.0, 2.0, 3.0, 4.1], 10)
    orders = [ranked("worse", three + 1, 6), ranked("best", three, 6), ranked("alike", alike, 6)]
    goals = [ranked("goal", np.ones(60), 3)]
    return Report("long-term", ("f",), (*orders, *goals, Row("x", {"average_rank": 9.0}, 0.0)))


def test_rows_are_compared_with_the_best_of_their_kind(compared: Report) -> None:
    assert list(compared.p_against_best) == ["alike", "worse"]
    assert compared.p_against_best["worse"] < 0.001
    assert compared.p_against_best["alike"] > 0.5
    higher_is_better = replace(compared, task="ranking")
    assert list(higher_is_better.p_against_best) == ["alike", "best"]


def test_rows_that_may_be_as_good_as_the_best_are_marked(compared: Report) -> None:
    (table,) = compared.overall()
    error = "± 0.11"
    cells = [f"4.00 {error}", f"3.00 {error}", f"≈ 3.02 {error}", "1.00 ± 0.00", "9.00"]
    assert [row[1] for row in table.rows] == cells
    assert table.markdown().endswith(f"\n\n{table.note}\n")


def test_the_json_has_errors_and_p(compared: Report) -> None:
    rows = json.loads(json.dumps(compared.to_json()))["rows"]
    found = {row["system"]: row["p_against_best"] for row in rows}
    assert found == {"best": None, "goal": None, "x": None, **compared.p_against_best}
    error = np.tile([2.0, 3.0, 4.0], 20).std(ddof=1) / np.sqrt(60)
    assert rows[1]["metrics"]["standard_error"] == pytest.approx(error)
    assert rows[-1]["metrics"] == {"average_rank": 9.0}


def test_the_markdown_has_a_table_over_all_and_by_setting(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path)
    markdown = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| system | average rank | mrr | ms per context |" in markdown
    assert "| new · mean | 2.50 | 0.250 | 1.25 |" in markdown
    assert "| system | h=2 | h=3 |\n|---|---:|---:|\n| random | 3.00 | 2.00 |" in markdown


def test_a_metric_lists_the_systems_that_have_it() -> None:
    rows = (Row("a", {"x": 1.0, "x/h=2": 1.0}, 0.0), Row("b", {"y": 1.0, "y/h=2": 1.0}, 0.0))
    tables = Report("task", ("f",), rows).by_setting()
    assert [[line[0] for line in table.rows] for table in tables] == [["a"], ["b"]]


def test_a_bar_in_a_name_does_not_end_a_cell_of_the_markdown() -> None:
    written = Table("t", ("system", "domain=a|b"), (("x|y", "1"),)).markdown()
    assert written.splitlines()[2] == r"| system | domain=a\|b |"
    assert written.splitlines()[4] == r"| x\|y | 1 |"


def test_times_among_the_metrics_stand_for_the_time_of_a_context(tmp_path: Path) -> None:
    measured = {"r_10@1": 0.25, "p@1/turns=1": 0.5, "p@1": 0.25, "ms_10_candidates": 1.5}
    report = Report("ranking", ("f",), (Row("a", measured, 7.0), Row("b", {"p@1": 1.0}, 8.0)))
    (table,) = report.overall()
    assert table.columns == ("system", "r_10@1", "p@1", "ms 10 candidates")
    assert table.rows == (("a", "0.250", "0.250", "1.50"), ("b", "-", "1.000", "-"))
    report.write(tmp_path)
    assert (tmp_path / "p@1.png").is_file()

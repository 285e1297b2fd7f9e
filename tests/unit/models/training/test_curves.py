from pathlib import Path

import pytest

from turnwise.models.training.curves import Curves


@pytest.mark.parametrize("cut", ["1", "2,loss/ccl,", "2,loss/ccl,0.5"])
def test_curves_go_on_behind_a_line_that_was_cut_off(tmp_path: Path, cut: str) -> None:
    Curves(tmp_path, 0).add(1, 1e-3, {"ccl": 0.5}, None)
    with (tmp_path / "curves.csv").open("a") as file:
        file.write(cut)
    Curves(tmp_path, 2).add(3, 1e-3, {"ccl": 0.25}, {"average_rank": 2.0})
    rows = (tmp_path / "curves.csv").read_text().splitlines()[1:]
    assert [row for row in rows if "loss" in row] == ["1,loss/ccl,0.5", "3,loss/ccl,0.25"]

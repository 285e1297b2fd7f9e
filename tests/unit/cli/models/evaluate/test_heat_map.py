from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.rerankers import save_tiny_pairwise
from turnwise.service.cli.main import app

run = CliRunner().invoke


@pytest.fixture
def pairwise_folder(tmp_path: Path, single: str) -> Path:
    return save_tiny_pairwise(tmp_path / "pairwise", Path(single))


@pytest.mark.parametrize(("chosen", "drawn"), [([], ["0"]), (["2", "4"], ["2", "4"])])
def test_the_chosen_dialogues_are_drawn(
    data: Path, tmp_path: Path, pairwise_folder: Path, chosen: list[str], drawn: list[str]
) -> None:
    args = ["evaluate", "heat-map", "--data", str(data), "--model", str(pairwise_folder)]
    args += ["--id", *chosen] if chosen else []
    result = run(app, [*args, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    pictures = sorted((tmp_path / "out").iterdir())
    assert [picture.stem for picture in pictures] == drawn
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_ids_that_are_no_file_names_have_a_picture_each(
    tmp_path: Path, pairwise_folder: Path
) -> None:
    data = tmp_path / "days.csv"
    data.write_text("id,speaker,text\n5/3,A,a\n5/3,B,b\n5_3,A,a\n5_3,B,b\n")
    args = ["evaluate", "heat-map", "--data", str(data), "--model", str(pairwise_folder)]
    result = run(app, [*args, "--id", "5/3", "5_3", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"5%2F3.png", "5_3.png"}

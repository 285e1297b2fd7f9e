import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.roles import Kind
from service.cli import app

Folders = Callable[[Kind], Path]
WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]
run = CliRunner().invoke


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


def results(folder: Path) -> dict[str, list[str]]:
    written = json.loads((folder / "results.json").read_text())
    return written | {"systems": [row["system"] for row in written["rows"]]}


def test_next_utterance_writes_and_prints_the_table(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders
) -> None:
    triple, single = (str(tiny_encoder_folder(kind)) for kind in (Kind.TRIPLE, Kind.SINGLE))
    args = ["evaluate", "next-utterance", "--data", str(data), "--out", str(tmp_path / "out")]
    result = run(app, [*args, "--model", triple, "--base", single])
    assert result.exit_code == 0, result.output
    assert "BM25" in result.output
    written = results(tmp_path / "out")
    assert written["task"] == "next-utterance"
    assert written["data"] == [str(data)]
    assert "base · mean of the context" in written["systems"]
    assert "tiny-triple · last 2 rows" in written["systems"]
    assert (tmp_path / "out" / "average_rank.png").is_file()


def test_options_take_many_values(data: Path, tmp_path: Path, tiny_encoder_folder: Folders) -> None:
    more = data.with_name("more.jsonl")
    more.write_text(data.read_text())
    models = [str(tiny_encoder_folder(kind)) for kind in (Kind.CURVED, Kind.SINGLE)]
    args = ["evaluate", "long-term", "--data", str(data), str(more), "--model", *models]
    result = run(app, [*args, "--base", "", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    written = results(tmp_path / "out")
    assert written["data"] == [str(data), str(more)]
    assert written["systems"][2::3] == ["tiny-curved · chain", "tiny-single · chain"]


def test_two_models_of_one_name_are_told_apart(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders
) -> None:
    folder = tiny_encoder_folder(Kind.CURVED)
    other = tmp_path / folder.name
    other.symlink_to(folder)
    args = ["evaluate", "long-term", "--data", str(data), "--model", str(folder), str(other)]
    result = run(app, [*args, "--base", "", "--out", str(tmp_path / "out"), "--limit", "2"])
    assert result.exit_code == 0, result.output
    systems = results(tmp_path / "out")["systems"]
    assert systems[2::3] == ["tiny-curved · chain", f"{other} · chain"]


def test_short_term_candidates_can_be_saved_and_used_again(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders
) -> None:
    models = ["--model", str(tiny_encoder_folder(Kind.TRIPLE)), "--base", ""]
    saved, first, again = (str(tmp_path / name) for name in ("saved.jsonl", "first", "again"))
    chosen = ["--history", "2", "5", "--distance", "1", "2"]
    args = ["evaluate", "short-term", "--data", str(data), *chosen, *models, "--out", first]
    result = run(app, [*args, "--save-candidates", saved])
    assert result.exit_code == 0, result.output
    args = ["evaluate", "short-term", "--candidates", saved, *models, "--out", again]
    assert run(app, args).exit_code == 0
    one, two = results(Path(first)), results(Path(again))
    assert two["data"] == [saved]
    assert [row["metrics"] for row in one["rows"]] == [row["metrics"] for row in two["rows"]]


def test_long_term_takes_settings(data: Path, tmp_path: Path, tiny_encoder_folder: Folders) -> None:
    model = ["--model", str(tiny_encoder_folder(Kind.SINGLE)), "--base", ""]
    args = ["evaluate", "long-term", "--data", str(data), "--setting", "3,1,0", "3,2,1"]
    assert run(app, [*args, *model, "--out", str(tmp_path)]).exit_code == 0
    metrics = results(tmp_path)["rows"][0]["metrics"]
    assert {"hits@1/h=3 d=1 f=0", "hits@1/h=3 d=2 f=1"} <= metrics.keys()


@pytest.mark.parametrize("setting", ["2,2", "a,b,c", "0,2,1"])
def test_a_bad_setting_is_refused(data: Path, setting: str) -> None:
    result = run(app, ["evaluate", "long-term", "--data", str(data), "--setting", setting])
    assert result.exit_code == 2
    assert setting in result.output


def test_short_term_needs_data_or_candidates() -> None:
    result = run(app, ["evaluate", "short-term"])
    assert result.exit_code == 2
    assert "give either" in result.output

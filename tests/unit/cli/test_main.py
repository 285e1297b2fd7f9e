import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from typer.main import get_command
from typer.testing import CliRunner

from turnwise.models.errors import DataError
from turnwise.models.extras import install_line
from turnwise.service.candidate_files import CandidateFile
from turnwise.service.cli import main as cli
from turnwise.service.cli.main import app, main

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
run = CliRunner().invoke


def test_every_command_has_help() -> None:
    waiting: list[tuple[list[str], Any]] = [([], get_command(app))]
    while waiting:
        words, command = waiting.pop()
        result = run(app, [*words, "--help"])
        assert (result.exit_code, "Usage" in result.output) == (0, True), words
        found = getattr(command, "commands", {})
        waiting += [([*words, name], each) for name, each in found.items()]


def loaded(code: str) -> set[str]:
    """The slow libraries that some code loads."""
    heavy = {"torch", "faiss", "fastapi", "httpx", "numpy", "pydantic"}
    code = f"import sys; {code}; print(*({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(ended.stdout.decode().splitlines()[-1].split())


def test_help_loads_no_slow_library() -> None:
    assert loaded("import turnwise.service.cli.main") == set()


def test_a_key_is_made_without_a_model_library() -> None:
    code = "from turnwise.service.cli.main import app; app(['key', 'ada'], standalone_mode=False)"
    assert loaded(code) == {"pydantic"}


def test_an_error_of_the_user_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNWISE_HOTS", "127.0.0.1")
    monkeypatch.setattr("sys.argv", ["turnwise", "serve"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    line = "error: TURNWISE_HOTS is not a setting; did you mean TURNWISE_HOST?\n"
    assert capsys.readouterr().err == line


def test_an_error_about_a_file_names_the_option_that_helps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "replies.csv"
    file.write_bytes("text\nSchön.\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"save it as UTF-8$"):
        CandidateFile.read(file)
    monkeypatch.setattr("sys.argv", ["turnwise", "pool", "load", str(file), "--pool", "p"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.endswith("save it as UTF-8, or name it with --encoding\n")


def test_the_version_is_that_of_the_project() -> None:
    assert run(app, ["--version"]).output == f"turnwise {PROJECT['version']}\n"


Lack = Callable[[str, str], None]


@pytest.fixture
def lack(monkeypatch: pytest.MonkeyPatch) -> Lack:
    """Run a command that finds a module missing."""

    def run(module: str, words: str) -> None:
        def command() -> None:
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)

        monkeypatch.setattr(cli, "app", command)
        monkeypatch.setattr("sys.argv", ["turnwise", *words.split()])
        main()

    return run


def brought(extra: str) -> set[str]:
    """The packages of an extra and of those that it includes."""
    names: set[str] = set()
    for name, included in ((each.name, each.extras) for each in map(Requirement, EXTRAS[extra])):
        own = name == "turnwise"
        names |= set().union(*map(brought, included)) if own else {name.replace("-", "_")}
    return names


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("serve", "uvicorn"),
        ("doctor", "redis"),
        ("pool", "numpy"),
        ("journal", "pydantic_settings"),
        ("calibrate", "scipy"),
        ("card", "onnx"),
        ("train", "gensim"),
        ("evaluate", "matplotlib"),
        ("mcp", "mcp"),
        ("serve", "torch"),  # of a model without a graph
    ],
)
def test_a_command_that_lacks_a_package_names_an_extra_that_brings_it(
    lack: Lack, capsys: pytest.CaptureFixture[str], command: str, module: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        lack(module, f"{command} train.toml")
    line = capsys.readouterr().err
    extra = line.rpartition("[")[2].partition("]")[0]
    said = f"turnwise {command} needs the extra '{extra}': {install_line(extra)}"
    assert line == f"error: {said}\n"
    assert module in brought(extra)


@pytest.mark.parametrize(
    ("module", "words"), [("turnwise.service.none", "serve"), ("httpx", "chat"), ("httpx", "")]
)
def test_a_missing_module_of_no_extra_is_no_error_of_the_user(
    lack: Lack, module: str, words: str
) -> None:
    with pytest.raises(ModuleNotFoundError, match=module):
        lack(module, words)

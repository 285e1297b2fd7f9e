import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from turnwise.service.cli import app, main

Errors = Callable[..., list[str]]
run = CliRunner().invoke


def commands() -> list[list[str]]:
    """Every command and group, by its words."""
    found: list[list[str]] = [[]]
    for words in found:  # grows during the loop
        command = get_command(app)
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        found += [[*words, name] for name in getattr(command, "commands", ())]
    return found


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Errors:
    """Run a command line that ends with exit status 2; return the lines of stderr."""

    def failed(*arguments: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["turnwise", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        return capsys.readouterr().err.splitlines()

    return failed


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help(words: Sequence[str]) -> None:
    result = run(app, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def loaded(code: str) -> set[str]:
    """The slow libraries that some code loads."""
    heavy = {"torch", "faiss", "fastapi", "httpx", "numpy", "pydantic"}
    code = f"import sys; {code}; print(*({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)  # noqa: S603
    return set(ended.stdout.decode().splitlines()[-1].split())


def test_help_loads_no_slow_library() -> None:
    assert loaded("import turnwise.service.cli") == set()


def test_a_key_is_made_without_a_model_library() -> None:
    code = "from turnwise.service.cli import app; app(['key', 'ada'], standalone_mode=False)"
    assert loaded(code) == {"pydantic"}


def test_an_error_of_the_user_prints_one_line(tmp_path: Path, errors: Errors) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "1"}\n')
    assert errors("evaluate", "next-utterance", "--data", str(bad)) == [
        f'error: {bad}, line 1, field "utterances": missing'
    ]


def test_a_missing_model_prints_one_line(tmp_path: Path, errors: Errors) -> None:
    data = tmp_path / "dialogues.jsonl"
    said = [{"speaker": "AB"[n % 2], "text": f"text {n}"} for n in range(12)]
    data.write_text(json.dumps({"id": "1", "utterances": said}))
    (line,) = errors(
        "evaluate", "long-term", "--data", str(data), "--base", "package:no_such_package/model"
    )
    assert line.startswith("error: model 'package:no_such_package/model'")


def test_an_unknown_setting_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, errors: Errors
) -> None:
    monkeypatch.setenv("TURNWISE_HOTS", "127.0.0.1")
    assert errors("serve") == ["error: TURNWISE_HOTS is not a setting; did you mean TURNWISE_HOST?"]

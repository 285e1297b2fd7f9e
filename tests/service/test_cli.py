import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from service.cli import app, main

Errors = Callable[..., list[str]]
run = CliRunner().invoke


def commands() -> list[list[str]]:
    """Every command and group, by its words."""
    found: list[list[str]] = [[]]
    for words in found:  # which grows while it is read
        command = get_command(app)
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        found += [[*words, name] for name in getattr(command, "commands", ())]
    return found


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Errors:
    """Run the command line, which must fail as with what a user can mend; return what it says."""

    def told(*arguments: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["turnwise", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        return capsys.readouterr().err.splitlines()

    return told


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_tells_how_it_is_used(words: Sequence[str]) -> None:
    result = run(app, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_help_waits_for_no_model_library() -> None:
    code = (
        "import sys, service.cli; sys.exit(bool({'torch', 'faiss', 'fastapi'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


def test_what_a_user_can_mend_ends_in_one_line(tmp_path: Path, errors: Errors) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "1"}\n')
    assert errors("evaluate", "next-utterance", "--data", str(bad)) == [
        f'error: {bad}, line 1, field "utterances": missing'
    ]


def test_a_model_that_is_not_there_ends_in_one_line(tmp_path: Path, errors: Errors) -> None:
    data = tmp_path / "dialogues.jsonl"
    said = [{"speaker": "AB"[n % 2], "text": f"text {n}"} for n in range(12)]
    data.write_text(json.dumps({"id": "1", "utterances": said}))
    (line,) = errors(
        "evaluate", "long-term", "--data", str(data), "--base", "package:no_such_package/model"
    )
    assert line.startswith("error: model 'package:no_such_package/model'")


def test_a_setting_that_is_unknown_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, errors: Errors
) -> None:
    monkeypatch.setenv("TURNWISE_HOTS", "127.0.0.1")
    assert errors("serve") == ["error: TURNWISE_HOTS is not a setting; did you mean TURNWISE_HOST?"]

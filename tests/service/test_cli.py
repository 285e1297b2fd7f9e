import subprocess
import sys
from collections.abc import Sequence

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from turnwise.service.cli import app, main

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

import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from turnwise.service.cli.main import app
from turnwise.service.settings import Settings

run = CliRunner().invoke


def made(*arguments: str) -> tuple[str, str]:
    """The key, and the value for TURNWISE_API_KEYS."""
    result = run(app, ["key", *arguments])
    assert result.exit_code == 0, result.output
    shown, configured = result.output.splitlines()
    return shown.split()[-1], configured.partition(": ")[2]


def test_the_printed_value_configures_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key, value = made("ada", "--scope", "select", "pools")
    monkeypatch.setenv("TURNWISE_API_KEYS", value)
    (configured,) = Settings().api_keys
    assert configured.name == "ada"
    assert configured.sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert configured.scopes == {"select", "pools"}


def test_a_key_may_select_and_is_kept_nowhere_but_where_it_is_shown() -> None:
    key, value = made("ada")
    assert json.loads(value)[0]["scopes"] == ["select"]
    assert key not in value


def test_a_key_may_expire() -> None:
    _, value = made("ada", "--days", "30")
    left = datetime.fromisoformat(json.loads(value)[0]["expires"]) - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)


@pytest.mark.parametrize(
    "arguments", [["a b"], ["ada", "--scope", "root"], ["ada", "--days", "99999999"]]
)
def test_a_bad_name_scope_or_time_is_refused(arguments: list[str]) -> None:
    assert run(app, ["key", *arguments]).exit_code == 2

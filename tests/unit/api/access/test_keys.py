"""API keys that expire, and those of a file that changes."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.waiting import until
from tests.unit.api.conftest import api_key
from turnwise.service.api.access.keys import ApiKeys, identify
from turnwise.service.errors import Unauthenticated
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings, SettingsError
from turnwise.service.wire.keys import ApiKey

pytestmark = pytest.mark.anyio

ADA = api_key("ada", "select")
BOB = api_key("bob", "select")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def write(file: Path, *held: ApiKey) -> None:
    file.write_text(json.dumps([key.model_dump(mode="json") for key in held]))


def expiring(key: ApiKey, seconds: float) -> ApiKey:
    return key.model_copy(update={"expires": datetime.now(UTC) + timedelta(seconds=seconds)})


def test_a_key_is_valid_until_it_expires() -> None:
    assert identify([expiring(ADA, 60)], "ada").namespace == "ada"
    with pytest.raises(Unauthenticated, match="the API key expired at 20"):
        identify([expiring(ADA, -1)], "ada")
    assert identify([expiring(ADA, -1), ADA], "ada").namespace == "ada"


def test_an_expiry_has_a_time_zone() -> None:
    fields = json.loads(ADA.model_dump_json())
    with pytest.raises(ValueError, match="timezone"):
        ApiKey.model_validate_json(json.dumps(fields | {"expires": "2030-01-01T00:00:00"}))


def test_a_file_adds_keys_and_one_without_any_lets_nobody_in(file: Path) -> None:
    write(file, BOB)
    held = ApiKeys(Settings(api_keys=(ADA,), api_keys_file=file), Metrics()).current
    assert {identify(held, name).key for name in ("ada", "bob")} == {"ada", "bob"}
    write(file)
    with pytest.raises(Unauthenticated):
        identify(ApiKeys(Settings(api_keys_file=file), Metrics()).current, None)
    assert ApiKeys(Settings(), Metrics()).current is None


WRONG: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "half written": lambda file: file.write_text('[{"name": "ada", "sha256": "a-secret'),
    "of another form": lambda file: file.write_text('[{"name": "ada", "sha256": "a-secret"}]'),
    "with a key twice": lambda file: write(file, BOB, BOB),
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG.keys())
async def test_a_file_is_read_again_and_the_last_good_keys_stay(
    file: Path,
    spoil: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    write(file, ADA)
    metrics = Metrics()
    held = ApiKeys(Settings(api_keys_file=file), metrics, seconds=0.01)

    def stale() -> bool:
        return metrics.registry.get_sample_value("turnwise_api_keys_stale") == 1

    following = asyncio.create_task(held.follow())
    try:
        spoil(file)
        await until(stale)
        assert held.current == (ADA,)
        write(file, BOB)
        await until(lambda: held.current == (BOB,))
        await until(lambda: not stale())
    finally:
        following.cancel()
    errors = [line.getMessage() for line in caplog.records if line.levelno == logging.ERROR]
    assert errors
    assert all(error.startswith("TURNWISE_API_KEYS_FILE ") for error in errors)
    assert "a-secret" not in caplog.text


def test_a_service_does_not_start_with_a_file_that_it_cannot_read(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"TURNWISE_API_KEYS_FILE .*: cannot be read: No such"):
        ApiKeys(Settings(api_keys_file=file), Metrics())

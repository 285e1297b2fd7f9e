"""`turnwise doctor`, beside a service and without one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import redis as blocking

from tests.service.conftest import Examined
from tests.support.messages import REPLIES
from tests.support.redis_keys import pool_key
from tests.support.service import Ended, Live, Turnwise
from turnwise.models.roles import EncoderKind
from turnwise.service.redis.private import PrivateRedis, running_url


@pytest.fixture
def live(own: Live) -> Live:
    """Of the test's own, which is found by its pools."""
    return own


def test_a_service_that_runs_is_looked_at(
    live: Live, examined: Examined, model_of: Callable[[EncoderKind], dict[str, object]]
) -> None:
    pool = "pool default/default"
    port = live.http.base_url.port or 0
    live.fill(["Another text."])
    found = examined(port=port)
    assert {finding.grade for finding in found.values()} <= {"ok", "warn"}
    assert found[pool].found == f"version 2, {len(REPLIES)} candidates stored"
    assert found[f"port {port}"].found.endswith(", ready")
    assert "dimension 32" in found["model"].found
    found = examined(port=port, **model_of(EncoderKind.SINGLE))
    for name in (pool, f"port {port}"):
        assert (found[name].grade, "another model" in found[name].found) == ("warn", True)
    live.services.draining.set()
    finding = examined(port=port)[f"port {port}"]
    assert (finding.grade, finding.found.partition(": ")[2]) == ("fail", "the service is stopping")


def test_damaged_pools_and_one_of_a_model_that_the_settings_lack(
    live: Live, examined: Examined
) -> None:
    with blocking.Redis.from_url(live.redis_url) as redis:
        for part in ("chunk", "log"):
            live.fill(pool=part)
            assert redis.delete(*redis.keys(pool_key("default", part, f"{part}*")))
        redis.hset(pool_key("default", "default", "meta"), "encoder", "pairwise")
    found = examined()
    for part in ("chunk", "log"):
        finding = found[f"pool default/{part}"]
        assert (finding.grade, "parts are missing" in finding.found) == ("fail", True)
    finding = found["pool default/default"]
    assert (finding.grade, finding.advice) == ("fail", "set TURNWISE_PAIRWISE")


def test_a_missing_device_is_reported(examined: Examined) -> None:
    found = examined(device="cuda:99")
    assert found["model"].grade == "fail"
    assert found["model"].found.startswith("TURNWISE_DEVICE 'cuda:99' cannot be used: ")
    assert {"redis", "port 0"} <= set(found)


def test_a_model_that_runs_in_torch_on_a_cpu_is_reported(
    examined: Examined, tmp_path: Path
) -> None:
    (tmp_path / "models").touch()  # where the export would go
    found = examined(data_dir=tmp_path)["model"]
    assert (found.grade, "torch float32 on cpu" in found.found) == ("fail", True)


def test_a_private_redis_with_data_is_started_checked_and_stopped(
    examined: Examined, tmp_path: Path
) -> None:
    (tmp_path / "models").touch()  # the model is not exported
    server = PrivateRedis(tmp_path / "redis")
    server.start()
    server.stop()
    found = examined(redis_url=None, data_dir=tmp_path)
    assert (found["redis"].grade, found["redis persistence"].found) == ("ok", "append-only file")
    assert found["pools"].found == "none"
    assert running_url(tmp_path / "redis") is None
    (tmp_path / "redis" / "redis.server").write_text("valkey 99.0\n")
    found = examined(redis_url=None, data_dir=tmp_path)
    assert "has data of valkey 99.0" in found["redis"].found
    assert "pools" not in found


@pytest.fixture
def doctor(
    turnwise: Turnwise,
    redis_url: str,
    defaults: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Ended]:
    """Run `turnwise doctor` with one variable changed."""
    for name, given in (defaults | {"redis_url": redis_url}).items():
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", str(given))

    def run(variable: str, value: str, *options: str) -> Ended:
        monkeypatch.setenv(variable, value)
        return turnwise("doctor", *options)

    return run


@pytest.mark.parametrize(("port", "status"), [("0", 0), ("many", 1)])
def test_a_program_reads_the_findings(doctor: Callable[..., Ended], port: str, status: int) -> None:
    ended = doctor("TURNWISE_PORT", port, "--json")
    found = json.loads(ended.out)
    assert (ended.status, found["serves"]) == (status, status == 0)
    assert {tuple(check) for check in found["checks"]} == {("subject", "grade", "found", "advice")}
    failed = [check["subject"] for check in found["checks"] if check["grade"] == "fail"]
    assert failed == ["settings"] * status

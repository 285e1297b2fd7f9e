import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from turnwise.models.extras import install_line
from turnwise.service.cli.doctor import Finding, host
from turnwise.service.cli.doctor.host import examine_device, examine_port, examine_settings
from turnwise.service.settings import Settings


def found(**fields: object) -> dict[str, Finding]:
    return {f.subject: f for f in examine_settings(Settings.model_validate(fields))}


def test_settings_that_are_good(tmp_path: Path) -> None:
    assert {f.grade for f in found(data_dir=tmp_path / "not" / "yet").values()} == {"ok"}
    assert not (tmp_path / "not").exists()


def test_a_variable_that_is_no_longer_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "variables" not in found()
    monkeypatch.setenv("TURNWISE_SHORT_LIST", "10")
    assert found()["variables"].grade == "warn"


def test_open_access_is_a_warning() -> None:
    assert found(host="0.0.0.0", allow_anonymous=True)["access"].grade == "warn"  # noqa: S104


def test_the_file_of_keys_is_read(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    assert found(api_keys_file=file)["access"].grade == "fail"
    file.write_text(f'[{{"name": "ada", "sha256": "{"0" * 64}"}}]')
    assert found(api_keys_file=file)["access"].found == "1 API key"


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    unwritable = tmp_path / "file" / "data"
    assert found(data_dir=unwritable)["data folder"].grade == "fail"
    elsewhere = found(data_dir=unwritable, redis_url="redis://redis.example:6379")
    assert elsewhere["data folder"].grade == "ok"  # as in the images


def test_a_data_folder_that_this_user_may_not_look_into(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    is_root = os.geteuid() == 0  # who may look into every folder
    finding = found(data_dir=tmp_path / "closed" / "data")["data folder"]
    assert finding.grade == ("ok" if is_root else "fail")


@pytest.mark.parametrize(("free", "grade"), [(2**30, "ok"), (2**30 - 1, "warn")])
def test_a_disk_that_is_nearly_full_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, grade: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    finding = found(data_dir=tmp_path)["data folder"]
    assert (finding.grade, finding.found) == (grade, f"{tmp_path}, 1.0 GB free")


def test_the_default_pool_is_read(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text('{"text": "Hello"}\n')
    assert found(default_pool=file)["default pool"].found.startswith("1 candidate in")
    file.write_text("{")
    bad = found(default_pool=file)["default pool"]
    assert bad.grade == "fail"
    assert "line 1" in bad.found
    file.write_text('{"id": "a", "text": "Hello"}\n{"id": "a", "text": "Bye"}\n')
    assert found(default_pool=file)["default pool"].grade == "fail"


@pytest.mark.parametrize("subject", ["pairwise", "reranker"])
def test_a_missing_second_model(subject: str, tmp_path: Path) -> None:
    assert found(**{subject: tmp_path})[subject].grade == "ok"
    assert found(**{subject: tmp_path / "none"})[subject].grade == "fail"


def test_the_redaction_hook_is_loaded() -> None:
    assert found(redact="nowhere:hide")["redaction"].grade == "fail"
    assert found(redact="textwrap:dedent")["redaction"].grade == "ok"


def test_the_journal_is_to_be_written(tmp_path: Path) -> None:
    assert found(journal=tmp_path / "new")["journal"].found.endswith("/new, not redacted")
    assert not (tmp_path / "new").exists()
    assert found(journal="/dev/null/journal")["journal"].grade == "fail"


def test_the_collector_of_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        url = f"http://127.0.0.1:{collector.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        assert found(tracing=True)["traces"] == Finding("traces", "ok", f"sent to {url}/v1/traces")
    assert found(tracing=True)["traces"].grade == "warn"
    for wrong, grade in (("http://a:b", "fail"), ("a:4318", "fail"), ("http://a..b:1", "warn")):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)
        assert found(tracing=True)["traces"].grade == grade


def test_more_threads_than_cores() -> None:
    assert found(search_threads=10_000)["threads"].grade == "warn"


@pytest.mark.parametrize(
    ("device", "gpu", "driver", "grade", "advice"),
    [
        ("cuda", True, True, "ok", ""),
        ("cpu", False, False, "ok", ""),
        ("cpu", True, True, "warn", "set TURNWISE_DEVICE=cuda, or unset it"),
        ("cpu", False, True, "warn", install_line("encoder")),
    ],
)
def test_a_gpu_that_the_model_does_not_use_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    device: str,
    gpu: bool,
    driver: bool,
    grade: str,
    advice: str,
) -> None:
    monkeypatch.setattr(host, "has_gpu", lambda: gpu)
    monkeypatch.setenv("PATH", str(tmp_path))
    if driver:
        (tmp_path / "nvidia-smi").touch(0o700)
    finding = examine_device(device)
    assert (finding.grade, finding.advice) == (grade, advice)


def test_a_port_that_is_free() -> None:
    assert examine_port(Settings(port=0), None).grade == "ok"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])  # noqa: S104
def test_a_port_of_another_program(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as other:
        other.bind((host, 0))
        settings = Settings(host=host, port=other.getsockname()[1], allow_anonymous=True)
        assert examine_port(settings, None).found == "another program has it"


def test_a_host_that_is_another_machine_s() -> None:
    finding = examine_port(Settings(host="192.0.2.1", port=0, allow_anonymous=True), None)
    assert (finding.grade, "TURNWISE_HOST" in finding.advice) == ("fail", True)
    assert finding.found.startswith("cannot listen on 192.0.2.1: ")

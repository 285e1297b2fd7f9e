"""`turnwise pool` against a running service and its Redis."""

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.service.live.conftest import REPLIES, Launch, Live, refused
from tests.waiting import eventually
from turnwise.service.client import uploads

KEY = "a-key-of-the-tests"


def written(path: Path, *candidates: dict[str, object]) -> Path:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(candidate) + "\n\n" for candidate in candidates)
    return path


def test_load_changes_what_differs_and_keeps_the_description(
    live: Live, tmp_path: Path, command: Callable[..., str]
) -> None:
    live.ok(live.http.put("/pools/p", json={"description": "ours"}))
    url = live.http.base_url
    one, two = {"id": "1", "text": "Hello"}, {"id": "2", "text": "Bye"}
    said = command("load", written(tmp_path / "a.jsonl", one, two), "--pool", "p", "--url", url)
    assert "version 1, 2 candidates (2 new or changed, 0 as before)" in said
    file = written(tmp_path / "b.jsonl", one, two | {"text": "Goodbye"})
    said = command("load", file, "--pool", "p", "--url", url)
    assert "version 2, 2 candidates (1 new or changed, 1 as before)" in said
    assert live.get("/pools/p")["description"] == "ours"


def test_candidates_are_removed_and_a_name_is_moved_to_another_pool(
    live: Live, tmp_path: Path, command: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = ("--url", live.http.base_url)
    file = written(tmp_path / "a.jsonl", {"id": "r0"}, {"id": "r1", "text": "x"}, {"id": "no"})
    said = command("remove", file, "--pool", "default", *url)
    assert said == "pool default: 2 candidates removed, 1 were not there\n"
    assert f"{len(REPLIES) - 2} candidates" in command("alias", "shop", "default", *url)
    assert live.turn("s", "user", "Hello", pool="shop")["pool"]["name"] == "default"
    line = refused(command, capsys, "alias", "default", "default", *url)
    assert line.startswith("error: Conflict: 'default' is a pool")
    bad = written(tmp_path / "b.jsonl", {"text": "x"})
    line = refused(command, capsys, "remove", bad, "--pool", "default", *url)
    assert line.startswith(f'error: {bad}, line 1, field "id": ')


def test_a_load_that_fails_says_how_far_it_came(
    live: Live,
    tmp_path: Path,
    command: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "BATCH", 1)
    file = written(tmp_path / "a.jsonl", {"text": "Hello"}, {"text": "x" * 5000})
    line = refused(command, capsys, "load", file, "--pool", "p", "--url", live.http.base_url)
    assert line.startswith(f'error: {file}, line 3, field "text": 5000 characters are more')
    assert "; the first 1 of 2 candidates are in pool 'p'; load the file again to go on" in line


def test_load_needs_a_key_where_the_service_does(
    launch: Launch, tmp_path: Path, command: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    live = launch(api_keys=[{"name": "ada", "sha256": digest, "scopes": ["select", "pools"]}])
    file = written(tmp_path / "a.jsonl", {"text": "Hello"})
    load = ("load", file, "--pool", "p", "--url", live.http.base_url)
    assert "--key or TURNWISE_KEY" in refused(command, capsys, *load)
    assert "1 candidates" in command(*load, "--key", KEY)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1", "http://["])
def test_a_service_that_cannot_be_reached_is_one_line_with_the_way_out(
    url: str, tmp_path: Path, command: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "a.jsonl", {"text": "Hello"})
    line = refused(command, capsys, "load", file, "--pool", "p", "--url", url)
    assert line.startswith(f"error: {url} cannot be reached: ")
    assert line.endswith("start a service with `turnwise serve`, or set --url or TURNWISE_URL")


def test_a_snapshot_can_be_restored_under_another_name(
    live: Live, tmp_path: Path, command: Callable[..., str]
) -> None:
    folder = tmp_path / "saved"
    settings = {
        "description": "ours", "min_confidence": 0.2, "calibration": {"slope": 2.0, "offset": -1.0}
    }  # fmt: skip
    live.ok(live.http.put("/pools/default", json=settings))
    assert f"{len(REPLIES)} candidates" in command("snapshot", "default", folder)
    encoded = live.increase("turnwise_encoded_texts_total", role="after", lane="bulk")
    assert f"pool copy: version 1, {len(REPLIES)} candidates" in command(
        "restore", folder, "--pool", "copy"
    )
    eventually(lambda: live.http.get("/pools/copy").is_success)
    eventually(lambda: live.get("/pools/copy")["size"] == len(REPLIES))
    copy = live.get("/pools/copy")
    assert {name: copy[name] for name in settings} == settings
    search = {"text": "Where is my parcel?", "top_k": 8}
    copy = live.post("/pools/copy/search", **search)["candidates"]
    assert copy == live.post("/pools/default/search", **search)["candidates"]
    assert encoded() == 0


def test_restoring_takes_a_pool_back(
    live: Live, tmp_path: Path, command: Callable[..., str]
) -> None:
    command("snapshot", "default", tmp_path / "saved")
    live.ok(live.http.delete("/pools/default/candidates/r0"))
    live.ok(live.http.put("/pools/default/candidates", json=[{"id": "new", "text": "New"}]))
    command("restore", tmp_path / "saved")
    eventually(lambda: live.get("/pools/default")["version"] == 4)
    found = live.post("/pools/default/search", text="x", top_k=50)["candidates"]
    assert {candidate["id"] for candidate in found} == {f"r{n}" for n in range(len(REPLIES))}


def test_a_damaged_snapshot_is_refused(
    live: Live,
    tmp_path: Path,
    command: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command("snapshot", "default", tmp_path / "saved")
    with (tmp_path / "saved" / "candidates.jsonl").open("a") as file:
        file.write('{"id": "more", "text": "More"}\n')
    with pytest.raises(SystemExit):
        command("restore", tmp_path / "saved", "--pool", "copy")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("error: ")
    assert "candidates.jsonl is not the file that the manifest describes" in line
    assert live.http.get("/pools/copy").status_code == httpx.codes.NOT_FOUND


def test_a_snapshot_of_an_unknown_encoder_is_rejected(
    tmp_path: Path, command: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    command("snapshot", "default", tmp_path / "saved")
    path = tmp_path / "saved" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"encoder": "pairwise"}))
    line = refused(command, capsys, "restore", tmp_path / "saved", "--pool", "copy")
    assert line.startswith("error: encoder: this service has no encoder 'pairwise'")


@pytest.mark.parametrize(
    "words",
    [
        ("snapshot", "a/b", "saved"),
        ("snapshot", "default", "saved", "--namespace", "a/b"),
        ("restore", "saved", "--pool", "-a"),
        ("restore", "saved", "--namespace", ""),
    ],
)
def test_an_invalid_name_is_rejected_first(
    words: tuple[str, ...], command: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command(*words)
    assert caught.value.code == 2
    assert "is not a name" in capsys.readouterr().err


def test_a_missing_pool_cannot_be_saved(
    tmp_path: Path, command: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command("snapshot", "nowhere", tmp_path / "saved")
    assert "error: there is no pool 'nowhere'" in capsys.readouterr().err
    assert not (tmp_path / "saved").exists()

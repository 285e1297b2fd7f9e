"""`turnwise pool` against a running service and its Redis."""

from pathlib import Path

import pytest

from tests.service.conftest import Command
from tests.support import qdrant
from tests.support.messages import REPLIES, write_lines
from tests.support.service import Live, Turnwise
from tests.support.waiting import eventually
from turnwise.service.app import components
from turnwise.service.client import uploads


def test_load_changes_what_differs_and_keeps_the_description(
    live: Live, tmp_path: Path, command: Command
) -> None:
    live.put("/pools/p", {"description": "ours"})
    url = live.url
    one = {"id": "1", "text": "Hello"}
    two = {"id": "2", "text": "Bye"}
    said = command("load", write_lines(tmp_path / "a.jsonl", one, two), "--pool", "p", "--url", url)
    assert "version 1, 2 candidates (2 new or changed, 0 as before)" in said
    file = write_lines(tmp_path / "b.jsonl", one, two | {"text": "Goodbye"})
    said = command("load", file, "--pool", "p", "--url", url)
    assert "version 2, 2 candidates (1 new or changed, 1 as before)" in said
    assert live.get("/pools/p")["description"] == "ours"


def test_load_replaces_a_pool_and_shows_first_what_would_change(
    live: Live, tmp_path: Path, command: Command, refused: Command
) -> None:
    rest = ("--pool", "p", "--url", live.url)
    (tmp_path / "a.csv").write_text("id,answer\n1,Hello\n2,Bye\n3,Thanks\n")
    (tmp_path / "b.csv").write_text("id,answer,question\n2,Bye,\n3,Thank you,\n4,Yes,Open?\n")
    said = command("load", tmp_path / "a.csv", "--dry-run", *rest)
    assert "pool p, which does not exist yet: 3 new, 0 changed, 0 as before; 0" in said
    assert live.http.get("/pools/p").status_code == 404
    command("load", tmp_path / "a.csv", *rest)
    load = ("load", tmp_path / "b.csv", *rest)
    said = command(*load, "--dry-run", "--replace")
    assert said.splitlines()[1:] == [
        "+ 4: Yes",
        "~ 3: Thank you  [text]",
        "- 1: Hello",
        "pool p: 1 new, 1 changed, 1 as before; 1 that the file lacks would go",
    ]
    assert live.get("/pools/p")["version"] == 1
    said = command(*load, "--replace", "--yes")
    assert "version 3, 3 candidates (2 new or changed, 1 as before), 1 removed" in said
    said = command(*load, "--replace")
    assert "3 candidates (0 new or changed, 3 as before), 1 example in the file" in said
    assert "--add-examples" in refused(*load, "--replace", "--add-examples")


def test_a_url_with_a_path_is_told_to_leave_it_out(
    live: Live, refused: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_URL", f"{live.url}/v1")
    said = refused("list")
    assert "there is nothing at /v1/version; leave out the path of --url or TURNWISE_URL" in said


def test_a_missing_pool_is_created_by_a_command(
    live: Live, tmp_path: Path, refused: Command
) -> None:
    url = ("--url", live.url)
    for words in (
        ("list", "nowhere", *url),
        ("show", "nowhere", "pay", *url),
        ("snapshot", "nowhere", tmp_path / "snapshot"),
    ):
        said = refused(*words)
        assert "there is no pool 'nowhere'" in said
        assert said.endswith("; create it with `turnwise pool load FILE --pool nowhere`")


def test_moving_an_alias_warns_of_settings_that_the_new_pool_lacks(
    live: Live, pool_command: Turnwise
) -> None:
    live.put("/pools/old", {"min_confidence": 0.5, "fallback": "One moment.", "learn": "chosen"})
    live.put("/pools/new", {"description": "of May", "learn": "chosen"})
    said = [
        pool_command("alias", "shop", pool, "--url", live.url).err for pool in ("old", "new", "old")
    ]
    assert said == [
        "",
        "warning: pool new lacks settings of pool old: min_confidence, fallback\n",
        "",
    ]


def test_candidates_are_removed_and_a_name_is_moved_to_another_pool(
    live: Live, tmp_path: Path, command: Command, refused: Command
) -> None:
    url = ("--url", live.url)
    unknown = [{"id": f"no-{number}"} for number in range(1500)]
    listed = {"id": "r0"}, {"id": "r1", "text": "x"}, {"id": "r0"}
    file = write_lines(tmp_path / "a.jsonl", *listed, *unknown)
    said = command("remove", file, "--pool", "default", *url)
    assert said == "pool default: 2 candidates removed, 1500 not there\n"
    assert f"{len(REPLIES) - 2} candidates" in command("alias", "shop", "default", *url)
    assert live.turn("s", "user", "Hello", pool="shop")["pool"]["name"] == "default"
    line = refused("alias", "default", "default", *url)
    assert line.startswith("error: Conflict: 'default' is a pool")
    bad = write_lines(tmp_path / "b.jsonl", {"text": "x"})
    line = refused("remove", bad, "--pool", "default", *url)
    assert line.startswith(f'error: {bad}, line 1, field "id": ')


def test_a_load_that_fails_says_how_far_it_came(
    live: Live,
    tmp_path: Path,
    refused: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "BATCH", 1)
    file = write_lines(tmp_path / "a.jsonl", {"text": "Hello"}, {"text": "x" * 5000})
    line = refused("load", file, "--pool", "p", "--url", live.url)
    assert line.startswith(f'error: {file}, line 3, field "text": 5000 characters are more')
    assert "; the first 1 of 2 candidates are in pool 'p'; load the file again to go on" in line


def test_a_file_that_cannot_be_read_makes_no_pool(
    live: Live, tmp_path: Path, refused: Command
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "Hello"}\nno JSON')
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for file in (broken, tmp_path / "missing.jsonl", empty):
        assert refused("load", file, "--pool", "p", "--url", live.url).startswith(f"error: {file}")
    assert live.http.get("/pools/p").status_code == 404


def test_a_snapshot_can_be_restored_under_another_name(
    live: Live, tmp_path: Path, command: Command
) -> None:
    folder = tmp_path / "saved"
    settings = {
        "description": "ours",
        "min_confidence": 0.2,
        "calibration": {"slope": 2.0, "offset": -1.0},
    }
    live.put("/pools/default", settings)
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


def test_a_pool_that_cannot_be_moved_stays_where_it_is(
    live: Live, refused: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = ("move", "default", "--namespace", live.namespace, "--to", "qdrant")
    assert "no candidate store 'qdrant'" in refused(*move)
    monkeypatch.setenv("TURNWISE_STORE_URL", "qdrant://127.0.0.1:1")
    assert "qdrant does not do its work" in refused(*move)
    assert live.get("/pools/default")["store"] == "local"
    assert "no pool 'default' in namespace 'x'" in refused(
        "move", "default", "--namespace", "x", "--to", "qdrant"
    )


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")
def test_a_pool_that_was_moved_is_in_the_store_for_running_services_as_well(
    live: Live, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = qdrant.make_store()
    monkeypatch.setattr(components, "connect_store", lambda *_: store)
    monkeypatch.setenv("TURNWISE_STORE_URL", "qdrant://store.example")
    said = command("move", "default", "--namespace", live.namespace, "--to", "qdrant")
    assert said == f"pool default: version 2, {len(REPLIES)} candidates, in the store qdrant\n"
    eventually(lambda: live.try_turn().status_code == 503)  # this one has no store
    assert "no candidate store 'qdrant'" in live.try_turn().text
    assert live.http.delete("/pools/default").status_code == 204

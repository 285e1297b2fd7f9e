"""`turnwise backup` and `turnwise restore`, on a Redis of the test's own."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis as blocking

from tests.support.messages import REPLIES
from tests.support.redis_keys import pool_key
from tests.support.service import InNamespace, Launch, Live, Turnwise
from tests.support.waiting import eventually
from turnwise.service.cli.backup import work
from turnwise.service.use_cases import learning

MOST_EDITS = 100
Run = Callable[..., str]
SHOP = {
    "description": "Of the shop",
    "min_confidence": 0.25,
    "calibration": {"slope": 2.0, "offset": -1.0},
    "learn": "chosen",
}


@pytest.fixture
def live(launch: Launch) -> Live:
    """A service with two namespaces; `app.name` is the one that requests use."""
    live = launch(api_keys=[InNamespace.KEY])
    for name in ("bar", "shop"):
        live.app.name = name
        live.fill()
    return live


@pytest.fixture
def run(
    turnwise: Turnwise,
    monkeypatch: pytest.MonkeyPatch,
    defaults: dict[str, object],
    redis_url: str,
) -> Run:
    """Run `turnwise` with words that it takes; return what it says."""
    for name, value in (defaults | {"redis_url": redis_url}).items():
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", str(value))

    def run_command(*words: object, status: int = 0) -> str:
        ended = turnwise(*words)
        assert ended.status == status, ended.err
        return ended.err if status else ended.out

    return run_command


def flush(live: Live) -> None:
    with blocking.Redis.from_url(live.redis_url) as redis:
        redis.flushall()


def size(live: Live) -> int:
    with blocking.Redis.from_url(live.redis_url) as redis:
        return len(redis.hkeys("tw:pools"))


def answers(live: Live, pool: str) -> list[Any]:
    """What a pool answers, and what it holds."""
    asked = ["Where is my parcel?", "Can I pay by card?", "Hello"]
    kept = ("size", "description", "min_confidence", "calibration", "learn", "aliases")
    info = live.get(f"/pools/{pool}")
    return [
        [live.post(f"/pools/{pool}/search", text=text, top_k=3)["candidates"] for text in asked],
        {name: info[name] for name in kept},
        live.get(f"/pools/{pool}/learned"),
    ]


def test_an_empty_redis_gets_everything_back(
    live: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "NEAR_COPY", 2.0)  # all short texts are, to the tiny model
    live.give_examples()
    live.put("/pools/default", SHOP)
    live.put("/pools/front/alias", {"to": "default"})
    live.turn("s", "user", "Is my order on its way?", top_k=len(REPLIES))
    assert live.feedback("r4", "chosen")["learned"]
    live.put("/pools/busy", {})
    # The replica can miss only names that it has seen in Redis.
    names = live.services.followed_pools.names
    eventually(lambda: any(key.name == "busy" for key in names.listed))
    before = answers(live, "front")
    assert before[2]["learned"]
    done = threading.Event()

    def edit() -> None:
        for number in range(MOST_EDITS):
            if done.is_set():
                break
            item = {"id": str(number), "text": REPLIES[number % len(REPLIES)]}
            live.put("/pools/busy/candidates", [item])

    editing = threading.Thread(target=edit)
    editing.start()
    said = run("backup", tmp_path / "b")
    done.set()
    editing.join()
    assert f"pool bar/default: version 1, {len(REPLIES)} candidates" in said
    assert said.endswith(f"saved 3 pools and 1 alias in {tmp_path / 'b'}\n")
    flush(live)
    eventually(lambda: live.metric("turnwise_missing_pools") == 4)
    assert run("restore", tmp_path / "b").endswith("restored 3 pools and 1 alias\n")
    eventually(lambda: live.metric("turnwise_missing_pools") == 0)
    assert answers(live, "front") == before
    busy = live.post("/pools/busy/search", text="Hello", top_k=MOST_EDITS)["candidates"]
    assert sorted(int(each["id"]) for each in busy) == [*range(len(busy))]  # one moment's
    live.app.name = "bar"
    assert live.get("/pools/default")["size"] == len(REPLIES)


def test_a_restore_reverts_what_has_changed_since_and_leaves_other_pools(
    live: Live, run: Run, tmp_path: Path
) -> None:
    before = answers(live, "default")
    run("backup", tmp_path / "b")
    live.put("/pools/default", SHOP)
    live.delete("/pools/default/candidates/r0")
    live.fill(pool="new")
    run("restore", tmp_path / "b")
    eventually(lambda: live.get("/pools/default")["version"] == 3)
    assert answers(live, "default") == before
    assert live.get("/pools/new")["version"] == 1
    assert "pool shop/default: version 3," in run("restore", tmp_path / "b")  # nothing to change


def test_an_interrupted_backup_is_refused_and_goes_on(
    live: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.fill(pool="third")
    write = work.write_snapshot
    written: list[str] = []

    async def fail_at_third(view: Any, folder: Path, **facts: str) -> Any:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(view.name)
        return await write(view, folder, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(work, "write_snapshot", fail_at_third)
        assert "No space left on device" in run("backup", tmp_path / "b", status=2)
    assert "it was interrupted; `turnwise backup` " in run("restore", tmp_path / "b", status=2)
    with (tmp_path / "b" / "unfinished.jsonl").open("a") as file:
        file.write('{"namesp')  # a line that was cut off
    live.put("/pools/default", {"description": "New"})
    said = run("backup", tmp_path / "b")
    assert "pool bar/default: saved before\npool shop/default: version 1" in said
    assert "holds a complete backup" in run("backup", tmp_path / "b", status=2)
    flush(live)
    run("restore", tmp_path / "b")
    eventually(lambda: live.http.get("/pools/third").is_success)
    assert live.get("/pools/default")["description"] == "New"


def test_an_empty_redis_makes_no_backup(run: Run, tmp_path: Path) -> None:
    assert "there is no pool in this Redis" in run("backup", tmp_path / "b", status=2)
    assert "holds no complete backup" in run("restore", tmp_path / "b", status=2)


DAMAGES = [
    ("backup.json", "removed"),
    ("backup.json", "longer"),
    ("pools/shop/default/manifest.json", "removed"),
    ("pools/shop/default/manifest.json", "longer"),
    ("pools/shop/default/candidates.jsonl", "longer"),
    ("pools/shop/default/vectors.npy", "shorter"),
]


def damage(file: Path, how: str) -> None:
    whole = file.read_bytes()
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(whole[:-1] if how == "shorter" else whole + b"}")


def test_a_broken_backup_is_refused_before_anything_changes(
    live: Live, run: Run, tmp_path: Path
) -> None:
    run("backup", tmp_path / "whole")
    flush(live)
    for number, (file, how) in enumerate(DAMAGES):
        broken = Path(shutil.copytree(tmp_path / "whole", tmp_path / f"broken-{number}"))
        damage(broken / file, how)
        assert "holds no complete backup: " in run("restore", broken, status=2), (file, how)
    assert size(live) == 0


def test_limits_apply_to_what_is_restored(
    live: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.fill(pool="second")
    run("backup", tmp_path / "b")
    for limit, why in {
        "MAX_POOL_SIZE": "candidates are more than the limit of 1",
        "MAX_POOLS": "may have 1",
        "MAX_POOLS_BYTES": "more than the limit of 1;",
    }.items():
        flush(live)
        with monkeypatch.context() as patch:
            patch.setenv(f"TURNWISE_{limit}", "1")
            assert why in run("restore", tmp_path / "b", status=2)


def test_a_name_cannot_be_a_pool_and_an_alias(live: Live, run: Run, tmp_path: Path) -> None:
    live.fill(pool="second")
    live.put("/pools/front/alias", {"to": "default"})
    run("backup", tmp_path / "b")
    flush(live)
    eventually(lambda: live.http.get("/pools/default").status_code == 404)
    live.fill(pool="front")
    line = run("restore", tmp_path / "b", status=2)
    assert "shop/front is an alias in the backup, and a pool in this Redis" in line
    assert live.http.delete("/pools/front").status_code == 204
    live.fill()
    live.put("/pools/second/alias", {"to": "default"})
    line = run("restore", tmp_path / "b", status=2)
    assert "shop/second is a pool in the backup, and an alias in this Redis" in line
    assert size(live) == 1
    manifest = json.loads((tmp_path / "b" / "backup.json").read_text())
    assert manifest["aliases"] == [{"namespace": "shop", "name": "front", "pool": "default"}]


def test_pools_that_cannot_be_saved_are_named_and_the_others_are_saved(
    live: Live, run: Run, tmp_path: Path
) -> None:
    live.put("/pools/front/alias", {"to": "default"})
    with blocking.Redis.from_url(live.redis_url) as redis:
        redis.unlink(*redis.keys(pool_key("shop", "default", "chunk:*")))
        redis.sadd("tw:missing:{tw:pools}", "shop/lost")
    said = run("backup", tmp_path / "b", status=2)
    assert "error: 3 pools or aliases could not be saved: shop/default: a part of pool" in said
    assert (
        "shop/front: it is an alias of 'default', which is not saved; shop/lost: Redis lost" in said
    )
    flush(live)
    assert "restored 1 pool and 0 aliases" in run("restore", tmp_path / "b")
    assert size(live) == 1

"""The journal of running services, and what is made of it."""

import json
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis as blocking
from typer.testing import CliRunner

from tests.support.clock import move_clock
from tests.support.messages import REPLIES
from tests.support.redis_keys import session_key
from tests.support.service import InNamespace, Launch, Live, Turnwise
from tests.support.waiting import eventually
from turnwise.models.dialogue_files import read_dialogues
from turnwise.service.app import server
from turnwise.service.cli.main import app
from turnwise.service.journal import DeletionLine, UndoLine, writer
from turnwise.service.journal.lines import dump
from turnwise.service.settings import Settings, SettingsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def say(live: Live, *texts: str, session: str = "s") -> None:
    for text in texts:
        live.turn(session, "user", text, respond=False)


def ids(answer: dict[str, Any]) -> list[str]:
    return [candidate["id"] for candidate in answer["candidates"]]


def run(*arguments: object) -> str:
    """Run `turnwise journal`; return what it says."""
    ended = CliRunner().invoke(app, ["journal", *map(str, arguments)])
    assert ended.exit_code == 0, ended.output
    return ended.output


def exported(out: Path, *folders: object) -> dict[str, list[dict[str, Any]]]:
    run("export", *folders, "--out", out)
    read = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    return {dialogue["id"]: dialogue["utterances"] for dialogue in read}


def texts(utterances: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(said["speaker"], said["text"]) for said in utterances]


def test_a_line_tells_all_of_a_turn(launch: Launch, folder: Path) -> None:
    live = launch(journal=folder)
    live.fill()
    live.turn("s", "user", "Where", commit=False)  # has none
    live.put("/sessions/s", {"where": {"kind": {"exists": False}}})
    answer = live.turn("s", "user", "Where is it?", top_k=2, where={"none": [{"x": 1}]})
    live.feedback(ids(answer)[1], "edited", text="Here.")
    live.stop()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    turn, feedback = lines(folder)
    assert turn.pop("at") <= feedback.pop("at")
    assert turn.pop("version") == feedback.pop("version")
    of_session = {"namespace": "default", "session": "s", "turn": 1}
    offered = [{name: c[name] for name in ("id", "text", "score")} for c in answer["candidates"]]
    assert turn == of_session | {
        "what": "turn",
        "speaker": "user",
        "text": "Where is it?",
        "responder": "bot",
        "model": answer["model"],
        "pool": answer["pool"],
        "offered": offered,
        "where": {"all": [{"kind": {"exists": False}}, {"none": [{"x": 1}]}]},
    }
    event = {"candidate": ids(answer)[1], "event": "edited", "text": "Here."}
    assert feedback == of_session | {"what": "feedback"} | event


def test_the_lines_of_two_replicas_make_dialogues(
    launch: Launch, folder: Path, tmp_path: Path
) -> None:
    one = launch(journal=folder / "1")
    two = launch(journal=folder / "2")
    one.fill()
    first = one.turn("s", "user", "Hello", top_k=3)
    two.feedback(ids(first)[1], "chosen")
    one.feedback(ids(first)[2], "rejected")
    two.turn("s", "bot", first["candidates"][1]["text"])
    second = one.turn("s", "user", "My parcel is late.", top_k=3)
    for candidate in ids(second)[:2]:
        two.feedback(candidate, "shown", turn=3)
    two.feedback(ids(second)[1], "chosen", turn=3)
    one.feedback(ids(second)[0], "edited", turn=3, text="It comes today.")
    one.turn("s", "user", "Really?", respond=False)
    two.delete("/sessions/s/turns/last")
    one.turn("s", "user", "Thank you!", respond=False)
    one.turn("t", "user", "Sorry, wrong number.", respond=False)
    two.delete("/sessions/t/turns/last")
    one.stop()
    two.stop()
    out = tmp_path / "out.jsonl"
    offers = [[each["text"] for each in answer["candidates"]] for answer in (first, second)]
    chosen = {"chosen": offers[0][1], "shown": offers[0], "rejected": [offers[0][2]]}
    edited = {"chosen": offers[1][0], "shown": offers[1][:2]}
    expected = [
        {"speaker": "user", "text": "Hello"},
        {"speaker": "bot", "text": offers[0][1], **chosen},
        {"speaker": "user", "text": "My parcel is late."},
        {"speaker": "bot", "text": "It comes today.", **edited},
        {"speaker": "user", "text": "Thank you!"},
    ]
    assert exported(out, folder / "1", folder / "2") == {"default/s": expected}
    (dialogue,) = read_dialogues(out)
    assert [(u.speaker, u.text) for u in dialogue.utterances] == texts(expected)


def test_the_dialogues_of_one_pool_have_its_choices_alone(
    launch: Launch, folder: Path, tmp_path: Path
) -> None:
    live = launch(journal=folder)
    for pool in ("shop", "bank"):
        live.fill(pool=pool)
    for session, pools in {"a": ["shop", "bank"], "b": ["bank"]}.items():
        for pool in pools:
            answer = live.turn(session, "user", f"Hello, {pool}!", pool=pool, top_k=2)
            live.feedback(ids(answer)[0], "chosen", session=session, turn=answer["turn"])
            live.turn(session, "bot", answer["candidates"][0]["text"])
    say(live, "No pool answers this.", session="c")
    live.stop()

    def choices(*options: str) -> dict[str, list[bool]]:
        found = exported(tmp_path / "out.jsonl", folder, *options)
        return {name: ["chosen" in reply for reply in said[1::2]] for name, said in found.items()}

    assert choices("--pool", "shop") == {"default/a": [True, False]}
    assert choices("--pool", "bank") == {"default/a": [False, True], "default/b": [True]}
    assert choices() == {"default/a": [True, True], "default/b": [True], "default/c": []}


def test_what_was_deleted_is_not_exported_and_is_compacted(
    launch: Launch, folder: Path, tmp_path: Path
) -> None:
    live = launch(journal=folder, api_keys=[InNamespace.KEY])
    live.app.name = "default"
    for session in ("s", "t", "u1", "u2", "v1"):
        say(live, f"I am {session}.", session=session)
    with blocking.Redis.from_url(live.redis_url) as redis:  # of a replica whose clock is ahead
        for session in ("u2", "v1"):
            redis.hincrby(session_key("default", session, "meta"), "version", 10**9)
    for session in ("u2", "v1"):
        say(live, "I go on.", session=session)
    assert live.http.delete("/sessions/s").is_success
    say(live, "I am new.")
    with blocking.Redis.from_url(live.redis_url) as redis:  # as if it had expired
        redis.delete(*redis.keys("*{default/u1}*"))
    for user in ("u1", "u2"):
        assert live.http.delete(f"/sessions/{user}").status_code == {"u1": 404, "u2": 204}[user]
    assert live.http.delete("/sessions", params={"prefix": "v"}).is_success
    eventually(lambda: len(lines(folder)) == 13)
    expected = {"default/s": [("user", "I am new.")], "default/t": [("user", "I am t.")]}
    out = tmp_path / "out.jsonl"
    assert {name: texts(said) for name, said in exported(out, folder).items()} == expected
    assert "1 file still being written" in run("compact", folder)
    say(live, "Still here.", session="t")
    live.stop()
    (file,) = folder.iterdir()
    (folder / ".new-1").mkdir()
    (folder / ".new-1" / file.name).write_text("what a crash left")
    assert run("compact", folder) == "6 lines removed from 1 file\n"
    assert [*folder.iterdir()] == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "I am s." not in file.read_text()
    assert "I am u1." not in file.read_text()
    expected["default/t"].append(("user", "Still here."))
    assert {name: texts(said) for name, said in exported(out, folder).items()} == expected
    assert run("compact", folder) == "0 lines removed from 0 files\n"


def test_a_replica_whose_clock_is_ahead_deletes_no_later_line(
    launch: Launch, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = launch(journal=folder, api_keys=[InNamespace.KEY])
    live.app.name = "default"
    with monkeypatch.context() as patch:
        move_clock(patch, 300.0)
        say(live, "I am deleted.")
        assert live.http.delete("/sessions/s").is_success
        assert live.http.delete("/sessions/t").status_code == 404  # the journal may hold it
        assert live.http.delete("/sessions", params={"prefix": "u"}).is_success
    for session in ("s", "t", "u1"):
        say(live, "I am new.", session=session)
    live.stop()
    found = exported(tmp_path / "out.jsonl", folder)
    assert {texts(said)[0][1] for said in found.values()} == {"I am new."}
    assert len(found) == 3


def test_a_torn_line_and_a_lost_one_break_no_dialogue(
    launch: Launch, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = launch(journal=folder)
    for number in range(1, 6):
        live.turn("s", "AB"[number % 2], f"Text {number}.", respond=False)
    live.stop()
    (file,) = folder.iterdir()
    written = file.read_bytes().splitlines(keepends=True)
    (folder / "0.jsonl").write_bytes(
        b"".join([written[3], b'{"torn\n', written[2], written[0], written[1][:40]])
    )
    file.write_bytes(b"".join([*written[4:], written[4][:-1], written[4][:20]]))
    out = tmp_path / "out.jsonl"
    parts = exported(out, folder)
    assert {name: [text for _, text in texts(said)] for name, said in parts.items()} == {
        "default/s": ["Text 1."],
        "default/s-2": ["Text 3.", "Text 4.", "Text 5."],
    }
    assert "not a line of a journal" in caplog.text


def test_lines_of_a_later_release_stay_and_deleted_ones_go(folder: Path) -> None:
    def undo(session: str) -> UndoLine:
        return UndoLine(namespace="n", session=session, version=1, turn=1)

    folder.mkdir()
    later = b'{"what":"handover","at":1.0,"namespace":"n","session":"bo","to":"human"}\n'
    deleted = [undo("ada-1"), undo("a")]
    kept = [
        undo("ad"),
        undo("eve"),
        DeletionLine(namespace="n", prefix="ada-", version=1),
        DeletionLine(namespace="n", prefix="a-longer-one", version=1),
        DeletionLine(namespace="n", session="a", version=1),
        DeletionLine(namespace="other", prefix="", version=1),
    ]
    written = later + b"".join(map(dump, kept))
    (folder / "0.jsonl").write_bytes(b"".join(map(dump, deleted)) + written + b'{"torn')
    assert run("compact", folder) == "2 lines removed from 1 file\n"
    assert (folder / "0.jsonl").read_bytes() == written


def test_a_file_ends_at_an_age(
    launch: Launch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FILE_SECONDS", 0.0)
    live = launch(journal=folder)
    say(live, "One.", "Two.", "Three.")
    eventually(lambda: len(lines(folder)) == 3)
    assert len([*folder.iterdir()]) == 3
    assert run("compact", folder) == "0 lines removed from 0 files\n"
    live.http.delete("/sessions/s")
    eventually(lambda: len(lines(folder)) == 4)
    eventually(lambda: run("compact", folder) == "3 lines removed from 3 files\n")


def test_a_journal_that_cannot_be_written_costs_its_lines_and_no_turn(
    launch: Launch, folder: Path
) -> None:
    live = launch(journal=folder)
    shutil.rmtree(folder)
    folder.touch()
    lost = live.increase("turnwise_journal_lines_lost_total", reason="disk")
    say(live, "One.", "Two.", "Three.")
    eventually(lambda: lost() == 3)
    folder.unlink()
    say(live, "The disk is back.")
    live.stop()
    assert [line["text"] for line in lines(folder)] == ["The disk is back."]


HOOK = """
def hide(text):
    if "fail" in text:
        raise RuntimeError("no")
    return 1 if "number" in text else text.replace("Ada", "[name]")
"""


def test_every_text_passes_the_hook_and_a_failure_costs_its_line(
    launch: Launch,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log_lines: Callable[[], list[dict[str, Any]]],
) -> None:
    (tmp_path / "hooks_of_a_test.py").write_text(HOOK)
    monkeypatch.syspath_prepend(tmp_path)
    live = launch(journal=folder, redact="hooks_of_a_test:hide")
    live.fill([*REPLIES[2:], "Hello Ada!"])
    lost = live.increase("turnwise_journal_lines_lost_total", reason="not_redacted")
    answer = live.turn("s", "user", "I am Ada.", top_k=len(REPLIES))
    live.feedback(ids(answer)[0], "edited", text="Ada?")
    live.feedback(ids(answer)[1], "rejected")
    say(live, "Please fail.", "A number.")
    eventually(lambda: lost() == 2)
    live.stop()
    failed = [line for line in log_lines() if "redaction hook" in line["message"]]
    assert all({"request_id", "namespace", "exception"} <= line.keys() for line in failed)
    assert len(failed) == 2
    turn, edited, rejected = lines(folder)
    assert (turn["text"], edited["text"]) == ("I am [name].", "[name]?")
    assert (rejected["event"], rejected["text"]) == ("rejected", None)
    assert "Hello [name]!" in [each["text"] for each in turn["offered"]]


def test_a_folder_without_a_journal_is_named(turnwise: Turnwise, tmp_path: Path) -> None:
    for words in (("export", tmp_path, "--out", tmp_path / "out.jsonl"), ("compact", tmp_path)):
        ended = turnwise("journal", *words)
        assert (ended.status, f"{tmp_path}: no journal in it" in ended.err) == (2, True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"redact": "json:no_such_function"}, "cannot be loaded: module 'json' has no"),
        ({"redact": "json:__name__"}, "'json:__name__' is not a function"),
        ({"journal": "/dev/null/journal"}, "TURNWISE_JOURNAL: .*Not a directory"),
    ],
)
def test_a_journal_that_cannot_begin_fails_the_start(
    data_folder: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        server.run(Settings.model_validate({"port": 0, "data_dir": data_folder, **settings}))


def test_a_file_ends_at_a_size(
    launch: Launch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FILE_BYTES", 1000)
    say(launch(journal=folder), *(f"Text {number}." for number in range(9)))
    eventually(lambda: len(lines(folder)) == 9)
    assert max(file.stat().st_size for file in folder.iterdir()) <= 1000
    assert [line["turn"] for line in lines(folder)] == [*range(1, 10)]

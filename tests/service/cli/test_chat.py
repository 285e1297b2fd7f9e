"""`turnwise chat` with lines that come from a file."""

import io
import re
from collections.abc import Callable

import pytest

from tests.support.messages import REPLIES
from tests.support.service import Live, Turnwise

Chat = Callable[..., str]


@pytest.fixture
def chat(live: Live, turnwise: Turnwise, monkeypatch: pytest.MonkeyPatch) -> Chat:
    """Run `turnwise chat` with some lines; return what it shows."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(
        *lines: str, session: str = "s", options: tuple[str, ...] = (), keyboard: bool = False
    ) -> str:
        given = io.StringIO("".join(line + "\n" for line in lines))
        monkeypatch.setattr(given, "isatty", lambda: keyboard)
        monkeypatch.setattr("sys.stdin", given)
        named = ("--session", session) if session else ()
        ended = turnwise("chat", "--url", live.url, *named, *options)
        assert not ended.status, ended.err
        return ended.out

    return run


def said(live: Live) -> list[tuple[str, str]]:
    return [(p["speaker"], p["text"]) for p in live.get("/sessions/s")["transcript"]]


def offered(out: str) -> list[str]:
    """Replies of the tables, in the order shown."""
    return re.findall(r"^ +\d+ +-?\d\.\d{3} +(.*?) *$", out, re.MULTILINE)


def test_candidates_are_shown_and_picked_by_number(chat: Chat, live: Live) -> None:
    out = chat("Where is my parcel?", "2", "Thanks", "", options=("--top-k", "3"))
    shown = offered(out)
    assert len(shown) == 6
    assert said(live) == [
        ("user", "Where is my parcel?"),
        ("bot", shown[1]),
        ("user", "Thanks"),
        ("bot", shown[3]),
    ]
    assert "user> Where is my parcel?\n" in out


def test_undo_offers_the_candidates_again(chat: Chat, live: Live) -> None:
    out = chat("Hello", "1", "/undo", "3", "/undo", "/undo", "Good evening")
    shown = offered(out)
    assert shown[:5] == shown[5:10] == shown[10:15]
    assert said(live) == [("user", "Good evening")]
    assert f"undone: bot: {shown[7]}" in out


def test_a_goal_ranks_and_can_be_ended(chat: Chat, live: Live) -> None:
    out = chat("Hello", "/goal Thank you!", "/goal", options=("--top-k", str(len(REPLIES))))
    shown = offered(out)
    n = len(REPLIES)
    assert shown[:n] == shown[2 * n :]
    assert sorted(shown[n : 2 * n]) == sorted(REPLIES)
    assert "toward: Thank you!" in out
    goals = [{"text": "Thank you!", "speaker": "user"}]
    ranking = live.post("/rank", session_id="s", pool="default", goals=goals)["ranking"]
    assert shown[n : 2 * n] == [ranked["text"] for ranked in ranking]
    assert "toward: Bye [now]" in chat("Hello", options=("--goal", "Bye [now]"))


def test_explain_shows_what_each_utterance_contributes(chat: Chat, live: Live) -> None:
    out = chat("Hello", "1", "Where is it?", "/explain 2")
    shares = re.findall(r"^ +([+-]\d\.\d{3}) .*?(user|bot): (.*?) *$", out, re.MULTILINE)
    assert [(speaker, text) for _, speaker, text in shares] == said(live)
    score = re.findall(r"^ +2 +(-?\d\.\d{3}) ", out, re.MULTILINE)[-1]
    assert sum(float(share) for share, *_ in shares) == pytest.approx(float(score), abs=2e-3)


def test_slots_get_values_and_lose_them(chat: Chat, live: Live) -> None:
    live.make_pool("hi", [{"text": "Hi {name}, it is {day}!"}])
    live.put("/sessions/s", {"slots": {"day": "Monday"}})
    lines = (
        "Hello",
        "/slot",
        "/slot name = Ada = B",
        "1",
        "/slot name=",
        "/slot 1x=y",
        "/slot day",
    )
    out = chat(*lines, options=("--pool", "hi"))
    assert "has slots without a value: name" in out
    assert "is empty" not in out
    assert offered(out) == ["Hi Ada = B, it is Monday!"]
    assert re.findall("^slots: (.*)", out, re.MULTILINE) == [
        "day=Monday",
        "day=Monday, name=Ada = B",
        "day=Monday",
        "none",
    ]
    assert "1x: use up to 64 letters, digits and _" in out
    assert said(live)[-1] == ("bot", "Hi Ada = B, it is Monday!")
    assert "slots" not in live.get("/sessions/s")


def test_an_invalid_line_is_reported_and_the_chat_continues(chat: Chat, live: Live) -> None:
    out = chat("/undo", "/explain 1", "/dance", "Hello", "99", "x" * 33_000, "/explain x", "1")
    assert "no candidates yet" in out
    assert "/quit" in out
    assert out.count("there is no candidate") == 2
    assert "should have at most 32000 characters" in out
    assert len(said(live)) == 2


def test_quit_ends_it_and_without_a_name_the_session_is_forgotten(chat: Chat, live: Live) -> None:
    chat("Hello", "/quit", "1")
    assert said(live) == [("user", "Hello")]
    deleted = live.increase("turnwise_requests_total", method="DELETE", status="204")
    chat("Hello", session="")
    assert deleted() == 1

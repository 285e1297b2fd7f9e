"""Choices that teach: what a candidate learns, when it does not, and how to remove it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import REPLIES, problem, write_lines
from tests.support.service import Launch, Live, Turnwise
from turnwise.service.use_cases import learning

ASKED = "Where on earth is my parcel?"


@pytest.fixture(autouse=True)
def _no_near_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the tiny model all short texts are near copies of each other."""
    monkeypatch.setattr(learning, "NEAR_COPY", 2.0)


def teach(
    live: Live, said: str = ASKED, session: str = "s", *, event: str = "chosen", **fields: object
) -> bool | None:
    """Ask, and give feedback on candidate r4; return whether it has learned what was asked."""
    turn = live.turn(session, "user", said, top_k=len(REPLIES))["turn"]
    return live.feedback("r4", event, session=session, turn=turn, **fields).get("learned")


def learned(live: Live, pool: str = "default") -> list[tuple[str, str]]:
    """The candidates that have learned something, and what, oldest first."""
    found = live.get(f"/pools/{pool}/learned")["learned"]
    return [(each["candidate"], each["text"]) for each in reversed(found)]


@pytest.mark.parametrize("fields", [{}, {"event": "edited", "text": "It comes today."}])
def test_a_choice_teaches_the_candidate_what_was_said_before(
    live: Live, fields: dict[str, str]
) -> None:
    assert teach(live, learn=True, **fields)
    (example,) = live.get("/pools/default/learned")["learned"]
    assert example.pop("at") > 0
    assert example == {"candidate": "r4", "text": ASKED}


def test_the_same_choice_again_changes_nothing(live: Live) -> None:
    assert teach(live) is None
    assert live.feedback("r4", "chosen", learn=True)["learned"] is True
    version = live.get("/pools/default")["version"]
    assert live.feedback("r4", "chosen", learn=True)["learned"] is True
    assert teach(live, ASKED.upper() + "!", "t", learn=True)
    assert live.get("/pools/default")["version"] == version
    assert learned(live) == [("r4", ASKED)]


@pytest.mark.parametrize(
    ("fields", "teaches"), [({}, True), ({"learn": False}, None), ({"event": "rejected"}, None)]
)
def test_a_pool_may_learn_from_every_choice(
    live: Live, fields: dict[str, Any], teaches: bool | None
) -> None:
    assert live.put("/pools/default", {"learn": "chosen"})["learn"] == "chosen"
    assert teach(live, **fields) is teaches
    live.put("/pools/default", {"learn": None})
    assert teach(live, "And now?", "t") is None


def test_a_near_copy_of_an_example_is_not_learned(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert teach(live, learn=True)
    monkeypatch.setattr(learning, "NEAR_COPY", -1.0)
    assert teach(live, "Something else", "t", learn=True)
    assert learned(live) == [("r4", ASKED)]


def test_feedback_is_kept_where_its_candidate_is_gone(live: Live) -> None:
    live.turn("s", "user", ASKED, top_k=len(REPLIES))
    live.delete("/pools/default/candidates/r4")
    assert live.feedback("r4", "chosen", learn=True)["learned"] is False
    assert len(live.get("/sessions/s")["feedback"]) == 1


def test_the_responder_s_own_utterance_is_not_learned(live: Live) -> None:
    live.turn("s", "bot", "Hello", respond=True, top_k=len(REPLIES))
    assert live.feedback("r4", "chosen", learn=True)["learned"] is False
    assert learned(live) == []


def test_learned_examples_can_be_removed_alone(live: Live) -> None:
    for text in ("One?", "Two?", "Three?"):
        teach(live, text, text[:-1], learn=True)
    query = {"candidate": "r4", "text": "Two?"}
    removed = live.delete("/pools/default/learned", **query)
    assert removed["removed"] == 1
    assert [text for _, text in learned(live)] == ["One?", "Three?"]
    live.ok(live.http.delete("/pools/default/learned", params={"candidate": "r4"}))
    assert learned(live) == []
    answer = live.http.delete("/pools/default/learned", params={"candidate": "r99"})
    assert problem(answer) == (404, "candidate-not-found")


def test_a_deletion_removes_what_came_from_the_sessions_of_a_user(
    live: Live, turnwise: Turnwise
) -> None:
    live.fill(pool="other")
    teach(live, "One?", "u1-a", learn=True)
    live.turn("u1-b", "user", "Two?", pool="other", top_k=len(REPLIES))
    live.feedback("r4", "chosen", session="u1-b", learn=True)
    teach(live, "Three?", "u2-a", learn=True)
    options = ("--url", live.url, "--key", "tests", "--namespace", live.namespace)
    ended = turnwise("session", "delete", "u1-", "--learned", *options)
    assert ended.out == "sessions deleted: 2\nlearned examples removed: 2\n"
    assert (learned(live), learned(live, "other")) == ([("r4", "Three?")], [])


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A redaction hook that hides numbers, lengthens names, and fails on some texts."""
    code = (
        "def f(text):\n"
        "    assert 'fail' not in text\n"
        "    return text.replace('5521', '0').replace('Ada', 'X' * 2001)\n"
    )
    (tmp_path / "hiding_hook.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield "hiding_hook:f"
    sys.modules.pop("hiding_hook", None)


def test_the_redaction_hook_sees_first_what_is_learned(launch: Launch, hook: str) -> None:
    live = launch(redact=hook)
    live.fill()
    assert teach(live, "Where is 5521?", learn=True) is True
    assert teach(live, "Does it fail?", "t", learn=True) is False
    assert teach(live, "I am Ada.", "u", learn=True) is False  # too long now
    assert learned(live) == [("r4", "Where is 0?")]
    assert len(live.get("/sessions/t")["feedback"]) == 1


def test_examples_of_a_journal_are_proposed_and_added(
    launch: Launch, turnwise: Turnwise, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    live = launch(journal=folder)
    live.fill()
    live.put("/pools/default", {"learn": "chosen"})
    for number, text in enumerate([ASKED, ASKED.lower(), "Is it late?", "Is it?", "Is it?"]):
        event = "rejected" if text == "Is it?" else "chosen"
        teach(live, text, f"s{number}", event=event)
    for number in (3, 4):
        live.post(f"/sessions/s{number}/turn", speaker="bot", candidate="r2", text="Yes.")
    live.stop()
    proposed = turnwise("pool", "learn", "--journal", folder, "--pool", "default").out
    lines = [json.loads(line) for line in proposed.splitlines()]
    assert lines == [
        {"id": "r2", "text": REPLIES[2], "examples": ["Is it?"]},
        {"id": "r4", "text": REPLIES[4], "examples": [ASKED.lower()]},
    ]
    once = turnwise("pool", "learn", "--journal", folder, "--pool", "default", "--min-times", "1")
    assert "Is it late?" in once.out
    none = turnwise("pool", "learn", "--journal", folder, "--pool", "default", "--min-times", "3")
    assert none.out == ""
    assert "no proposal" in none.err


def test_examples_are_added_to_candidates_and_change_nothing_else(
    live: Live, turnwise: Turnwise, tmp_path: Path
) -> None:
    given = {"id": "r4", "text": "By card.", "metadata": {"topic": "pay"}, "group": "pay"}
    item = given | {"examples": ["How can I pay?"]}
    live.put("/pools/default/candidates", [item])
    teach(live, "And cash?", learn=True)
    line = {"id": "r4", "text": "B- ----", "examples": ["How can I pay", "And cash", "Visa?"]}
    file = write_lines(tmp_path / "proposals.jsonl", line)
    load = ("pool", "load", file, "--pool", "default", "--add-examples", "--url", live.url)
    assert "(1 new or changed, 0 as before)" in turnwise(*load).out
    assert "(0 new or changed, 1 as before)" in turnwise(*load).out
    assert learned(live) == []
    item["examples"] = ["How can I pay?", "And cash", "Visa?"]
    again = live.put("/pools/default/candidates", [item])
    assert again["unchanged"] == 1
    unknown = write_lines(tmp_path / "unknown.jsonl", line | {"id": "r99"})
    words = ("pool", "load", unknown, "--pool", "default", "--add-examples", "--url", live.url)
    assert "has no candidate 'r99'" in turnwise(*words).err

"""Choices that teach: what a candidate learns, when it does not, and how to remove it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.messages import REPLIES, problem, write_lines, wrong
from tests.support.service import Launch, Live, Turnwise, api_key
from tests.support.waiting import eventually
from turnwise.service.use_cases import learning
from turnwise.service.wire.pools import MOST_EXAMPLES

ASKED = "Where on earth is my parcel?"


@pytest.fixture(autouse=True)
def _no_near_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the tiny model all short texts are near copies of each other."""
    monkeypatch.setattr(learning, "NEAR_COPY", 2.0)


def choose(
    live: Live, session: str = "s", said: str = ASKED, *, event: str = "chosen", **fields: object
) -> dict[str, object]:
    """Ask, and give feedback on candidate r4."""
    turn = live.turn(session, "user", said, top_k=len(REPLIES))["turn"]
    body = {"candidate": "r4", "event": event, **fields}
    return live.post(f"/sessions/{session}/turns/{turn}/feedback", **body)


def learned(live: Live, pool: str = "default") -> list[tuple[str, str]]:
    """The candidates that have learned something, and what, oldest first."""
    found = live.get(f"/pools/{pool}/learned")["learned"]
    return [(each["candidate"], each["text"]) for each in reversed(found)]


@pytest.mark.parametrize("fields", [{}, {"event": "edited", "text": "It comes today."}])
def test_a_choice_teaches_the_candidate_what_was_said_before(
    live: Live, fields: dict[str, str]
) -> None:
    assert choose(live, learn=True, **fields)["learned"] is True
    (example,) = live.get("/pools/default/learned")["learned"]
    assert example.pop("at") > 0
    assert example == {"candidate": "r4", "text": ASKED}


def test_turns_that_follow_each_other_are_one_utterance(live: Live) -> None:
    live.turn("s", "user", "Hello?", respond=False)
    choose(live, said="Anybody there?", learn=True)
    assert learned(live) == [("r4", "Hello? Anybody there?")]


def test_the_same_choice_again_changes_nothing(live: Live) -> None:
    choose(live, learn=True)
    version = live.get("/pools/default")["version"]
    body = {"candidate": "r4", "event": "chosen", "learn": True}
    assert live.post("/sessions/s/turns/1/feedback", **body)["learned"] is True
    assert choose(live, "t", ASKED.upper() + "!", learn=True)["learned"] is True
    assert live.get("/pools/default")["version"] == version
    assert learned(live) == [("r4", ASKED)]


def test_a_choice_that_did_not_teach_can_be_sent_again_to_teach(live: Live) -> None:
    assert "learned" not in choose(live)
    body = {"candidate": "r4", "event": "chosen", "learn": True}
    assert live.post("/sessions/s/turns/1/feedback", **body)["learned"] is True


@pytest.mark.parametrize(
    ("fields", "teaches"), [({}, True), ({"learn": False}, False), ({"event": "rejected"}, False)]
)
def test_a_pool_may_learn_from_every_choice(
    live: Live, fields: dict[str, object], teaches: bool
) -> None:
    assert live.put("/pools/default", {"learn": "chosen"})["learn"] == "chosen"
    assert choose(live, **fields).get("learned", False) is teaches
    live.put("/pools/default", {"learn": None})
    assert "learned" not in choose(live, "t", "And now?")


def test_other_events_cannot_teach(live: Live) -> None:
    live.turn("s", "user", ASKED)
    body = {"candidate": "r4", "event": "shown", "learn": True}
    assert wrong(live.http.post("/sessions/s/turns/1/feedback", json=body)) == [["body", "learn"]]


def test_a_near_copy_of_an_example_is_not_learned(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(live, learn=True)
    monkeypatch.setattr(learning, "NEAR_COPY", -1.0)
    assert choose(live, "t", "Something else", learn=True)["learned"] is True
    assert learned(live) == [("r4", ASKED)]


def test_what_the_responder_said_is_not_learned(live: Live) -> None:
    turn = live.turn("s", "bot", "Hello", respond=True, top_k=len(REPLIES), repeat=True)["turn"]
    body = {"candidate": "r4", "event": "chosen", "learn": True}
    assert live.post(f"/sessions/s/turns/{turn}/feedback", **body)["learned"] is False


def test_feedback_is_kept_where_its_candidate_is_gone(live: Live) -> None:
    live.turn("s", "user", ASKED, top_k=len(REPLIES))
    live.delete("/pools/default/candidates/r4")
    body = {"candidate": "r4", "event": "chosen", "learn": True}
    assert live.post("/sessions/s/turns/1/feedback", **body)["learned"] is False
    assert len(live.get("/sessions/s")["feedback"]) == 1


def test_other_replicas_learn_as_well(launch: Launch) -> None:
    live = launch()
    other = launch()
    live.fill()
    other.get("/pools/default")
    choose(live, learn=True)
    eventually(lambda: learned(other) == [("r4", ASKED)])


def test_a_candidate_forgets_the_oldest_that_it_learned(live: Live) -> None:
    given = [f"question {number}" for number in range(MOST_EXAMPLES - 2)]
    item = {"id": "r4", "text": REPLIES[4], "examples": given}
    live.put("/pools/default/candidates", [item])
    for text in ("One?", "Two?", "Three?"):
        choose(live, text[:-1], text, learn=True)
    assert [text for _, text in learned(live)] == ["Two?", "Three?"]


def test_an_upload_keeps_what_was_learned(live: Live) -> None:
    choose(live, learn=True)
    choose(live, "t", "Hello?", learn=True)
    item = {"id": "r4", "text": REPLIES[4]}
    again = live.put("/pools/default/candidates", [item])
    assert (again["upserted"], again["unchanged"]) == (0, 1)
    item |= {"text": "Another text.", "examples": [ASKED.upper()]}
    live.put("/pools/default/candidates", [item])
    assert learned(live) == [("r4", "Hello?")]


def test_learned_examples_can_be_removed_alone(live: Live) -> None:
    for text in ("One?", "Two?", "Three?"):
        choose(live, text[:-1], text, learn=True)
    query = {"candidate": "r4", "text": "Two?"}
    removed = live.delete("/pools/default/learned", **query)
    assert removed["removed"] == 1
    assert [text for _, text in learned(live)] == ["One?", "Three?"]
    live.ok(live.http.delete("/pools/default/learned", params={"candidate": "r4"}))
    assert learned(live) == []
    answer = live.http.delete("/pools/default/learned", params={"candidate": "r99"})
    assert problem(answer) == (404, "candidate-not-found")


def test_a_deletion_removes_what_came_from_the_sessions_of_a_user(
    launch: Launch, turnwise: Turnwise
) -> None:
    live = launch(api_keys=[api_key("boss", "admin", "pools", "select")])
    live.http.headers["Authorization"] = "Bearer boss"
    live.fill()
    live.fill(pool="other")
    choose(live, "u1-a", "One?", learn=True)
    live.turn("u1-b", "user", "Two?", pool="other", top_k=len(REPLIES))
    body = {"candidate": "r4", "event": "chosen", "learn": True}
    live.post("/sessions/u1-b/turns/1/feedback", **body)
    choose(live, "u2-a", "Three?", learn=True)
    words = ("session", "delete", "u1-", "--learned", "--url", live.url, "--key", "boss")
    assert turnwise(*words).out == "sessions deleted: 2\nlearned examples removed: 2\n"
    assert (learned(live), learned(live, "other")) == ([("r4", "Three?")], [])


def test_teaching_needs_the_scope_pools(launch: Launch) -> None:
    keys = [api_key("reader", "select"), api_key("boss", "admin")]
    live = launch(api_keys=keys)
    live.http.headers.update({"Authorization": "Bearer boss", "Turnwise-Namespace": "reader"})
    live.fill()
    live.http.headers.update({"Authorization": "Bearer reader"})
    live.turn("s", "user", ASKED, top_k=len(REPLIES))
    body = {"candidate": "r4", "event": "chosen", "learn": True}
    answer = live.http.post("/sessions/s/turns/1/feedback", json=body)
    assert problem(answer) == (403, "forbidden")
    assert live.get("/sessions/s")["feedback"] == []


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
    assert choose(live, said="Where is 5521?", learn=True)["learned"] is True
    assert choose(live, "t", "Does it fail?", learn=True)["learned"] is False
    assert choose(live, "u", "I am Ada.", learn=True)["learned"] is False  # too long now
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
        turn = {"event": "rejected"} if text == "Is it?" else {}
        choose(live, f"s{number}", text, **turn)
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


def test_examples_are_added_to_candidates_and_change_nothing_else(
    live: Live, turnwise: Turnwise, tmp_path: Path
) -> None:
    given = {"id": "r4", "text": "By card.", "metadata": {"topic": "pay"}, "group": "pay"}
    item = given | {"examples": ["How can I pay?"]}
    live.put("/pools/default/candidates", [item])
    choose(live, said="And cash?", learn=True)
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

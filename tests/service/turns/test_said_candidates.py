"""Turns of the responder that name the candidate that it said."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.messages import REPLIES, problem, wrong
from tests.support.service import Launch, Live
from tests.support.waiting import eventually
from turnwise.service.journal.files import list_files, read_lines
from turnwise.service.journal.lines import TurnLine

IDS = [f"r{number}" for number in range(len(REPLIES))]
SAID = REPLIES[4]
CHANGED = "Dear Ann, here is what I found for you."


def say(live: Live, **fields: object) -> None:
    live.post("/sessions/s/turn", speaker="bot", **fields)


def give(live: Live, candidate: str, event: str) -> None:
    text = {"text": CHANGED} if event == "edited" else {}
    live.post("/sessions/s/turns/1/feedback", candidate=candidate, event=event, **text)


def said(live: Live) -> list[str | None]:
    return [turn.get("candidate") for turn in live.get("/sessions/s")["transcript"]]


def offered(live: Live, **options: object) -> list[str]:
    answer = live.turn("s", "user", "Thanks, bye.", top_k=len(REPLIES), **options)
    return [candidate["id"] for candidate in answer["candidates"]]


@pytest.mark.parametrize(
    ("given", "text"), [({}, SAID), ({"text": None}, SAID), ({"text": CHANGED}, CHANGED)]
)
def test_the_transcript_shows_the_candidate_and_what_was_said(
    live: Live, given: Mapping[str, object], text: str
) -> None:
    live.turn("s", "user", "Hello")
    say(live, candidate="r4", **given)
    user, bot = live.get("/sessions/s")["transcript"]
    assert (bot["text"], bot["candidate"]) == (text, "r4")
    assert "candidate" not in user
    removed = live.delete("/sessions/s/turns/last")["removed"]
    assert removed["candidate"] == "r4"


@pytest.mark.parametrize("repeat", ["last", False, "near"])
def test_a_candidate_is_not_offered_again_whatever_text_was_said(
    live: Live, repeat: str | bool
) -> None:
    say(live, candidate="r4", text=CHANGED)
    assert "r4" not in offered(live, repeat=repeat)
    assert "r4" in offered(live, repeat=True)


def test_by_default_the_last_utterance_alone_counts(live: Live) -> None:
    say(live, candidate="r4", text=CHANGED)
    live.turn("s", "user", "And?")
    say(live, candidate="r5")
    assert {"r4", "r5"} - {*offered(live)} == {"r5"}


@pytest.mark.parametrize("event", ["chosen", "edited"])
@pytest.mark.parametrize("repeat", ["last", False])
def test_a_reply_has_said_the_candidate_that_feedback_chose_before_it(
    live: Live, event: str, repeat: str | bool
) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    give(live, "r4", event)
    say(live, text=CHANGED)
    assert said(live) == [None, "r4"]
    assert {*IDS} - {*offered(live, repeat=repeat)} == {"r4"}


def test_the_newest_choice_was_said(live: Live) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    for candidate, event in [("r1", "chosen"), ("r4", "edited"), ("r1", "chosen")]:
        give(live, candidate, event)
    say(live, text=CHANGED)
    assert said(live) == [None, "r4"]


def test_a_choice_counts_although_its_candidate_was_removed(live: Live) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    give(live, "r4", "edited")
    live.delete("/pools/default/candidates/r4")
    say(live, text=CHANGED)
    assert said(live) == [None, "r4"]
    assert {*offered(live)} == {*IDS} - {"r4"}


def test_a_choice_counts_again_after_an_undo_of_the_reply(live: Live) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    give(live, "r4", "chosen")
    say(live, text=CHANGED)
    live.delete("/sessions/s/turns/last")
    say(live, text="Hi.")
    assert said(live) == [None, "r4"]


@pytest.mark.parametrize("event", ["shown", "rejected"])
def test_feedback_that_chooses_nothing_changes_nothing(live: Live, event: str) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    give(live, "r4", event)
    say(live, text=CHANGED)
    assert said(live) == [None, None]
    assert {*offered(live)} == {*IDS}


def test_the_candidate_that_a_turn_names_was_said_whatever_feedback_says(live: Live) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    give(live, "r4", "edited")
    say(live, candidate="r5", text=CHANGED)
    assert said(live) == [None, "r5"]


def test_a_choice_counts_for_the_very_next_turn_alone(live: Live) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    give(live, "r4", "chosen")
    live.turn("s", "user", "Anyone?", respond=False)
    say(live, text=CHANGED)
    assert said(live) == [None, None, None]


def test_the_choice_of_a_turn_goes_with_it(live: Live) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    give(live, "r4", "chosen")
    live.delete("/sessions/s/turns/last")
    live.turn("s", "user", "Good evening", respond=False)
    say(live, text=CHANGED)
    assert said(live) == [None, None]


def test_the_candidate_may_be_of_another_pool(live: Live) -> None:
    live.fill(["At noon."], pool="times")
    say(live, candidate="r0", pool="times")
    assert live.get("/sessions/s")["transcript"][0]["text"] == "At noon."


def test_a_retry_gets_the_same_turn_after_the_candidate_was_removed(live: Live) -> None:
    body = {"speaker": "bot", "candidate": "r4"}
    key = {"Idempotency-Key": "k"}
    first = live.ok(live.http.post("/sessions/s/turn", json=body, headers=key))
    live.delete("/pools/default/candidates/r4")
    again = live.ok(live.http.post("/sessions/s/turn", json=body, headers=key))
    assert (first["turn"], again["turn"], again["replayed"]) == (1, 1, True)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"speaker": "bot"}, ["text"]),
        ({"speaker": "bot", "text": None, "candidate": None}, ["text"]),
        ({"speaker": "bot", "candidate": ""}, ["candidate"]),
        ({"speaker": "user", "candidate": "r4", "text": "Yes"}, ["candidate"]),
    ],
)
def test_a_turn_needs_a_text_or_a_candidate_of_the_responder(
    live: Live, body: dict[str, object], fields: list[str]
) -> None:
    assert wrong(live.http.post("/sessions/s/turn", json=body)) == [["body", *fields]]


def test_a_candidate_that_the_pool_lacks_is_not_found(live: Live) -> None:
    body = {"speaker": "bot", "candidate": "r99", "text": "Yes"}
    answer = live.http.post("/sessions/s/turn", json=body)
    assert problem(answer) == (404, "candidate-not-found")
    assert problem(live.http.get("/sessions/s")) == (404, "session-not-found")


def test_the_journal_has_the_candidate(launch: Launch, tmp_path: Path) -> None:
    live = launch(journal=tmp_path)
    live.fill()
    say(live, candidate="r4", text=CHANGED)
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    live.post("/sessions/s/turns/2/feedback", candidate="r5", event="chosen")
    say(live, text=CHANGED)

    def lines() -> list[TurnLine]:
        read = [line for file in list_files([tmp_path]) for line, _ in read_lines(file)]
        return [line for line in read if isinstance(line, TurnLine)]

    eventually(lambda: len(lines()) == 3)
    assert [line.candidate for line in lines()] == ["r4", None, "r5"]

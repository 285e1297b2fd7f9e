"""Turns of the responder that name the candidate that it said."""

from collections.abc import Mapping

import pytest

from tests.support.messages import REPLIES, problem, wrong
from tests.support.service import Live

SAID = REPLIES[4]
CHANGED = "Dear Ann, here is what I found for you."
CHOICES = {
    "chosen": (["chosen r4"], "r4"),
    "edited": (["edited r4"], "r4"),
    "chosen last": (["chosen r1", "edited r4", "chosen r1"], "r4"),
    "removed from its pool since": (["edited r4", "remove r4"], "r4"),
    "whose reply was undone": (["chosen r4", "reply", "undo"], "r4"),
    "only shown": (["shown r4"], None),
    "rejected": (["rejected r4"], None),
    "chosen before another turn": (["chosen r4", "go on"], None),
    "of a turn that was undone": (["chosen r4", "undo", "go on"], None),
}
"""What happens between an offer and a reply without a name, and the candidate that it says."""


def do(live: Live, step: str) -> None:
    """Do a step of `CHOICES`."""
    match step.split():
        case ["reply"]:
            say(live, text=CHANGED)
        case ["undo"]:
            live.delete("/sessions/s/turns/last")
        case ["go", "on"]:
            live.turn("s", "user", "Anyone?", respond=False)
        case ["remove", candidate]:
            live.delete(f"/pools/default/candidates/{candidate}")
        case [event, candidate]:
            text = {"text": CHANGED} if event == "edited" else {}
            live.feedback(candidate, event, **text)


def say(live: Live, **fields: object) -> None:
    live.post("/sessions/s/turn", speaker="bot", **fields)


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


@pytest.mark.parametrize(("steps", "candidate"), CHOICES.values(), ids=CHOICES)
def test_a_reply_without_a_name_says_the_candidate_that_was_just_chosen(
    live: Live, steps: list[str], candidate: str | None
) -> None:
    live.turn("s", "user", "Hello", top_k=len(REPLIES))
    for step in steps:
        do(live, step)
    do(live, "reply")
    assert live.get("/sessions/s")["transcript"][-1].get("candidate") == candidate
    assert ("r4" in offered(live)) is (candidate is None)


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

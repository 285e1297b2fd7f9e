"""Feedback on the candidates that a turn offered: what is kept, refused and counted."""

import pytest
import redis as blocking

from tests.support.messages import problem
from tests.support.redis_keys import session_key
from tests.support.service import Live
from turnwise.service.sessions import feedback
from turnwise.service.sessions.store import OFFERS_KEPT


def offered(live: Live, text: str = "Where is my parcel?") -> list[str]:
    answer = live.turn("s", "user", text, top_k=3)
    return [candidate["id"] for candidate in answer["candidates"]]


def kept(live: Live) -> list[tuple[int, str, str]]:
    transcript = live.get("/sessions/s")
    return [(each["turn"], each["candidate"], each["event"]) for each in transcript["feedback"]]


def test_an_event_is_kept_once_with_the_rank_of_its_candidate(live: Live) -> None:
    first, second, third = offered(live)
    grown = live.increase("turnwise_feedback_total", namespace=live.namespace, event="chosen")
    shown = [live.feedback(each, "shown") for each in (second, first)]
    assert [each["rank"] for each in shown] == [2, 1]
    chosen = live.feedback(second, "chosen")
    assert chosen == live.feedback(second, "chosen")
    assert chosen == {
        "turn": 1,
        "candidate": second,
        "event": "chosen",
        "text": None,
        "rank": 2,
    }
    edited = live.feedback(third, "edited", text="  It is late. ")
    assert edited["text"] == "It is late."
    assert grown() == 1
    assert kept(live) == [
        (1, first, "shown"),
        (1, second, "chosen"),
        (1, second, "shown"),
        (1, third, "edited"),
    ]


def test_ranks_of_what_was_chosen_are_counted_by_pool_and_model(live: Live) -> None:
    ids = offered(live)
    for candidate, event in zip(ids, ("rejected", "chosen", "edited"), strict=True):
        live.feedback(candidate, event, **({"text": "Sorry."} if event == "edited" else {}))
    labels = {
        "namespace": live.namespace,
        "pool": "default",
        "model": live.encoder.name,
    }
    name = "turnwise_chosen_reciprocal_rank"
    assert live.metric(f"{name}_count", **labels) == 2
    assert live.metric(f"{name}_sum", **labels) == pytest.approx(1 / 2 + 1 / 3)
    live.put("/pools/other", {})
    assert live.http.delete("/pools/default").is_success
    with pytest.raises(KeyError):
        live.metric(f"{name}_count", **labels)
    live.feedback(ids[0], "chosen")
    with pytest.raises(KeyError):
        live.metric(f"{name}_count", **labels)


def test_an_undone_turn_leaves_no_feedback(live: Live) -> None:
    first, *_ = offered(live)
    live.feedback(first, "chosen")
    live.turn("s", "bot", "Let me see.")
    second, *_ = offered(live, "Thank you.")
    live.feedback(second, "chosen", turn=3)
    live.delete("/sessions/s/turns/last")
    assert kept(live) == [(1, first, "chosen")]
    live.turn("s", "user", "Wait!", respond=False)
    late = {"candidate": second, "event": "chosen"}
    refused = live.http.post("/sessions/s/turns/3/feedback", json=late)
    assert refused.status_code == 409


@pytest.mark.parametrize("path", ["/sessions/s", "/sessions?prefix=s"])
def test_a_deleted_session_leaves_no_feedback(live: Live, path: str) -> None:
    live.feedback(offered(live)[0], "chosen")
    keys = session_key(live.namespace, "s", "*")
    with blocking.Redis.from_url(live.redis_url) as redis:
        expiry = {redis.expiretime(key) for key in redis.keys(keys)}
        assert max(expiry) - min(expiry) <= 1
        deleted = live.http.delete(path)
        while deleted.content and (cursor := deleted.json()["cursor"]):
            deleted = live.http.delete(f"{path}&cursor={cursor}")
        assert deleted.is_success
        assert redis.keys(keys) == []
    offered(live)
    assert kept(live) == []


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("/sessions/nobody/turns/1/feedback", (404, "session-not-found")),
        ("/sessions/s/turns/9/feedback", (404, "turn-not-found")),
        ("/sessions/s/turns/2/feedback", (409, "conflict")),
        ("/sessions/s/turns/0/feedback", (422, "invalid-request")),
    ],
)
def test_feedback_on_nothing_is_refused(live: Live, path: str, refusal: tuple[int, str]) -> None:
    live.say("s", [("user", "Hello"), ("bot", "Hi")])
    answer = live.http.post(path, json={"candidate": "r1", "event": "chosen"})
    assert problem(answer) == refusal


def test_a_missing_turn_is_refused_with_the_number_of_turns(live: Live) -> None:
    live.say("s", [("user", "Hello")])
    answer = live.http.post(
        "/sessions/s/turns/2/feedback", json={"candidate": "r1", "event": "chosen"}
    )
    assert answer.json()["detail"] == "session 's' has 1 turn, no turn 2"


def test_another_text_for_the_same_edit_is_a_conflict(live: Live) -> None:
    first, *_ = offered(live)
    live.feedback(first, "edited", text="One")
    body = {"candidate": first, "event": "edited", "text": "Two"}
    answer = live.http.post("/sessions/s/turns/1/feedback", json=body)
    assert problem(answer) == (409, "conflict")
    assert live.get("/sessions/s")["feedback"][0]["text"] == "One"


def test_the_number_of_events_and_the_age_of_a_turn_are_bounded(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = offered(live)
    live.feedback(ids[0], "shown")
    for _ in range(OFFERS_KEPT - 1):
        live.turn("s", "bot", "Yes.")
    live.feedback(ids[0], "chosen")
    live.turn("s", "bot", "Yes.")
    again = live.feedback(ids[0], "chosen")
    assert again["rank"] == 1
    body = {"candidate": ids[1], "event": "chosen"}
    old = live.http.post("/sessions/s/turns/1/feedback", json=body)
    assert problem(old) == (409, "conflict")
    candidate = offered(live)[0]
    turn = OFFERS_KEPT + 2
    monkeypatch.setattr(feedback, "FEEDBACK_KEPT", 2)
    body = {"candidate": candidate, "event": "chosen"}
    full = live.http.post(f"/sessions/s/turns/{turn}/feedback", json=body)
    assert problem(full) == (409, "feedback-full")
    assert len(kept(live)) == 2

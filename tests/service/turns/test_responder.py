"""The responder: `bot` or `assistant`, unless the session names another; and who forgot to."""

from typing import Any

import pytest
import redis as blocking

from tests.support.messages import posts, scores
from tests.support.redis_keys import session_key
from tests.support.service import Live, with_and_without_heads

TALK = [("user", "Where is my order?"), ("assistant", "It is on its way."), ("user", "Thank you")]
AS_BOT = [("bot" if speaker == "assistant" else speaker, text) for speaker, text in TALK]
FOUR = [("customer", "Hello"), ("agent", "Hi"), ("customer", "Where is it?"), ("agent", "Here")]


@with_and_without_heads
def test_an_assistant_is_the_responder_as_a_bot_is(live: Live) -> None:
    answers = {}
    for session, said in (("a", TALK), ("b", AS_BOT)):
        answers[session] = [live.turn(session, *turn, top_k=3) for turn in said]
    for as_assistant, as_bot in zip(answers["a"], answers["b"], strict=True):
        assert scores(as_assistant) == pytest.approx(scores(as_bot))
    assert answers["a"][1]["candidates"] == []
    read = live.get("/sessions/a")
    assert read["responder"] == "assistant"
    assert [turn["speaker"] for turn in read["transcript"]] == ["user", "assistant", "user"]


def test_bot_and_assistant_are_one_speaker_under_the_first_name(live: Live) -> None:
    live.say("s", [("assistant", "Hi"), ("user", "Hello"), ("bot", "Yes?"), ("user", "Well")])
    speakers = [turn["speaker"] for turn in live.get("/sessions/s")["transcript"]]
    assert speakers == ["assistant", "user", "assistant", "user"]
    live.put("/sessions/s", {"responder": "bot"})
    assert live.get("/sessions/s")["responder"] == "assistant"


def test_a_session_that_names_another_responder_keeps_it(live: Live) -> None:
    live.put("/sessions/s", {"responder": "agent"})
    assert live.turn("s", "assistant", "Hello")["candidates"]
    assert live.turn("s", "bot", "Hello")["candidates"]
    assert live.turn("s", "agent", "Hello")["candidates"] == []
    speakers = [turn["speaker"] for turn in live.get("/sessions/s")["transcript"]]
    assert speakers == ["assistant", "bot", "agent"]


def test_a_given_context_and_goals_know_both_names(live: Live) -> None:
    def rank(said: list[tuple[str, str]], speaker: str) -> dict[str, Any]:
        goals = [{"text": "You are welcome!", "speaker": speaker}]
        candidates = [{"text": "Anything else?", "speaker": speaker}, "Goodbye!"]
        body = {"context": posts(said), "candidates": candidates, "fit_weight": 1.0}
        return live.post("/rank", **body, goals=goals)

    expected = scores(rank(AS_BOT, "bot"))
    assert scores(rank(TALK, "assistant")) == pytest.approx(expected)
    assert scores(rank(TALK, "bot")) == pytest.approx(expected)
    assert scores(rank(AS_BOT, "assistant")) == pytest.approx(expected)


@with_and_without_heads
def test_an_assistant_of_an_earlier_release_becomes_the_responder(live: Live) -> None:
    live.put("/sessions/s", {"responder": "somebody"})
    live.say("s", TALK)  # as an earlier release: the assistant is any other speaker
    with blocking.Redis.from_url(live.redis_url) as redis:
        redis.hset(session_key(live.namespace, "s", "meta"), "responder", "bot")
    answer = live.turn("s", "user", "And when?", top_k=3, aggregation="mean")
    fresh = live.say("t", [*TALK, ("user", "And when?")], top_k=3, aggregation="mean")
    assert scores(answer) == pytest.approx(scores(fresh), abs=1e-3)


def test_four_turns_without_the_responder_are_a_warning(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [live.turn("s", *turn) for turn in FOUR]
    assert not any("warnings" in answer for answer in answers[:3])
    (warning,) = answers[3]["warnings"]
    assert "the responder, 'bot'" in warning
    assert "'customer' or 'agent'" in warning
    assert live.turn("s", "customer", "Fine")["warnings"] == [warning]
    live.say("t", FOUR)
    logged = [each for each in caplog.records if each.name == "turnwise.sessions"]
    assert len(logged) == 1
    assert "customer" not in logged[0].getMessage()


def test_eight_turns_of_one_speaker_are_a_warning(live: Live) -> None:
    (warning,) = live.say("s", [("user", f"Message {number}") for number in range(8)])["warnings"]
    assert "all turns are one utterance of 'user'" in warning
    assert "warnings" not in live.turn("s", "bot", "Hello")

"""Chat completions over raw HTTP: what is selected, kept and answered."""

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.support.messages import DIALOGUE, Said
from tests.support.service import Live

ROLES = {"user": "user", "bot": "assistant"}
NO_REPLY = {"where": {"topic": "none"}}
SESSION = {"session_id": "s"}

Messages = list[dict[str, Any]]


def messages(said: Said) -> Messages:
    return [{"role": ROLES[speaker], "content": text} for speaker, text in said]


def post(live: Live, said: Said, **fields: object) -> httpx.Response:
    body = {"model": "default", "messages": messages(said), **fields}
    return live.http.post("/v1/chat/completions", json=body)


def complete(live: Live, said: Said, **fields: object) -> dict[str, Any]:
    return live.ok(post(live, said, **fields))


def texts(answer: Mapping[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def events(response: httpx.Response) -> list[Any]:
    """The events of a stream; the last one marks its end."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *data, end, rest = response.text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    return [json.loads(each.removeprefix("data: ")) for each in data]


@pytest.mark.parametrize("count", [1, 4, 6])
def test_the_choices_are_the_candidates_of_a_turn(live: Live, count: int) -> None:
    turn = live.say("s", DIALOGUE[:count], top_k=3, respond=True)
    answer = complete(live, DIALOGUE[:count], n=3)
    assert texts(answer) == [candidate["text"] for candidate in turn["candidates"]]
    details = answer["turnwise"]
    for mine, theirs in zip(details["candidates"], turn["candidates"], strict=True):
        assert mine == theirs | {"score": pytest.approx(theirs["score"], abs=1e-3)}
    assert details["pool"] == turn["pool"]
    assert details["turn"] is None
    assert answer["model"] == "default"
    assert answer["id"].startswith("chatcmpl-")
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]


def test_only_texts_of_the_user_and_the_assistant_are_read(live: Live) -> None:
    hello = [
        {"role": "system", "content": "You are a pirate."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "42", "tool_call_id": "t"},
        {"role": "user", "content": [{"type": "text", "text": " there "}]},
    ]
    asked = {"model": "default", "messages": hello, "n": 8, "temperature": 0.2, "tools": []}
    answer = live.post("/v1/chat/completions", **asked)
    assert answer["turnwise"] == complete(live, [("user", "Hello there")], n=8)["turnwise"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_says_that_the_newest_message_was_truncated(live: Live, *, stream: bool) -> None:
    response = post(live, [("user", "A long story. " * 2000)], stream=stream)
    answer = events(response)[0] if stream else live.ok(response)
    assert answer["turnwise"]["truncated"] is True
    assert "truncated" not in complete(live, DIALOGUE)["turnwise"]


def test_nothing_is_kept(live: Live) -> None:
    complete(live, DIALOGUE)
    assert live.get("/sessions")["ids"] == []


def test_a_stream_has_the_same_choices(live: Live) -> None:
    whole = complete(live, DIALOGUE, n=2)
    options = {"include_usage": True}
    *chunks, last = events(post(live, DIALOGUE, n=2, stream=True, stream_options=options))
    assert chunks[0]["turnwise"]["candidates"] == whole["turnwise"]["candidates"]
    said = ["", ""]
    for (choice,) in (chunk["choices"] for chunk in chunks):
        said[choice["index"]] += choice["delta"].get("content", "")
    assert said == texts(whole)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, "stop"] * 2
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 0)
    assert {chunk["object"] for chunk in [*chunks, last]} == {"chat.completion.chunk"}


def transcript(live: Live) -> list[tuple[str, str]]:
    return [(turn["speaker"], turn["text"]) for turn in live.get("/sessions/s")["transcript"]]


def test_a_session_keeps_the_messages(live: Live) -> None:
    first = complete(live, DIALOGUE[:1], turnwise=SESSION)
    assert first["turnwise"]["turn"] == 1
    second = complete(live, DIALOGUE[:4], turnwise=SESSION)
    assert second["turnwise"]["turn"] == 4
    assert transcript(live) == DIALOGUE[:4]
    best = second["turnwise"]["candidates"][0]["id"]
    given = live.feedback(best, "chosen", turn=4)
    assert given["rank"] == 1


def test_the_same_messages_again_change_nothing(live: Live) -> None:
    first = complete(live, DIALOGUE[:3], turnwise=SESSION)
    again = complete(live, DIALOGUE[:3], turnwise=SESSION)
    assert texts(again) == texts(first)
    assert again["turnwise"]["turn"] == 3
    assert transcript(live) == DIALOGUE[:3]


def test_a_session_applies_its_filter_and_its_responder(live: Live) -> None:
    item = {"id": "x", "text": "It is at noon.", "metadata": {"topic": "times"}}
    live.put("/pools/default/candidates", [item])
    settings = {"responder": "agent", "where": {"topic": "times"}}
    live.put("/sessions/s", settings)
    said = DIALOGUE[:3]
    for _ in range(2):
        assert texts(complete(live, said, turnwise=SESSION, n=5)) == ["It is at noon."]
    assert [speaker for speaker, _ in transcript(live)] == ["user", "agent", "user"]


def test_without_a_reply_the_answer_is_the_fallback_of_the_pool(live: Live) -> None:
    silent = post(live, DIALOGUE, turnwise=NO_REPLY)
    assert texts(live.ok(silent)) == [""]
    assert silent.headers["turnwise-source"] == "none"
    sorry = "I will ask a colleague."
    live.put("/pools/default", {"fallback": sorry})
    assert live.get("/pools/default")["fallback"] == sorry
    counted = live.increase("turnwise_chat_completions_total", pool="default", source="text")
    answer = post(live, DIALOGUE, turnwise=NO_REPLY, n=3)
    assert texts(live.ok(answer)) == [sorry]
    assert answer.json()["turnwise"]["candidates"] == []
    assert answer.headers["turnwise-source"] == "text"
    assert counted() == 1
    assert post(live, DIALOGUE).headers["turnwise-source"] == "candidate"


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "nobody"}, 404, "pool-not-found", None),
        ({"messages": messages([("user", " ")])}, 422, "invalid-request", "body.messages"),
        ({"turnwise": {"nonsense": 1}}, 422, "invalid-request", "body.turnwise.nonsense"),
        ({"turnwise": {"where": {}}}, 422, "invalid-request", "body.turnwise.where"),
    ],
)
def test_errors_have_the_form_of_openai(
    live: Live, fields: Mapping[str, Any], status: int, code: str, param: str | None
) -> None:
    response = post(live, DIALOGUE, **fields)
    assert response.status_code == status
    error = response.json()["error"]
    assert error == {
        "message": response.json()["detail"],
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }

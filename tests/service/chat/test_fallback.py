"""The fallback service of chat completions: what it gets, and what its failures cost."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx
import pytest

from tests.service.chat.test_completions import NO_REPLY, events, post, texts
from tests.support.chat_service import ANSWER, EVENTS, TEXT, ChatService, chat_service
from tests.support.messages import DIALOGUE
from tests.support.service import Launch, Live, with_replies
from tests.support.waiting import PATIENCE

SORRY = "I will ask a colleague."
KEPT = {**NO_REPLY, "session_id": "s"}
SHORT = 0.1
"""Seconds for which Turnwise waits for a service that is silent."""


@pytest.fixture(scope="module")
def _service() -> Iterator[ChatService]:
    with chat_service() as service:
        yield service


@pytest.fixture
def service(_service: ChatService) -> ChatService:
    _service.reset()
    return _service


HOOK = """
def without_names(text):
    if text == "fail":
        raise ValueError
    return text.replace("Ann", "NAME")
"""


@pytest.fixture(scope="module")
def _live(
    share: Launch, _service: ChatService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[float], Live]]:
    folder = tmp_path_factory.mktemp("hook")
    (folder / "hook_of_fallback.py").write_text(HOOK)
    given = {"fallback_url": _service.url, "fallback_key": "secret", "fallback_model": "large"}
    hook = "hook_of_fallback:without_names"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield cache(lambda seconds: share(**given, fallback_timeout=seconds, redact=hook))
    sys.modules.pop("hook_of_fallback", None)


@pytest.fixture
def patience() -> float:
    """Seconds for which Turnwise waits for the fallback service."""
    return PATIENCE


@pytest.fixture
def live(_live: Callable[[float], Live], patience: float) -> Live:
    """A service of Turnwise with this fallback service, and with a redaction hook."""
    return with_replies(_live(patience))


def ask(live: Live, **fields: object) -> httpx.Response:
    """Ask what the pool has no reply to."""
    return post(live, DIALOGUE, **{"turnwise": NO_REPLY, **fields})


def test_a_reply_of_the_pool_asks_nobody(live: Live, service: ChatService) -> None:
    assert post(live, DIALOGUE).headers["turnwise-source"] == "candidate"
    assert service.bodies == []


def test_the_service_answers_where_the_pool_has_no_reply(live: Live, service: ChatService) -> None:
    counted = live.increase(
        "turnwise_chat_completions_total", namespace=live.namespace, source="service"
    )
    answer = ask(live, temperature=0.5, user="ann")
    assert live.ok(answer) == ANSWER
    assert answer.headers["turnwise-source"] == "service"
    assert counted() == 1
    (body,) = service.bodies
    assert {*body} == {"model", "messages", "temperature", "user"}
    assert (body["model"], body["temperature"]) == ("large", 0.5)
    assert [message["content"] for message in body["messages"]] == [text for _, text in DIALOGUE]
    assert service.keys == ["Bearer secret"]


def test_its_stream_is_passed_on(live: Live) -> None:
    answer = ask(live, stream=True)
    assert answer.headers["turnwise-source"] == "service"
    found = [chunk["choices"][0]["delta"].get("content") for chunk in events(answer)]
    assert "".join(found).strip() == TEXT


FAULTS: dict[str, dict[str, Any]] = {
    "silent": {},
    "failing": {"status": 500},
    "talking nonsense": {"answer": "<html>", "events": ["data: <html>\n\n"]},
    "without choices": {"answer": json.dumps({"choices": []}), "events": []},
}
"""What the service answers then, unless it is silent."""
each_fault = pytest.mark.parametrize(
    ("fault", "patience"),
    [(name, PATIENCE if given else SHORT) for name, given in FAULTS.items()],
    ids=FAULTS,
)


def break_down(service: ChatService, fault: str) -> None:
    if fault == "silent":
        service.released.clear()
    for name, value in FAULTS[fault].items():
        setattr(service, name, value)


@each_fault
@pytest.mark.parametrize("stream", [False, True])
def test_if_it_fails_the_answer_is_the_text_of_the_pool(
    live: Live, service: ChatService, fault: str, *, stream: bool
) -> None:
    live.put("/pools/default", {"fallback": SORRY})
    failed = live.increase(
        "turnwise_chat_completions_total", namespace=live.namespace, source="failed"
    )
    break_down(service, fault)
    answer = ask(live, stream=stream, turnwise=KEPT)
    assert answer.headers["turnwise-source"] == "text"
    assert failed() == 1
    if stream:
        assert events(answer)[1]["choices"][0]["delta"]["content"] == SORRY
    else:
        assert texts(answer.json()) == [SORRY]
    assert live.get("/sessions/s")["turns"] == len(DIALOGUE)


@each_fault
def test_without_a_text_its_failure_is_an_error(
    live: Live, service: ChatService, fault: str
) -> None:
    break_down(service, fault)
    answer = ask(live)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "fallback-unavailable")


def test_a_stream_that_breaks_off_ends_with_an_error(live: Live, service: ChatService) -> None:
    service.events = [*EVENTS[:3], "data: {}\n\n"]
    *chunks, last, rest = ask(live, stream=True).text.split("\n\n")
    assert len(chunks) == 3
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "fallback-unavailable"
    assert rest == ""


def test_the_hook_sees_what_is_sent(live: Live, service: ChatService) -> None:
    call = {"id": "Ann-1", "type": "function", "function": {"name": "f", "arguments": '"Ann"'}}
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "You serve Ann."},
        {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "I am Ann."}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    live.ok(ask(live, messages=asked, user="Ann", tools=[{"name": "Ann"}]))
    (body,) = service.bodies
    sent = json.dumps({name: body[name] for name in ("messages", "user")})
    assert sent.count("NAME") == 5
    assert sent.count("Ann") == 1
    assert body["messages"][2]["tool_calls"][0]["id"] == "Ann-1"
    assert body["tools"] == [{"name": "Ann"}]


def test_nothing_is_sent_if_the_hook_fails(live: Live, service: ChatService) -> None:
    answer = ask(live, messages=[{"role": "user", "content": "fail"}])
    assert answer.status_code == 503
    assert service.bodies == []

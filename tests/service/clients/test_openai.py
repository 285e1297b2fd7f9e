"""Chat clients of OpenAI's API, pointed at a real service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.messages import DIALOGUE, posts
from tests.support.service import Live

if TYPE_CHECKING:
    import openai

KEY = "tests"  # of the shared services
ROLES = {"user": "user", "bot": "assistant"}
MESSAGES: list[Any] = [{"role": ROLES[speaker], "content": text} for speaker, text in DIALOGUE]


@pytest.fixture
def best(live: Live) -> list[str]:
    """The best three candidates after the messages, in the namespace of the key."""
    live.app.name = KEY
    live.fill()
    context = posts(DIALOGUE)
    ranked = live.post("/rank", context=context, pool="default", top_k=3, repeat="last")
    return [candidate["text"] for candidate in ranked["ranking"]]


@pytest.fixture
def client(live: Live) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=f"{live.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_a_completion(client: openai.OpenAI, best: list[str]) -> None:
    answer = client.chat.completions.create(
        model="default", messages=MESSAGES, n=3, temperature=0.3, extra_body={"turnwise": {}}
    )
    assert [choice.message.content for choice in answer.choices] == best
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    details: Any = answer.model_extra
    assert [one["text"] for one in details["turnwise"]["candidates"]] == best


def test_a_stream(client: openai.OpenAI, best: list[str]) -> None:
    stream = client.chat.completions.create(
        model="default", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    parts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(parts) == best[0]
    assert last.usage is not None


@pytest.mark.usefixtures("best")
def test_the_list_of_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["default"]


def test_an_error(client: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="there is no pool 'nobody'") as caught:
        client.chat.completions.create(model="nobody", messages=MESSAGES)
    assert caught.value.code == "pool-not-found"
    with pytest.raises(openai.UnprocessableEntityError) as wrong:
        client.chat.completions.create(model="default", messages=[])
    assert wrong.value.param == "body.messages"

"""The retrievers of `examples/search` with the packages that they are for."""

import importlib
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import posts
from tests.support.service import Live
from turnwise.service.client import Client

FOLDER = Path(__file__).parents[3] / "examples" / "search"
SAID = [
    ("user", "Hello, when do you open?"),
    ("bot", " ".join(["We open at nine."] * 40)),
    ("user", "And where do I find you?"),
    ("bot", " ".join(["In Mill Lane."] * 40)),
    ("user", "Thank you. What does it cost?"),
]
Example = Callable[[str], Any]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Example:
    """From an example's name to its module."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.fixture
def best(live: Live) -> list[str]:
    """The bodies of the best two passages for the last question."""
    lines = (FOLDER / "passages.jsonl").read_text(encoding="utf-8").splitlines()
    passages = [json.loads(line) for line in lines]
    live.make_pool("city", passages)
    words = SAID[3][1].split()[:50]
    context = posts([SAID[2], ("bot", " ".join(words)), SAID[4]])
    ranked = live.post("/rank", context=context, pool="city", top_k=2)["ranking"]
    return [each["body"] for each in ranked]


def test_langchain(live: Live, best: list[str], example: Example) -> None:
    pytest.importorskip("langchain_core")
    retriever = example("langchain_search").ConversationRetriever
    roles = {"user": "human", "bot": "ai"}
    from langchain_core.messages import convert_to_messages

    messages = convert_to_messages([(roles[speaker], text) for speaker, text in SAID])
    with Client(live.url) as client:
        found = retriever(client=client, pool="city", top_k=2).invoke(messages)
        alone = retriever(client=client, pool="city", top_k=1).invoke("Hello")
    assert [document.page_content for document in found] == best
    assert {"place", "score"} <= found[0].metadata.keys()
    assert alone[0].page_content


def test_haystack(
    live: Live, best: list[str], example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip("haystack")
    from haystack.dataclasses import ChatMessage

    say = {"user": ChatMessage.from_user, "bot": ChatMessage.from_assistant}
    messages = [ChatMessage.from_system("Be brief."), *(say[who](text) for who, text in SAID)]
    retriever = example("haystack_search").ConversationRetriever(live.url, "city", 2)
    again = retriever.from_dict(retriever.to_dict())
    with closing(retriever), closing(again):
        found = again.run(messages)["documents"]
    assert [document.content for document in found] == best

"""The retrievers of `examples/search` with the packages that they are for."""

import importlib
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.service.clients.conftest import ROOT, RunIn
from tests.support.messages import posts
from tests.support.service import Live
from turnwise.service.client import Client

FOLDER = ROOT / "examples" / "search"
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


@pytest.mark.nightly
def test_llama_index(
    live: Live, best: list[str], in_own_environment: RunIn, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import json, sys
sys.path.insert(0, {str(FOLDER)!r})
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index_search import ConversationRetriever
from turnwise import Client

url, said = sys.argv[1], json.loads(sys.argv[2])
roles = {{"user": "user", "bot": "assistant"}}
memory = ChatMemoryBuffer.from_defaults(
    chat_history=[ChatMessage(text, role=roles[who]) for who, text in said[:-1]]
)
with Client(url) as client:
    retriever = ConversationRetriever(client, memory, pool="city", top_k=2)
    engine = ContextChatEngine.from_defaults(retriever=retriever, memory=memory, llm=MockLLM())
    answer = engine.chat(said[-1][1])
    print(json.dumps([found.text for found in answer.source_nodes]))
    print(len(memory.get_all()))
"""
    )
    printed = in_own_environment(["llama-index-core"], script, live.url, json.dumps(SAID))
    found, kept = printed.splitlines()
    assert json.loads(found) == best
    assert int(kept) == len(SAID) + 1

"""Haystack: a component from the messages of a conversation to passages, as documents.

pip install haystack-ai; turnwise serve;
turnwise pool load examples/search/passages.jsonl --pool city;
python examples/search/haystack_search.py
"""

from typing import Any

from haystack import Document, Pipeline, component, default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ChatRole
from recipe import search

from turnwise import Client, GivenTurn

_SPEAKERS = {ChatRole.USER: "user", ChatRole.ASSISTANT: "bot"}


@component
class ConversationRetriever:
    """Finds passages for the last question of some messages."""

    def __init__(
        self, url: str = "http://127.0.0.1:8000", pool: str = "default", top_k: int = 5
    ) -> None:
        self.url = url
        self.pool = pool
        self.top_k = top_k
        self._client = Client(url)

    @component.output_types(documents=list[Document])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
        """Return passages, the best first."""
        turns = [
            GivenTurn(speaker=_SPEAKERS[message.role], text=message.text)
            for message in messages
            if message.role in _SPEAKERS and message.text and message.text.strip()
        ]
        documents = [
            Document(
                content=found.body or found.text,
                score=found.score,
                meta=(found.metadata or {}) | {"passage": found.id},
            )
            for found in search(self._client, self.pool, turns, self.top_k)
        ]
        return {"documents": documents}

    def close(self) -> None:
        """Close the connections to the service."""
        self._client.close()

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters for a saved pipeline."""
        return default_to_dict(self, url=self.url, pool=self.pool, top_k=self.top_k)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ConversationRetriever":
        """Return the component of a saved pipeline."""
        return default_from_dict(cls, data)


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Ask a question that needs the one before."""
    pipeline = Pipeline()
    pipeline.add_component("passages", ConversationRetriever(url, pool="city", top_k=2))
    said = [
        ChatMessage.from_user("When does the last ferry to the island leave?"),
        ChatMessage.from_assistant("The last one leaves at ten at night."),
        ChatMessage.from_user("And what does it cost?"),
    ]
    for document in pipeline.run({"passages": {"messages": said}})["passages"]["documents"]:
        print(f"{document.score:.3f}  {document.content}")


if __name__ == "__main__":
    main()

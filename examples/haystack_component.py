"""Haystack: a component from chat messages to candidates, as documents.

pip install haystack-ai; turnwise serve; python examples/haystack_component.py
"""

from typing import Any

from haystack import Document, Pipeline, component, default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ChatRole

from turnwise import Client, GivenTurn, Goal

_SPEAKERS = {ChatRole.USER: "user", ChatRole.ASSISTANT: "bot"}
_MOST_TURNS = 100
_MOST_CHARS = 1000
"""The encoder reads as much of a text. A long message has its question at the end."""


@component
class ReplySelector:
    """Selects candidates from a pool, optionally toward a goal.

    The messages of the pipeline are the context; it creates no session. There are no documents if
    its confidence is too low; toward a goal there is no confidence.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        pool: str = "default",
        top_k: int = 5,
        min_confidence: float = 0.0,
    ) -> None:
        self.url = url
        self.pool = pool
        self.top_k = top_k
        self.min_confidence = min_confidence
        self._client = Client(url)

    @component.output_types(documents=list[Document])
    def run(self, messages: list[ChatMessage], goal: str | None = None) -> dict[str, Any]:
        """Return candidates, best first, without what the assistant said last."""
        context = [
            GivenTurn(speaker=_SPEAKERS[message.role], text=message.text.strip()[-_MOST_CHARS:])
            for message in messages
            if message.role in _SPEAKERS and message.text and message.text.strip()
        ]
        goals = [Goal(text=goal, speaker="user")] if goal else []
        answer = self._client.rank(
            context[-_MOST_TURNS:], pool=self.pool, goals=goals, repeat="last", top_k=self.top_k
        )
        if answer.confidence is not None and answer.confidence < self.min_confidence:
            return {"documents": []}
        documents = [
            Document(content=ranked.text, score=ranked.score, meta={"reply_id": ranked.id})
            for ranked in answer.ranking
        ]
        return {"documents": documents}

    def close(self) -> None:
        """Close the connections to the service."""
        self._client.close()

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters for a saved pipeline."""
        return default_to_dict(
            self,
            url=self.url,
            pool=self.pool,
            top_k=self.top_k,
            min_confidence=self.min_confidence,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ReplySelector":
        """Return the component of a saved pipeline."""
        return default_from_dict(cls, data)


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Run a pipeline with this component only."""
    pipeline = Pipeline()
    pipeline.add_component("replies", ReplySelector(url, top_k=3))
    messages = [ChatMessage.from_user("Hello, can I change the date of my booking?")]
    found = pipeline.run({"replies": {"messages": messages, "goal": "Great, thank you so much!"}})
    for document in found["replies"]["documents"]:
        print(f"{document.score:.3f}  {document.content}")


if __name__ == "__main__":
    main()

"""Haystack: a component that turns chat messages into replies, as documents.

pip install haystack-ai; turnwise serve; python examples/haystack_component.py
"""

from typing import Any

from haystack import Document, Pipeline, component, default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ChatRole

from turnwise.service.client import Client, GivenTurn, Goal

_SPEAKERS = {ChatRole.USER: "user", ChatRole.ASSISTANT: "bot"}


@component
class ReplySelector:
    """Selects replies out of a pool, for a conversation and maybe toward a goal.

    It keeps no session: the messages of the pipeline are all there is.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8000", pool: str = "default", top_k: int = 5
    ) -> None:
        self.url, self.pool, self.top_k = url, pool, top_k
        self._client = Client(url)

    @component.output_types(documents=list[Document])
    def run(self, messages: list[ChatMessage], goal: str | None = None) -> dict[str, Any]:
        """Return the best replies, best first."""
        context = [
            GivenTurn(speaker=_SPEAKERS[message.role], text=message.text)
            for message in messages
            if message.role in _SPEAKERS and message.text
        ]
        goals = [Goal(text=goal, speaker="user")] if goal else []
        answer = self._client.rank(context, pool=self.pool, goals=goals, top_k=self.top_k)
        documents = [
            Document(content=ranked.text, score=ranked.score, meta={"reply_id": ranked.id})
            for ranked in answer.ranking
        ]
        return {"documents": documents}

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def to_dict(self) -> dict[str, Any]:
        """Return what a saved pipeline holds of it."""
        return default_to_dict(self, url=self.url, pool=self.pool, top_k=self.top_k)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ReplySelector":
        """Return the one that a saved pipeline holds."""
        return default_from_dict(cls, data)


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Run a pipeline of that one component."""
    pipeline = Pipeline()
    pipeline.add_component("replies", ReplySelector(url, top_k=3))
    messages = [ChatMessage.from_user("Hello, can I change the date of my booking?")]
    found = pipeline.run({"replies": {"messages": messages, "goal": "Great, thank you so much!"}})
    for document in found["replies"]["documents"]:
        print(f"{document.score:.3f}  {document.content}")


if __name__ == "__main__":
    main()

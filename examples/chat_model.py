"""A chat model proposes texts; Turnwise chooses the one that best leads to a goal.

turnwise serve; python examples/stub_chat_model.py 8001 (or any server of that API);
OPENAI_BASE_URL=http://127.0.0.1:8001/v1 python examples/chat_model.py
"""

import os
from collections.abc import Sequence

import httpx

from turnwise import Client, GivenTurn, Goal, Ranked

_ROLES = {"user": "user", "bot": "assistant"}


class ChatModel:
    """A model behind `POST /chat/completions`."""

    def __init__(self, base_url: str, key: str = "", name: str = "any") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=60)
        self._name = name

    def sample(self, context: Sequence[GivenTurn], count: int) -> list[str]:
        """Return up to `count` different proposals for the bot's next utterance."""
        messages = [{"role": _ROLES[post.speaker], "content": post.text} for post in context]
        body = {"model": self._name, "messages": messages, "n": count, "temperature": 1.0}
        response = self._http.post("/chat/completions", json=body).raise_for_status()
        texts = (choice["message"]["content"].strip() for choice in response.json()["choices"])
        return [text for text in dict.fromkeys(texts) if text]


def reply(
    client: Client, model: ChatModel, context: Sequence[GivenTurn], goal: str, *, count: int = 20
) -> Ranked:
    """Return the proposal that best leads the user to say the goal."""
    samples = model.sample(context, count)
    return client.rank(
        context, candidates=samples, goals=[Goal(text=goal, speaker="user")]
    ).ranking[0]


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Answer one utterance."""
    environment = os.environ
    model = ChatModel(
        environment.get("OPENAI_BASE_URL", "http://127.0.0.1:8001/v1"),
        environment.get("OPENAI_API_KEY", ""),
        environment.get("OPENAI_MODEL", "any"),
    )
    context = [GivenTurn(speaker="user", text="Hello, can I change the date of my booking?")]
    with Client(url) as client:
        best = reply(client, model, context, "Great, thank you so much!")
        print(f"{best.score:.3f}  {best.text}")


if __name__ == "__main__":
    main()

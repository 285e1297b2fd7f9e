"""Rasa: a custom action that answers from a pool.

pip install rasa-sdk (in an environment of its own; the client needs only httpx and pydantic);
turnwise serve; rasa run actions --actions examples.rasa_action

Add `actions: [action_select_reply]` to the domain and, to lead toward a goal, a slot `goal`.
"""

import os
from typing import Any

from rasa_sdk import Action, Tracker
from rasa_sdk.executor import CollectingDispatcher

from turnwise import Client, GivenTurn, Goal

_SPEAKERS = {"user": "user", "bot": "bot"}


class SelectReply(Action):
    """Says the best candidate of a pool, after the whole context that the tracker has."""

    def __init__(self, url: str | None = None, pool: str = "default") -> None:
        self._client = Client(url or os.environ.get("TURNWISE_URL", "http://127.0.0.1:8000"))
        self._pool = pool

    def close(self) -> None:
        """Close the connections to the service."""
        self._client.close()

    def name(self) -> str:
        """Return the name of the action in the domain."""
        return "action_select_reply"

    def run(
        self,
        dispatcher: CollectingDispatcher,
        tracker: Tracker,
        domain: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Say the best candidate: with a goal in the slot, the one that best leads to it."""
        goal = tracker.get_slot("goal")
        goals = [Goal(text=goal, speaker="user")] if goal else []
        answer = self._client.rank(context(tracker), pool=self._pool, goals=goals, top_k=1)
        for best in answer.ranking:
            dispatcher.utter_message(text=best.text, json_message={"reply_id": best.id})
        return []


def context(tracker: Tracker) -> list[GivenTurn]:
    """Return the context."""
    return [
        GivenTurn(speaker=_SPEAKERS[event["event"]], text=event["text"])
        for event in tracker.events
        if event["event"] in _SPEAKERS and event.get("text")
    ]

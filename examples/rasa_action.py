"""Rasa: a custom action that answers out of a pool.

pip install rasa-sdk (in an environment of its own; the client needs only httpx and pydantic);
turnwise serve; rasa run actions --actions examples.rasa_action

In the domain: `actions: [action_select_reply]`, and where it should lead, a slot `goal`.
"""

import os
from typing import Any

from rasa_sdk import Action, Tracker
from rasa_sdk.executor import CollectingDispatcher

from turnwise.service.client import Client, GivenTurn, Goal

_SPEAKERS = {"user": "user", "bot": "bot"}


class SelectReply(Action):
    """Says the best reply of a pool, in view of the whole conversation that the tracker holds."""

    def __init__(self, url: str | None = None, pool: str = "default") -> None:
        self._client = Client(url or os.environ.get("TURNWISE_URL", "http://127.0.0.1:8000"))
        self._pool = pool

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def name(self) -> str:
        """Return the name that the domain gives it."""
        return "action_select_reply"

    def run(
        self,
        dispatcher: CollectingDispatcher,
        tracker: Tracker,
        domain: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Choose, and say it; with a goal in the slot, what leads the user to say that."""
        goal = tracker.get_slot("goal")
        goals = [Goal(text=goal, speaker="user")] if goal else []
        answer = self._client.rank(context(tracker), pool=self._pool, goals=goals, top_k=1)
        for best in answer.ranking:
            dispatcher.utter_message(text=best.text, json_message={"reply_id": best.id})
        return []


def context(tracker: Tracker) -> list[GivenTurn]:
    """Return what was said."""
    return [
        GivenTurn(speaker=_SPEAKERS[event["event"]], text=event["text"])
        for event in tracker.events
        if event["event"] in _SPEAKERS and event.get("text")
    ]

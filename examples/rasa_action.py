"""Rasa: a custom action that answers from a pool.

pip install rasa-sdk (in an environment of its own; the client needs only httpx and pydantic);
turnwise serve; rasa run actions --actions examples.rasa_action

Add `actions: [action_select_reply]` to the domain, a response `utter_default` for what the pool
cannot answer and, to lead toward a goal, a slot `goal`.
"""

import os
from typing import Any

from rasa_sdk import Action, Tracker
from rasa_sdk.executor import CollectingDispatcher

from turnwise import Client, GivenTurn, Goal

_SPEAKERS = {"user": "user", "bot": "bot"}
_MOST_TURNS = 100
_MOST_CHARS = 1000
"""The encoder reads as much of a text. A long message has its question at the end."""


class SelectReply(Action):
    """Says the best candidate of a pool, after the context that the tracker has.

    It does not repeat the bot's last utterance. If its confidence is too low, it says the response
    `utter_default` of the domain; toward a goal there is no confidence.
    """

    def __init__(
        self, url: str | None = None, pool: str = "default", min_confidence: float = 0.0
    ) -> None:
        self._client = Client(url or os.environ.get("TURNWISE_URL", "http://127.0.0.1:8000"))
        self._pool = pool
        self._min_confidence = min_confidence

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
        answer = self._client.rank(
            context(tracker), pool=self._pool, goals=goals, repeat="last", top_k=1
        )
        is_sure = answer.confidence is None or answer.confidence >= self._min_confidence
        if answer.ranking and is_sure:
            best = answer.ranking[0]
            dispatcher.utter_message(text=best.text, json_message={"reply_id": best.id})
        else:
            dispatcher.utter_message(response="utter_default")
        return []


def context(tracker: Tracker) -> list[GivenTurn]:
    """Return what was said since the conversation was last restarted."""
    turns: list[GivenTurn] = []
    for event in tracker.events:
        if event["event"] == "restart":
            turns.clear()
        elif event["event"] in _SPEAKERS and (text := (event.get("text") or "").strip()):
            turns.append(GivenTurn(speaker=_SPEAKERS[event["event"]], text=text[-_MOST_CHARS:]))
    return turns[-_MOST_TURNS:]

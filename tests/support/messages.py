"""What tests say, and what they read in answers."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

Said = Sequence[tuple[str, str]]
REPLIES = [
    "Sure, what is your booking number?",
    "The kitchen closes at ten.",
    "I am sorry to hear that.",
    "Your parcel left the depot this morning.",
    "You are welcome!",
    "Would you like a table by the window?",
    "We have sent you a new password.",
    "Goodbye, and thank you for calling.",
]
QUESTIONS = ["Do you sell umbrellas?", "Who are you?", "Is it raining?", "May I bring my dog?"]
"""Examples of the first replies; the replies do not answer them."""
DIALOGUE = [
    ("user", "Hello there"),
    ("bot", "Hi, how can I help?"),
    ("user", "My parcel has not come."),
    ("user", "It was due on Monday."),
    ("bot", "Let me look into it."),
    ("user", "Thank you"),
]


def problem(answer: httpx.Response) -> tuple[int, str]:
    """The status and the kind of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("urn:turnwise:problem:")


def wrong(answer: httpx.Response) -> list[list[str | int]]:
    """The places in a request that an answer calls invalid."""
    assert problem(answer) == (422, "invalid-request"), answer.text
    return [error["loc"] for error in answer.json()["errors"]]


def posts(said: Said) -> list[dict[str, str]]:
    """A context, as a request has it."""
    return [{"speaker": speaker, "text": text} for speaker, text in said]


def scores(answer: dict[str, Any], field: str = "score") -> dict[str, Any]:
    """The scores of an answer's candidates by their texts, in the order of the answer."""
    ranked = answer["ranking"] if "ranking" in answer else answer["candidates"]
    return {candidate["text"]: candidate[field] for candidate in ranked}


def write_lines(path: Path, *items: object) -> Path:
    """Write a JSON Lines file, every other line of which is empty."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(item) + "\n\n" for item in items)
    return path

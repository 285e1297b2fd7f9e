"""The example replies are well formed, and fit conversations when the shipped model picks them."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Relation, Role
from turnwise.models.scores import rows, running_query

REPLIES = Path(__file__).parents[2] / "examples" / "replies.jsonl"
TOPICS = {
    *("hotel", "restaurant", "flight", "train", "taxi", "travel"),
    *("account", "order", "payment", "dialogue", "small_talk"),
}
# What the user says, the bot answers and the user says then; what the next reply should be about.
CONVERSATIONS = {
    "hotel/change_booking": (
        "Hello, I would like to change the date of my booking.",
        "Of course. Could you give me your booking number?",
        "Yes, it is 4417. Can I move it to next Friday?",
    ),
    "hotel/parking": (
        "My train gets in at midnight, can I still check in?",
        "That's fine, our reception is open day and night.",
        "Perfect. And where can I park my car?",
    ),
    "restaurant/dietary": (
        "What do you recommend for dinner?",
        "I can recommend the mushroom risotto; it's our most popular dish.",
        "Sounds good. Is it gluten-free?",
    ),
    "flight/delay": (
        "Is flight LH 203 on time?",
        "I'm afraid your flight is delayed by about an hour.",
        "Oh no, then I'll miss my connection.",
    ),
    "account/password": (
        "I can't sign in to my account.",
        "What message do you see when you try to sign in?",
        "It says that my password is wrong.",
    ),
    "payment/invoice": (
        "I need an invoice for my order.",
        "Thank you, I have found your order.",
        "Please put my company's name on it.",
    ),
    "dialogue/goodbye": (
        "Tell me a joke!",
        "Why did the suitcase go to the doctor? It had been carrying too much.",
        "Haha, very funny. Thank you, bye!",
    ),
}


class Reply(NamedTuple):
    id: str
    text: str
    metadata: dict[str, str]
    examples: Sequence[str] = ()
    group: str | None = None


@cache
def replies() -> list[Reply]:
    return [Reply(**json.loads(line)) for line in REPLIES.read_text(encoding="utf-8").splitlines()]


def test_ids_are_unique_and_safe_in_a_url() -> None:
    ids = [reply.id for reply in replies()]
    assert len(set(ids)) == len(ids)
    assert [i for i in ids if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}", i)] == []


def test_no_text_stands_twice() -> None:
    texts = [reply.text.casefold() for reply in replies()]
    assert len(set(texts)) == len(texts)


def test_metadata_names_a_topic_and_an_intent() -> None:
    for reply in replies():
        assert set(reply.metadata) == {"intent", "topic"}, reply.id
        assert reply.metadata["topic"] in TOPICS, reply.id
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", reply.metadata["intent"]), reply.id
    assert {reply.metadata["topic"] for reply in replies()} == TOPICS


@pytest.mark.nightly
def test_the_shipped_model_finds_a_reply_that_fits_among_its_best_three() -> None:
    encoder = UtteranceEncoder(device="cpu")
    candidates = encoder.encode([reply.text for reply in replies()], Role.AFTER)
    sides = [Relation.OTHER, Relation.SAME, Relation.OTHER]
    missed = {}
    for expected, said in CONVERSATIONS.items():
        first = encoder.encode(said, Role.FIRST, sides)
        second = encoder.encode(said, Role.SECOND, sides)
        scores = candidates @ running_query(rows(first, second), last_rows=1)
        best = [replies()[place].metadata for place in np.argsort(-scores)[:3]]
        found = {f"{metadata['topic']}/{metadata['intent']}" for metadata in best}
        if expected not in found:
            missed[expected] = found
    assert missed == {}

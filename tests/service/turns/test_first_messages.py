"""The first messages of a visitor to the pool that `make run` loads, with the shipped model.

They were written before any answer was seen, and are no examples of the pool.
"""

import shutil
from collections.abc import Iterator, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.encoders import EXAMPLE_REPLIES
from tests.support.service import Live, launching
from tests.support.waiting import eventually

LEAST = 0.45
"""The threshold that `docs/handover.md` sets."""

_NUMBERS = count()

RIGHT: list[tuple[str, str]] = [
    ("hi", "greeting"),
    ("Good morning!", "greeting"),
    ("hey there, anybody home?", "greeting"),
    ("hello how are you doing", "how-are-you"),
    ("thanks", "thanks dialogue-thanks-2"),
    ("cool, thank you so much for your help", "thanks dialogue-thanks-2"),
    ("ok bye", "goodbye"),
    ("That's all for now, have a good one", "goodbye thanks"),
    ("what can you do", "assistant-can"),
    ("are you a real person?", "assistant-is-a-program dialogue-identity-5"),
    ("who am I talking to?", "dialogue-identity-1"),
    ("tell me something funny", "joke"),
    ("can i speak to someone", "handover"),
    ("I'd like a room for the weekend", "hotel-ask-dates hotel-ask-guests hotel-ask-room-type"),
    ("how much do you charge for a double", "hotel-price-1 hotel-price-9"),
    ("Do I get breakfast with the room?", "hotel-breakfast-2"),
    ("can i bring my dog", "hotel-pets-1"),
    ("what time can we get into the room", "hotel-check-in-1"),
    ("is there somewhere to leave the car", "hotel-garage"),
    ("whats the wifi password", "hotel-wifi-2"),
    (
        "We'd like to eat at your place tonight, four of us",
        "restaurant-ask-people restaurant-book-table-12 restaurant-availability-2",
    ),
    ("Got anything vegan?", "restaurant-dietary-1"),
    ("I need to get to Rome next Tuesday by plane", "flight-search-2 flight-ask-date"),
    ("how many bags can I take on the plane", "flight-baggage-1 flight-baggage-2"),
    ("trains to Leeds this afternoon?", "train-search-2 train-search-4"),
    ("Get me a cab to the airport please", "taxi-book-taxi-9 taxi-book-taxi-1"),
    ("I forgot my password", "account-forgot-password"),
    ("where's my stuff, I ordered it ages ago", "order-sorry-late order-ask-order-number-1"),
    ("The vase came in pieces", "order-damaged-1"),
    ("I want to send these shoes back", "order-return-1 order-return-3 order-return-8"),
    ("You took the money twice!", "payment-problem-10"),
    ("do you take visa", "payment-methods-2"),
    ("When are you open?", "dialogue-opening-hours-1"),
]
"""Messages, and the groups or ids of the answers that are right."""
LATER: list[tuple[list[str], str, str]] = [
    (
        ["Is there a pool?", "Yes, we have a swimming pool. It's on the top floor."],
        "how late can I use it?",
        "hotel-facilities-1",
    ),
    (
        ["i can't log in", "What message do you see when you try to sign in?"],
        "it says my account is locked",
        "account-password-6",
    ),
    (
        [
            "Do you have a double room for Friday?",
            "Yes, we still have rooms free for those nights. Shall I book this room for you?",
        ],
        "yes please",
        "hotel-room-booked hotel-book-room-7",
    ),
]
"""Messages after two utterances, one by the visitor and one by the bot."""
UNSEEN: list[tuple[str, str]] = [
    ("hiya", "greeting"),
    ("much appreciated!", "thanks dialogue-thanks-2"),
    ("Is there a gym in the hotel?", "hotel-facilities-2 hotel-facilities-9"),
    ("Could we stay in the room until 2 on Sunday?", "hotel-check-out-2"),
    ("table for two by the window at half seven", "restaurant-book-table-5"),
    ("my flight got cancelled, what now?", "flight-delay-4 flight-change-flight-1"),
    ("is there a discount for students on the train", "train-tickets-5"),
    ("how long till my cab gets here", "taxi-book-taxi-6 taxi-change-taxi-3"),
    ("I typed in the wrong delivery address", "order-ask-address"),
    ("I want to close my account", "account-close-account-1"),
    ("my card was declined", "payment-problem-1 payment-problem-2"),
    ("where can I find the invoice?", "payment-invoice-1 payment-invoice-2"),
    ("what's your name?", "dialogue-identity-4"),
    ("good evening to you", "greeting"),
    ("brilliant, ta", "thanks dialogue-thanks-2"),
    ("could we leave an hour or two later on our last day", "hotel-check-out-2"),
    ("we want to come a day earlier than booked", "hotel-change-ask-date hotel-change-possible"),
    ("my train is late, do I get something back?", "train-delay-3"),
    ("I moved house, my order should go to the new flat", "order-ask-address"),
    ("the app says my password is wrong", "account-forgot-password account-sign-in-1"),
    ("has my payment gone through?", "payment-problem-7 payment-problem-8"),
    ("can you recommend a starter", "restaurant-menu-7 restaurant-order-4"),
    ("what's the earliest flight to Vienna tomorrow", "flight-search-2 flight-search-7"),
    ("morning", "greeting"),
    ("cheers mate", "thanks dialogue-thanks-2"),
    ("do you have rooms free next weekend", "hotel-availability-1 hotel-ask-dates"),
    (
        "can I get my money back if I cancel the room",
        "hotel-cancel-booking-5 hotel-cancel-booking-7",
    ),
    ("is there a bus from the airport to you", "hotel-location-3"),
    ("what do you have without meat", "restaurant-dietary-1"),
    ("my starter was cold", "restaurant-complaint-1"),
    ("I left my umbrella in room 12", "hotel-lost-property-1"),
    ("which platform does the 9:15 leave from", "train-search-9"),
    ("how do I change my e-mail address", "account-change-email-1 account-change-email-3"),
    ("the code you sent me doesn't work", "account-sign-in-4"),
    ("can I return something without the receipt", "order-return-1 order-return-3 order-return-8"),
]
"""More first messages, written after the examples of the pool; few of the examples came later."""
OUTSIDE = [
    "What's the capital of Mongolia?",
    "Can you help me with my maths homework, solve x^2 = 9",
    "My tooth hurts, should I take ibuprofen",
    "Who do you think wins the election",
]
FOR_A_PERSON = [
    "human please",
    "Can I speak with a real person?",
    "connect me to customer service",
    "I don't want to talk to a bot",
    "put me through to a colleague of yours",
    "Is there a person I could talk to?",
    "operator",
    "get me your manager",
    "I'd rather discuss this with an employee",
    "this isn't helping, let me talk to somebody who knows",
    "live chat with support staff",
    "could one of your people ring me?",
]
NORMAL = [
    "Hello, I'd like to talk about my booking.",
    "It's for two people.",
    "From the third to the sixth of May.",
    "Is there someone at the reception at night?",
    "Could someone carry our bags up?",
    "And is breakfast extra?",
    "Great, please book it.",
    "My name is Carla Jensen.",
    "The shower in my room is broken.",
    "Can somebody come and repair it?",
    "Room 214.",
    "How long will it take?",
    "The people next door are very loud.",
    "a table for three tomorrow at eight",
    "Do you have anything without gluten?",
    "My wife is allergic to nuts.",
    "Outside if possible.",
    "Jensen.",
    "I want to fly to Oslo on Monday",
    "from Hamburg",
    "just me",
    "Can I change my seat?",
    "my suitcase never arrived",
    "when is the next train to York",
    "a return ticket please",
    "Do I have to change?",
    "Can you call me a taxi?",
    "at half past six",
    "to the main station",
    "where is my parcel",
    "T-49920",
    "It was supposed to be here on Friday.",
    "The lamp is broken.",
    "I'd like my money back.",
    "how do i return something",
    "can't sign in",
    "I never got the e-mail",
    "Please change my phone number.",
    "I was charged twice",
    "I need the invoice for my company",
    "good evening",
    "how are you?",
    "Are you a bot?",
    "yes",
    "no thanks",
    "thank you very much",
    "bye then",
]
"""Turns of conversations in which nobody asks for a person."""


CHINESE = "我的订单在哪里"
UNKNOWN_SCRIPT = (
    "the model hardly knows the script of the newest utterance, so that there is no confidence"
)


@pytest.fixture(scope="module")
def visited(
    shipped: Path, encoded_replies: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A service with the shipped model and pool."""
    folder = shutil.copytree(encoded_replies, tmp_path_factory.mktemp("visited") / "data")
    with launching(model=str(shipped), data_dir=folder, default_pool=EXAMPLE_REPLIES) as start:
        live = start()
        eventually(lambda: live.ready)
        yield live


def first_answer(live: Live, message: str, before: Sequence[str] = (), least: float = 0) -> str:
    """Return the group of the first candidate, or its id if it has none; "" if it abstains."""
    speakers = cycle(["user", "bot"])
    said = list(zip(speakers, [*before, message], strict=False))
    session = f"s{next(_NUMBERS)}"
    answer = live.say(session, said, top_k=1, pool="default", min_confidence=least)
    first: dict[str, str] = answer["candidates"][0] if answer["candidates"] else {"id": ""}
    return first.get("group", first["id"])


def test_the_first_answer_to_a_first_message_is_right(visited: Live) -> None:
    asked = [([], message, right) for message, right in RIGHT] + LATER
    found = {message: first_answer(visited, message, before) for before, message, _ in asked}
    right = {message: found[message] in answers.split() for _, message, answers in asked}
    assert [(message, found[message]) for message in found if not right[message]] == []


def test_most_first_messages_that_nobody_had_in_mind_are_answered_rightly(visited: Live) -> None:
    right = [first_answer(visited, message) in answers.split() for message, answers in UNSEEN]
    assert right.count(True) >= 29


def test_no_message_out_of_domain_is_answered(visited: Live) -> None:
    assert not any(first_answer(visited, message, least=LEAST) for message in OUTSIDE)


def test_who_asks_for_a_person_is_handed_over_and_nobody_else(visited: Live) -> None:
    asked = [first_answer(visited, message) for message in FOR_A_PERSON]
    others = [first_answer(visited, message) for message in NORMAL]
    assert asked.count("handover") >= 11
    assert others.count("handover") <= 1


@pytest.mark.parametrize("text", [CHINESE, "Где мой заказ?"])
def test_a_message_in_an_unknown_script_has_no_confidence(visited: Live, text: str) -> None:
    answer = visited.turn("s", "user", text, commit=False)
    assert answer["confidence"] is None
    assert answer["candidates"]
    assert answer["warnings"] == [UNKNOWN_SCRIPT]
    ranked = visited.post("/rank", context=[{"speaker": "user", "text": text}], pool="default")
    assert (ranked["confidence"], ranked["warnings"]) == (None, [UNKNOWN_SCRIPT])
    assert not first_answer(visited, text, least=0.1)


@pytest.mark.parametrize("text", ["Où est ma commande ?", "👍"])
def test_other_messages_have_a_confidence(visited: Live, text: str) -> None:
    answer = visited.turn("s", "user", text, commit=False)
    assert answer["confidence"] is not None
    assert "warnings" not in answer


def test_an_upload_names_candidates_in_unknown_scripts(visited: Live) -> None:
    items: list[dict[str, Any]] = [{"id": "zh", "text": CHINESE}, {"id": "en", "text": "Hello"}]
    visited.put("/pools/zh", {})
    edited = visited.put("/pools/zh/candidates", items)
    assert edited["warnings"] == ["the model hardly knows the script of candidate 'zh'"]

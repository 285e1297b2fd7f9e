"""Slots in the texts of candidates, and the values that fill them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.messages import wrong
from tests.support.service import Launch, Live

VALUES = {"name": "Ada", "order": "5521", "day": "Monday"}
CANDIDATES: list[dict[str, Any]] = [
    {"id": "hello", "text": "Hello {name}!"},
    {"id": "sent", "text": "{name}, your order {order} left us.", "group": "sent"},
    {"id": "sent-2", "text": "Your order has left us.", "group": "sent"},
    {"id": "when", "text": "It comes on {day}.", "examples": ["When does it come?"]},
    {"id": "brace", "text": "A brace is {{ or }}."},
    {"id": "plain", "text": "You are welcome."},
]
NEEDS = {"hello": {"name"}, "sent": {"name", "order"}, "when": {"day"}}
SLOTS = st.dictionaries(st.sampled_from([*VALUES]), st.none()).map(
    lambda names: {name: VALUES[name] for name in names}
)


@pytest.fixture
def filled(live: Live) -> Live:
    live.make_pool("slots", CANDIDATES)
    return live


def answers(live: Live, session: str, slots: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The candidates of every answer that has texts of the pool."""
    said = [{"speaker": "user", "text": "When does it come?"}]
    asked = {"pool": "slots", "slots": slots, "wordings": "all"}
    turn = live.turn(session, "user", "When does it come?", commit=False, top_k=10, **asked)
    ranked = live.post("/rank", context=said, **asked)["ranking"]
    avoid = [{"text": "Hello", "threshold": -10}]
    rejected = live.post("/rank", context=said, avoid=avoid, **asked)["rejected"]
    search = {"text": "When does it come?", "top_k": 10, "slots": slots}
    found = live.post("/pools/slots/search", **search)["candidates"]
    messages = [{"role": "user", "content": "When does it come?"}]
    chat = {"model": "slots", "messages": messages, "n": 10, "turnwise": {"slots": slots}}
    completed = live.post("/v1/chat/completions", **chat)
    choices = [{"text": choice["message"]["content"]} for choice in completed["choices"]]
    return {
        "turn": turn["candidates"],
        "rank": ranked,
        "rejected": rejected,
        "search": found,
        "chat": completed["turnwise"]["candidates"],
        "choices": choices,
    }


def fill(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text.replace("{{", "{").replace("}}", "}")


def test_no_answer_has_a_slot_without_its_value(filled: Live) -> None:
    texts = {each["id"]: each["text"] for each in CANDIDATES}

    @settings(max_examples=8, deadline=None, suppress_health_check=[*HealthCheck])
    @given(SLOTS)
    def check(slots: dict[str, str]) -> None:
        offered = {id for id in texts if NEEDS.get(id, set()) <= slots.keys()}
        for name, candidates in answers(filled, "s", slots).items():
            shown = [each["text"] for each in candidates]
            if name not in {"chat", "choices"}:  # which list one wording of a group
                assert {each["id"] for each in candidates} == offered, name
            assert {*shown} <= {fill(texts[id], slots) for id in offered}, name
            for each in candidates:
                if "template" in each:
                    assert each["template"] == texts[each["id"]] != each["text"]

    check()


def test_a_session_keeps_values_until_it_ends(filled: Live) -> None:
    opened = filled.put("/sessions/s", {"slots": {"name": "Ada"}})
    assert opened["slots"] == {"name": "Ada"}
    slots = {"order": "5521"}
    turn = filled.turn("s", "user", "Where is it?", pool="slots", top_k=10, slots=slots)
    shown = [each["text"] for each in turn["candidates"]]
    assert {"Hello Ada!", "Ada, your order 5521 left us."} & {*shown}
    ranked = filled.post("/rank", session_id="s", pool="slots")["ranking"]
    assert "Hello Ada!" in [each["text"] for each in ranked]
    filled.put("/sessions/s", {"responder": "bot"})
    assert filled.get("/sessions/s")["slots"] == {"name": "Ada"}
    filled.put("/sessions/s", {"slots": None})
    assert "slots" not in filled.get("/sessions/s")


def test_an_answer_without_candidates_names_the_slots_that_have_no_value(live: Live) -> None:
    live.make_pool("prices", [{"id": "a", "text": "It is {price}."}])
    answer = live.turn("s", "user", "What is it?", pool="prices", slots={"prise": "5"})
    assert answer["candidates"] == []
    assert answer["warnings"] == ["candidate 'a' of pool 'prices' has slots without a value: price"]


@pytest.mark.parametrize(
    "slots", [{"a b": "x"}, {"name": "x" * 201}, {"name": ""}, {"name": 1}, {"1": "x"}]
)
def test_bad_slots_are_named(live: Live, slots: dict[str, Any]) -> None:
    body = {"speaker": "user", "text": "Hello", "slots": slots}
    places = wrong(live.http.post("/sessions/s/turn", json=body))
    assert all(place[:2] == ["body", "slots"] for place in places)


def test_a_filled_text_that_was_said_is_not_offered_again(filled: Live) -> None:
    asked: dict[str, Any] = {"pool": "slots", "slots": VALUES, "top_k": 10}
    for said in ("Hello Ada!", "Ada, your order 5521 left us."):
        filled.turn("s", "bot", said)
        filled.turn("s", "user", "And?", respond=False)
    offered = filled.turn("s", "user", "And?", repeat=False, **asked)["candidates"]
    assert {each["id"] for each in offered} == {"when", "brace", "plain"}


def test_values_are_neither_encoded_nor_kept_in_the_transcript(filled: Live) -> None:
    filled.turn("s", "user", "Hello", pool="slots", slots=VALUES)
    filled.post("/sessions/s/turn", speaker="bot", candidate="hello", pool="slots")
    assert "Ada" not in json.dumps(filled.get("/sessions/s"))


def test_the_journal_has_templates(launch: Launch, tmp_path: Path) -> None:
    live = launch(journal=tmp_path / "journal")
    live.make_pool("slots", CANDIDATES)
    live.turn("s", "user", "Hello", pool="slots", top_k=10, slots=VALUES)
    live.stop()
    (file,) = (tmp_path / "journal").iterdir()
    line = json.loads(file.read_text(encoding="utf-8"))
    assert "Hello {name}!" in [offered["text"] for offered in line["offered"]]
    assert "Ada" not in json.dumps(line)

"""Filters of turns, rankings and searches, over real HTTP."""

from typing import Any

import pytest

from tests.support.messages import REPLIES, posts, wrong
from tests.support.service import Live

ALL = len(REPLIES)
HELLO = posts([("user", "Hello")])
TOPICS = ["order", "hours", "order"]


@pytest.fixture
def menu(live: Live) -> Live:
    """With a pool `menu`, whose candidates have topics in turn, and prices."""
    items = [
        {"id": f"r{n}", "text": text, "metadata": {"topic": TOPICS[n % 3], "price": {"net": n}}}
        for n, text in enumerate(REPLIES)
    ]
    live.make_pool("menu", items)
    return live


def ids(candidates: list[dict[str, Any]]) -> list[str]:
    return [candidate["id"] for candidate in candidates]


def test_turns_rankings_and_searches_return_what_matches(menu: Live) -> None:
    asked = {"pool": "menu", "top_k": ALL}
    plain = menu.turn("s", "user", "Hello", **asked)["candidates"]
    where = {"topic": "order", "price.net": {"gt": 0}}
    wanted = [r for r in ids(plain) if int(r[1:]) % 3 != 1 and r != "r0"]
    assert ids(menu.turn("t", "user", "Hello", **asked, where=where)["candidates"]) == wanted
    ranked = menu.post("/rank", context=HELLO, **asked, where=where)["ranking"]
    assert ids(ranked) == wanted
    found = menu.post("/pools/menu/search", text="Hello", top_k=2, where=where)["candidates"]
    assert ids(found) == wanted[:2]


def test_a_session_keeps_a_filter_until_it_is_changed(menu: Live) -> None:
    def offered(**options: object) -> set[str]:
        answer = menu.turn("s", "user", "Hello", pool="menu", top_k=ALL, **options)
        return set(ids(answer["candidates"]))

    def put(**settings: object) -> dict[str, Any]:
        return menu.put("/sessions/s", settings)

    orders = {"topic": "order"}
    assert put(where=orders)["where"] == orders
    assert offered() == {"r0", "r2", "r3", "r5", "r6"}
    assert offered(where={"price.net": {"gt": 4}}) == {"r5", "r6"}
    for one in (True, 1):  # which Python calls equal
        assert put(where={"price.net": one})["where"]["price.net"] is one
    assert put(where={"topic": "hours"})["turns"] == 2
    assert offered() == {"r1", "r4", "r7"}
    menu.delete("/sessions/s/turns/last")
    assert put()["where"] == {"topic": "hours"}
    menu.turn("s", "bot", "Hi.")
    assert offered() == {"r1", "r4", "r7"}
    context = menu.post("/rank", session_id="s", pool="menu", where={"price.net": {"lt": 4}})
    assert ids(context["ranking"]) == ["r1"]
    assert put(where=None)["where"] is None
    assert len(offered()) == ALL
    empty = menu.http.put("/sessions/s", json={"where": {"topic": {"in": []}}})
    assert wrong(empty) == [["body", "where", "topic", "in"]]
    assert menu.http.put("/sessions/s", json={"responder": "agent"}).status_code == 409


def test_a_wrong_filter_is_rejected_by_its_place(menu: Live) -> None:
    where = {"any": [{"topic": {"like": "o"}}]}
    for path, body in (
        ("/sessions/s/turn", {"speaker": "user", "text": "Hello"}),
        ("/rank", {"context": HELLO, "pool": "menu"}),
        ("/pools/menu/search", {"text": "Hello"}),
    ):
        refused = menu.http.post(path, json={**body, "where": where})
        assert wrong(refused) == [["body", "where", "any", 0, "topic", "like"]], path
    assert menu.http.get("/sessions/s").status_code == 404


@pytest.mark.parametrize(
    ("field", "value"), [("where", {"topic": "order"}), ("repeat", False), ("diversity", 0.5)]
)
def test_options_of_a_pool_need_a_pool(live: Live, field: str, value: object) -> None:
    body = {"context": HELLO, "candidates": ["Yes."], field: value}
    assert wrong(live.http.post("/rank", json=body)) == [["body", field]]


def test_a_field_that_no_candidate_has_is_a_warning_in_every_answer(menu: Live) -> None:
    where = {"any": [{"topic": "order"}, {"topc": "order", "price.gross": {"gt": 1}}]}
    menu.put("/sessions/s", {"where": {"none": [{"lang": {"in": ["en"]}}]}})
    (first, second, third) = menu.turn("s", "user", "Hello", pool="menu", where=where)["warnings"]
    assert first == "no candidate of pool 'menu' has the field 'lang' of the filter"
    assert "'price.gross'" in second
    assert "'topc'" in third
    ranked = menu.post("/rank", context=HELLO, pool="menu", where=where)
    assert ranked["warnings"] == [second, third]
    found = menu.post("/pools/menu/search", text="Hello", where=where)
    assert found["warnings"] == [second, third]
    chat = {"model": "menu", "messages": [{"role": "user", "content": "Hello"}]}
    completed = menu.post("/v1/chat/completions", **chat, turnwise={"where": where})
    assert completed["turnwise"]["warnings"] == [second, third]


@pytest.mark.parametrize(
    ("where", "compared"),
    [
        ({"price.net": {"gt": "3"}}, "'price.net' with a string,"),
        ({"price.net": "3"}, "'price.net' with a string,"),
        ({"topic": {"not": 3}}, "'topic' with a number,"),
        ({"topic": {"in": [3, True]}}, "'topic' with a number and true or false,"),
    ],
)
def test_a_comparison_with_a_value_of_another_kind_is_a_warning(
    menu: Live, where: dict[str, Any], compared: str
) -> None:
    (warning,) = menu.turn("s", "user", "Hello", pool="menu", where=where)["warnings"]
    assert warning.startswith(f"the filter compares {compared}")


@pytest.mark.parametrize(
    "where",
    [
        {"topic": "nothing"},
        {"price.net": {"gt": 1000}},
        {"price.net": {"lt": -1000}},
        {"price.net": {"in": ["3", 3]}},
        {"topic": None},
        {"topc": {"exists": False}},
        {"none": [{"topc": {"exists": True}}]},
    ],
)
def test_a_filter_of_known_fields_or_of_their_absence_is_no_warning(
    menu: Live, where: dict[str, Any]
) -> None:
    assert "warnings" not in menu.turn("s", "user", "Hello", pool="menu", where=where)

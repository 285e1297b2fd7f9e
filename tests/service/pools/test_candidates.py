"""The candidates of a pool: listed, read and changed one by one, over real HTTP."""

import json
from typing import Any

import pytest

from tests.support.messages import problem, wrong
from tests.support.service import Launch, Live, api_key

OPENING = {
    "id": "hours-1",
    "text": "We open at nine.",
    "metadata": {"topic": "visit"},
    "examples": ["When are you open?"],
    "group": "hours",
}
CLOSING = {"id": "hours-2", "text": "We close at SIX.", "metadata": {"topic": "visit"}}
CARD = {"id": "pay", "text": "By card.", "metadata": {"topic": "money"}, "examples": ["Cash?"]}
BYE = {"id": "bye/now", "text": "Good bye."}
OF_PAY = "/pools/shop/candidates/pay"


@pytest.fixture
def shop(live: Live) -> Live:
    """With a pool `shop`."""
    live.make_pool("shop", [OPENING, CLOSING, CARD, BYE])
    return live


def page(live: Live, **query: object) -> dict[str, Any]:
    return live.get("/pools/shop/candidates", **query)


def ids(live: Live, **query: object) -> list[str]:
    return [each["id"] for each in page(live, **query)["candidates"]]


def change(live: Live, **fields: object) -> dict[str, Any]:
    return live.patch(OF_PAY, fields)


def test_a_list_has_every_field_of_each_candidate(shop: Live) -> None:
    listed = page(shop)
    assert listed.keys() == {"candidates", "cursor", "matching"}
    assert (listed["cursor"], listed["matching"]) == (None, 4)
    bye, opening, *_ = listed["candidates"]
    assert bye == BYE | {"metadata": {}, "group": None, "examples": [], "learned": []}
    assert opening == OPENING | {"learned": []}
    assert shop.get("/pools/shop/candidates/bye/now") == bye


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "six"}, ["hours-2"]),
        ({"q": " CASH"}, ["pay"]),
        ({"q": "HOURS"}, ["hours-1", "hours-2"]),
        ({"q": "taxi"}, []),
        ({"where": {"topic": "visit"}}, ["hours-1", "hours-2"]),
        ({"where": {"topic": "visit"}, "q": "close"}, ["hours-2"]),
        ({"where": {"topic": "money"}, "q": "close"}, []),
    ],
)
def test_a_list_has_what_matches(shop: Live, query: dict[str, Any], found: list[str]) -> None:
    if "where" in query:
        query = query | {"where": json.dumps(query["where"])}
    assert ids(shop, **query) == found
    assert page(shop, **query)["matching"] == len(found)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {}},
        {"examples": []},
        {"group": "paying"},
        {"body": "Any card but one of a shop."},
        {"text": "Cash.", "group": "paying", "metadata": {"a": [1]}, "examples": ["Coins?"]},
    ],
)
def test_a_change_leaves_other_fields_as_they_are(shop: Live, fields: dict[str, Any]) -> None:
    version = shop.get("/pools/shop")["version"]
    edited = change(shop, **fields)
    assert edited | {"version": version + 1, "upserted": 1, "unchanged": 0, "size": 4} == edited
    assert shop.get(OF_PAY) == CARD | {"group": None, "learned": []} | fields
    assert change(shop, **fields) == edited | {"upserted": 0, "unchanged": 1}


def test_examples_are_added_and_removed_while_others_change_them(shop: Live) -> None:
    change(shop, add_examples=["Coins?"])
    change(shop, add_examples=["Cheque?", "Coins?"], remove_examples=["Cash?", "Gold?"])
    assert shop.get(OF_PAY)["examples"] == ["Coins?", "Cheque?"]
    many = [f"Question {number}?" for number in range(31)]
    refused = shop.http.patch(OF_PAY, json={"add_examples": many})
    assert wrong(refused) == [["body", "add_examples"]]
    assert shop.get(OF_PAY)["examples"] == ["Coins?", "Cheque?"]


def test_a_change_warns_of_texts_that_the_model_does_not_read_as_a_whole(shop: Live) -> None:
    long = "word " * 399
    changed = change(shop, text=long, add_examples=[long])
    assert changed["warnings"] == [
        "the model reads only the beginning of candidate 'pay'",
        "the model reads only the beginning and the end of examples of candidate 'pay'",
    ]


def test_a_change_warns_of_slots_and_followed_replies_that_do_nothing(shop: Live) -> None:
    right = change(shop, text="{name}, pay {{now}}.", metadata={"after": ["bye"]})
    assert right["warnings"] == []
    mistaken = change(shop, text="{na me}, pay.", metadata={"after": ["bye", 5]})
    assert mistaken["warnings"] == [
        "braces that belong to no slot are said as they are, in candidate 'pay'",
        "metadata.after must be a text or a list of texts, in candidate 'pay'",
    ]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"text": " "}, ["text"]),
        ({"examples": ["x"] * 33}, ["examples"]),
        ({"metadata": {"long": "y" * 20_000}}, ["metadata"]),
        ({"body": "z" * 20_000}, ["body"]),
        ({"id": "other"}, ["id"]),
    ],
)
def test_a_wrong_change_is_rejected_by_its_field(
    shop: Live, fields: dict[str, Any], place: list[str]
) -> None:
    assert wrong(shop.http.patch(OF_PAY, json=fields)) == [["body", *place]]
    assert shop.get(OF_PAY)["text"] == "By card."


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_no_candidate_and_no_pool(shop: Live, method: str) -> None:
    body = {} if method == "PATCH" else None
    for path, kind in (
        ("/pools/shop/candidates/nobody", "candidate-not-found"),
        ("/pools/nowhere/candidates/pay", "pool-not-found"),
    ):
        assert problem(shop.http.request(method, path, json=body)) == (404, kind)


def test_a_missing_pool_says_how_to_create_it_and_a_deletion_does_not(live: Live) -> None:
    context = [{"speaker": "user", "text": "Hello"}]
    for method, path, body in (
        ("PUT", "/pools/nowhere/candidates", [BYE]),
        ("PATCH", "/pools/nowhere/candidates/pay", {}),
        ("PUT", "/pools/one/alias", {"to": "nowhere"}),
        ("POST", "/sessions/s/turn", {"speaker": "user", "text": "Hello", "pool": "nowhere"}),
        ("POST", "/rank", {"context": context, "pool": "nowhere"}),
        ("GET", "/pools/nowhere", None),
    ):
        answer = live.http.request(method, path, json=body)
        assert problem(answer) == (404, "pool-not-found")
        assert answer.json()["detail"].endswith("; create it with PUT /pools/nowhere")
    assert "create" not in live.http.delete("/pools/nowhere").json()["detail"]


EDITOR = {"Authorization": "Bearer editor"}
READER = {"Authorization": "Bearer reader"}


PRIVATE = "Does my card 4111 work?"
RESPONSES = {
    "turn": ("/sessions/s/turn", {"speaker": "user", "text": PRIVATE, "pool": "shop"}),
    "rank": ("/rank", {"context": [{"speaker": "user", "text": PRIVATE}], "pool": "shop"}),
    "search": ("/pools/shop/search", {"text": PRIVATE}),
    "chat": (
        "/v1/chat/completions",
        {"model": "shop", "messages": [{"role": "user", "content": PRIVATE}]},
    ),
}


@pytest.fixture(scope="module")
def taught(share: Launch) -> Live:
    """A service with three keys of one namespace, where candidate `pay` has learned a message."""
    keys = [api_key("reader", "select"), api_key("editor", "pools"), api_key("both")]
    live = share(api_keys=[key | {"name": "shop"} for key in keys])
    live.put("/pools/shop", {}, headers=EDITOR)
    live.put("/pools/shop/candidates", [CARD], headers=EDITOR)
    both = {"Authorization": "Bearer both"}
    said = {"speaker": "user", "text": PRIVATE, "pool": "shop"}
    live.ok(live.http.post("/sessions/first/turn", json=said, headers=both))
    chosen = {"candidate": "pay", "event": "chosen", "learn": True}
    where = "/sessions/first/turns/1/feedback"
    assert live.ok(live.http.post(where, json=chosen, headers=both))["learned"]
    return live


def test_either_scope_may_list_and_one_may_change(taught: Live) -> None:
    for headers in (EDITOR, READER):
        for path in ("/pools/shop/candidates", OF_PAY):
            assert taught.http.get(path, headers=headers).status_code == 200
    assert taught.http.patch(OF_PAY, json={}, headers=READER).status_code == 403
    assert taught.http.patch(OF_PAY, json={}, headers=EDITOR).status_code == 200


def test_teaching_needs_the_scope_of_pools(taught: Live) -> None:
    body = {"candidate": "pay", "event": "edited", "text": "Cash.", "learn": True}
    answer = taught.http.post("/sessions/first/turns/1/feedback", json=body, headers=READER)
    assert problem(answer) == (403, "forbidden")
    kept = taught.ok(taught.http.get("/sessions/first", headers=READER))["feedback"]
    assert [each["event"] for each in kept] == ["chosen"]


def test_a_replayed_turn_shows_a_learned_example_only_to_the_scope_of_pools(taught: Live) -> None:
    path, body = RESPONSES["turn"]
    replayed = [
        taught.http.post(
            path, json=body, headers={"Authorization": f"Bearer {key}", "Idempotency-Key": "k"}
        ).json()
        for key in ("both", "reader", "both")
    ]
    assert [answer["replayed"] for answer in replayed] == [False, True, True]
    shown = {"example": PRIVATE, "learned": True}
    matched = [answer["candidates"][0]["matched"] for answer in replayed]
    assert matched == [shown, {"learned": True}, shown]


def test_only_the_scope_of_pools_lists_what_candidates_have_learned(taught: Live) -> None:
    def listed(headers: dict[str, str], **query: str) -> list[dict[str, Any]]:
        answer = taught.http.get("/pools/shop/candidates", params=query, headers=headers)
        candidates: list[dict[str, Any]] = taught.ok(answer)["candidates"]
        return candidates

    assert listed(EDITOR)[0]["learned"][0]["text"] == PRIVATE
    assert listed(READER) == [CARD | {"group": None, "learned": None}]
    assert taught.ok(taught.http.get(OF_PAY, headers=READER))["learned"] is None
    assert len(listed(EDITOR, q="4111")) == 1
    assert listed(READER, q="4111") == []


@pytest.mark.parametrize(("path", "body"), RESPONSES.values(), ids=RESPONSES)
def test_only_the_scope_of_pools_sees_which_learned_example_matched(
    taught: Live, path: str, body: dict[str, Any]
) -> None:
    readers, boths = (
        taught.http.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
        for key in ("reader", "both")
    )
    assert '"matched":{"learned":true}' in readers.text
    assert PRIVATE not in readers.text
    matched = {"example": PRIVATE, "learned": True}
    assert f'"matched":{json.dumps(matched, separators=(",", ":"))}' in boths.text

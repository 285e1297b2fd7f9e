import math
from typing import Any

import pytest

from turnwise.service.errors import InvalidRequest
from turnwise.service.pools.filter import Filter

HOTEL = {
    "topic": "hotel",
    "price": 80,
    "stars": 4.0,
    "open": True,
    "note": None,
    "tags": ["quiet", "spa"],
    "from": "2026-03-01",
    "place": {"city": "Rome", "near": [{"name": "station", "km": 1}, {"name": "port", "km": 9}]},
}


def matches(where: dict[str, Any], metadata: dict[str, Any] = HOTEL) -> bool:
    return Filter.checked(where).matches(metadata)


@pytest.mark.parametrize(
    "where",
    [
        {"topic": "hotel"},
        {"price": 80.0},
        {"stars": 4},
        {"open": True},
        {"note": None},
        {"tags": "spa"},
        {"place.city": "Rome"},
        {"place.near.name": "port"},
        {"topic": "hotel", "price": 80},
        {"price": {"gte": 80, "lt": 81}},
        {"price": {"gt": 79.5, "lte": 80}},
        {"from": {"gte": "2026-01-01"}},
        {"topic": {"in": ["taxi", "hotel"]}},
        {"topic": {"not": "taxi"}},
        {"wifi": {"not": True}},
        {"wifi": {"exists": False}},
        {"note": {"exists": True}},
        {"place.near.km": {"gt": 5, "lt": 10}},
        {"any": [{"topic": "taxi"}, {"price": 80}]},
        {"all": [{"topic": "hotel"}, {"any": [{"price": {"lt": 10}}, {"stars": 4}]}]},
        {"none": [{"topic": "taxi"}, {"price": {"gt": 100}}]},
    ],
)
def test_matches(where: dict[str, Any]) -> None:
    assert matches(where)
    assert not matches({"none": [where]})


@pytest.mark.parametrize(
    "where",
    [
        {"topic": "Hotel"},
        {"open": 1},  # true is not 1
        {"price": True},
        {"price": "80"},
        {"wifi": None},  # null is a value
        {"place": "Rome"},
        {"topic.name": "hotel"},
        {"price": {"gt": "10"}},  # numbers are compared with numbers
        {"open": {"gte": 1}},
        {"place.near.km": {"gt": 1, "lt": 9}},  # one item must hold both
        {"tags": {"not": "spa"}},
        {"topic": {"exists": False}},
        {"topic": "hotel", "price": {"lt": 80}},
        {"all": [{"topic": "hotel"}, {"topic": "taxi"}]},
    ],
)
def test_does_not_match(where: dict[str, Any]) -> None:
    assert not matches(where)


def nested(levels: int) -> dict[str, Any]:
    return {"all": [nested(levels - 1)]} if levels else {"topic": "hotel"}


@pytest.mark.parametrize(
    ("where", "loc"),
    [
        ({}, ()),
        ({"topic": {}}, ("topic",)),
        ({"topic": ["hotel"]}, ("topic",)),
        ({"topic": {"is": "hotel"}}, ("topic", "is")),
        ({"topic": {"in": "hotel"}}, ("topic", "in")),
        ({"topic": {"in": [["hotel"]]}}, ("topic", "in", 0)),
        ({"topic": {"not": {}}}, ("topic", "not")),
        ({"topic": {"exists": 1}}, ("topic", "exists")),
        ({"price": {"gt": True}}, ("price", "gt")),
        ({"price": {"lt": None}}, ("price", "lt")),
        ({"price": {"lt": math.inf}}, ("price", "lt")),
        ({"price": {"gt": 3, "lt": 9, "lte": "9"}}, ("price", "lte")),
        ({"any": [{"sent": {"gte": "2026-11-01", "lt": 2027}}]}, ("any", 0, "sent", "lt")),
        ({"price": {"in": [1, -math.inf]}}, ("price", "in", 1)),
        ({"topic": "x" * 16_000}, ()),
        ({"any": {"topic": "hotel"}}, ("any",)),
        ({"any": []}, ("any",)),
        ({"any": [{"topic": "hotel"}, "taxi"]}, ("any", 1)),
        ({"price": {"in": [*range(201)]}}, ("price", "in", 200)),
        (nested(8), ("all", 0) * 8),
    ],
)
def test_what_makes_no_sense_is_rejected_with_its_place(
    where: dict[str, Any], loc: tuple[str | int, ...]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Filter.checked(where)
    assert caught.value.errors[0].loc == ("where", *loc)


def test_the_error_of_a_list_of_values_says_how_to_write_it() -> None:
    with pytest.raises(InvalidRequest, match=r'for one of several: \{"in"'):
        Filter.checked({"topic": ["hotel", "taxi"]})


def test_the_largest_filters_are_taken() -> None:
    assert matches(nested(7))
    assert matches({"price": {"in": [*range(200)]}})


def test_equal_filters_have_equal_sources() -> None:
    one = Filter.checked({"a": 1, "b": 2})
    other = Filter.checked({"b": 2, "a": 1})
    assert one.source == other.source


def test_the_size_of_a_filter_is_the_number_of_its_look_ups() -> None:
    where = {"topic": "a", "price": {"gt": 1, "lt": 2, "not": 3}, "any": [{"x": 1}, {"y.z": 2}]}
    assert Filter.checked(where).size == 5
    assert Filter.checked({"topic": "a"}).size == 1

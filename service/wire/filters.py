"""Filters of candidates by their metadata, as requests send them."""

from pydantic import JsonValue

Where = dict[str, JsonValue]
"""A filter. Its JSON schema refers to itself, so `FILTER_SCHEMAS` describes it; `pools/filter.py`
checks it, and says what it means."""


def join_filters(*filters: Where | None) -> Where | None:
    """Return one filter for what all of these match; None if there are none."""
    given = [each for each in filters if each is not None]
    if len(given) > 1:
        return {"all": [*given]}
    return given[0] if given else None


_VALUE: JsonValue = {"type": ["string", "number", "boolean", "null"]}
_BOUND: JsonValue = {"type": ["string", "number"]}
_FILTERS: JsonValue = {
    "type": "array",
    "minItems": 1,
    "items": {"$ref": "#/components/schemas/Filter"},
}
FILTER_SCHEMAS: dict[str, JsonValue] = {
    "Filter": {
        "title": "Filter",
        "description": "Metadata match if every field holds. A dot leads into nested objects; a "
        "list holds a condition if one of its items does.",
        "type": "object",
        "minProperties": 1,
        "properties": dict.fromkeys(("all", "any", "none"), _FILTERS),
        "additionalProperties": {
            "anyOf": [_VALUE, {"$ref": "#/components/schemas/FilterCondition"}]
        },
    },
    "FilterCondition": {
        "title": "FilterCondition",
        "description": "A value holds all of these conditions. The bounds of a range are all "
        "numbers or all strings.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": {
            **dict.fromkeys(("gt", "gte", "lt", "lte"), _BOUND),
            "in": {"type": "array", "minItems": 1, "items": _VALUE},
            "not": _VALUE,
            "exists": {"type": "boolean"},
        },
    },
}
"""JSON schemas by name, in which `Filter` describes a filter."""

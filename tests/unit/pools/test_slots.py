import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.service.pools.slots import can_fill, fill_slots, find_slots

NAMES = ["name", "order_no", "x1"]
PARTS = st.sampled_from(["{", "}", "{{", "}}", " ", "a", "{1}", "{not one}"]) | st.sampled_from(
    [f"{{{name}}}" for name in NAMES]
)
VALUES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["Ada", "{name}", "}", "{{"]))


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Hello {name}.", "Hello Ada."),
        ("{name}{name}", "AdaAda"),
        ("{{name}}", "{name}"),
        ("{{{name}}}", "{Ada}"),
        ('{"a": 1}, {1}, { name }, }', '{"a": 1}, {1}, { name }, }'),
    ],
)
def test_slots_get_their_values_and_double_braces_are_braces(text: str, filled: str) -> None:
    assert fill_slots(text, {"name": "Ada"}) == filled


@given(st.lists(PARTS).map("".join), VALUES)
def test_a_text_is_filled_if_and_only_if_it_has_all_values(
    text: str, values: dict[str, str]
) -> None:
    missing = find_slots(text) - values.keys()
    assert can_fill(text, values) is not bool(missing)
    if missing:
        with pytest.raises(KeyError):
            fill_slots(text, values)
        return
    marked = {name: f"<{name}>" for name in values}
    assert all(f"<{name}>" in fill_slots(text, marked) for name in find_slots(text))

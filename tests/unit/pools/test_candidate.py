import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.service.errors import InvalidRequest
from turnwise.service.pools import Candidate
from turnwise.service.pools.candidate import Learned, remove_duplicates
from turnwise.service.pools.redis.values import pack_candidates, unpack_chunk

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
JSON_OBJECTS = st.dictionaries(st.text(), JSON_VALUES)


def test_an_id_that_is_left_out_follows_from_the_text() -> None:
    one, same, other = (Candidate.of(text) for text in ("Hello.", "Hello.", "Bye."))
    assert one == same
    assert one.id != other.id
    assert len(one.id) == 16
    assert Candidate.of("Hello.", "mine", {"a": 1}) == Candidate.of("Hello.", "mine", {"a": 1})


def test_metadata_is_alike_where_its_json_is() -> None:
    one = Candidate.of("Hello.", metadata={"vip": 1, "tags": [1]})
    assert one == Candidate.of("Hello.", metadata={"tags": [1], "vip": 1})
    for other in ({"vip": True, "tags": [1]}, {"vip": 1, "tags": [1.0]}, {"vip": 1}):
        assert one != Candidate.of("Hello.", metadata=other)
    with pytest.raises(InvalidRequest, match="which differ; nothing was changed"):
        remove_duplicates([one, Candidate.of("Hello.", metadata={"vip": True, "tags": [1]})])


@given(JSON_OBJECTS)
def test_metadata_come_out_as_they_went_in(metadata: dict[str, Any]) -> None:
    came_out = Candidate.of("Hello.", metadata=metadata).metadata
    assert json.dumps(came_out) == json.dumps(metadata)


def test_metadata_are_kept_in_their_order_and_counted_as_compact_json() -> None:
    candidate = Candidate.of("Hi.", "a", {"z": "ü", "a": [1, {}]})
    assert candidate.metadata_json.decode() == '{"z":"ü","a":[1,{}]}'
    assert candidate.bytes == len("a") + len("Hi.") + len(candidate.metadata_json)
    assert Candidate.of("Hi.", "a", {}).bytes == len("a") + len("Hi.")


def test_a_body_counts_among_the_bytes_and_the_memory() -> None:
    short = Candidate.of("Hi.", "a")
    long = Candidate.of("Hi.", "a", body="ü" * 1000)
    assert long.bytes - short.bytes == 2000
    assert long.memory - short.memory >= 1000


def peak_of(work: Callable[[], object]) -> tuple[int, int]:
    """Return the bytes that the result of the work takes, and the most while it worked."""
    tracemalloc.start()
    kept = work()
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return size, peak


def test_nested_metadata_take_the_memory_that_is_counted() -> None:
    metadata: dict[str, Any] = {"a": [[]] * 1300}
    packed = pack_candidates([Candidate.of("Hello.", str(n), metadata) for n in range(200)])

    def read() -> list[Candidate]:
        candidates, _ = unpack_chunk(packed, None, 32)
        return candidates

    counted = sum(candidate.memory for candidate in read())
    size, peak = peak_of(read)
    assert 200 * 3900 < size < 1.05 * counted < 200 * 4500
    assert peak < 4 * counted  # the JSON as bytes and as a string, and one row of it


def test_examples_group_and_body_survive_the_log() -> None:
    candidates = [
        Candidate.of("Nine to six.", "hours", {"a": 1}, examples=["When?", "open?"], group="hours"),
        Candidate.of("Hello.", "hello", learned=[Learned("hi there", 12.5, "u1-a")]),
        Candidate.of("Bye.", "bye", body="# Bye\n\nA long text."),
        Candidate.of("Ah.", "ah"),
    ]
    unpacked, vectors = unpack_chunk(pack_candidates(candidates), None, 4)
    assert unpacked == candidates
    assert vectors is None
    assert [each.all_examples for each in unpacked] == [("When?", "open?"), ("hi there",), (), ()]
    assert [each.body for each in unpacked] == [None, None, "# Bye\n\nA long text.", None]


@pytest.mark.parametrize(
    "other",
    [
        {"examples": ["When?"]},
        {"examples": ["When?", "open?"], "group": "times"},
        {"examples": ["open?", "When?"], "group": "hours"},
        {"learned": [Learned("open?", 1.0)]},
        {"examples": ["When?", "open?"], "group": "hours", "body": "Long."},
    ],
)
def test_candidates_with_other_examples_groups_or_bodies_differ(other: dict[str, Any]) -> None:
    one = Candidate.of("Nine to six.", examples=["When?", "open?"], group="hours")
    assert one != Candidate.of("Nine to six.", **other)

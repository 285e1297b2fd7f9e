"""Candidates and tables that take little memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.service.pools import Candidate
from turnwise.service.pools.candidate import Learned
from turnwise.service.pools.memory.packed import MANY, PackedCandidates, TextTable, pack

texts = st.text(max_size=8)
learned = st.builds(Learned, texts, st.floats(0, 1e10), st.none() | texts)
candidates = st.builds(
    Candidate,
    texts,
    texts,
    st.binary(max_size=8),
    st.lists(texts, max_size=3).map(tuple),
    st.none() | texts,
    st.lists(learned, max_size=3).map(tuple),
    st.none() | texts,
)


def fields(candidate: Candidate) -> list[object]:
    return [getattr(candidate, name) for name in Candidate.__slots__]


@given(st.lists(candidates, max_size=6), st.integers(-7, 7), st.integers(-7, 7))
def test_packed_candidates_are_a_list_of_the_same(
    given: list[Candidate], start: int, end: int
) -> None:
    packed = PackedCandidates(given[:2])
    packed.extend(given[2:])
    assert len(packed) == len(given)
    for read in (list(packed), [packed[index] for index in range(len(given))]):
        assert list(map(fields, read)) == list(map(fields, given))
    assert list(map(fields, packed[start:end])) == list(map(fields, given[start:end]))


def test_an_index_that_is_too_large_is_an_error() -> None:
    with pytest.raises(IndexError):
        PackedCandidates()[0]


def test_only_many_candidates_are_packed() -> None:
    some = [Candidate(str(number), "A text.") for number in range(MANY)]
    assert pack(some[1:]) == tuple(some[1:])
    packed = pack(iter(some))
    assert isinstance(packed, PackedCandidates)
    assert pack(packed) is packed
    assert packed[MANY - 1].id == str(MANY - 1)


def test_packed_candidates_take_the_memory_that_they_say() -> None:
    some = [Candidate(str(number), f"Text number {number}.") for number in range(MANY)]
    tracemalloc.start()
    packed = PackedCandidates(some)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert packed.memory <= size < 1.2 * packed.memory < 100 * MANY


@given(st.lists(texts, max_size=20), st.lists(texts, max_size=5))
def test_a_table_finds_what_a_dictionary_finds(some: list[str], others: list[str]) -> None:
    table = TextTable(some, some.__getitem__)
    for text in some + others:
        index = table.get(text)
        assert (index is not None) == (text in some)
        assert index is None or some[index] == text

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import until
from tests.unit.pools.conftest import unit_vectors
from turnwise.service.errors import CandidateNotFound, Overloaded
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate, Filter, Match
from turnwise.service.pools.candidate import Learned
from turnwise.service.pools.filter import Combined, Condition, Metadata
from turnwise.service.pools.memory import packed
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.memory.examples import Examples
from turnwise.service.pools.memory.flat import FlatIndex, Float16
from turnwise.service.pools.memory.ivf import build_ivf
from turnwise.service.pools.memory.local_view import LocalView
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.wire.pools import PoolSettings

D = 8
VECTORS = unit_vectors(50, D).astype(np.float16)
QUERY = unit_vectors(1, D, seed=1)[0] * 3

Model = dict[str, int]
"""From an id to which of VECTORS it has."""


def numbers_of(number: int) -> list[int]:
    """Which of VECTORS the examples of a candidate with this number have: two, one or none."""
    return [(number * 7 + step) % 50 for step in range(number % 3)]


def make_candidate(id: str, number: int) -> Candidate:
    examples = [f"e{each}" for each in numbers_of(number)]
    learned = [Learned(text, 0.0) for text in examples[1:]]
    return Candidate.of(
        str(number), id, {"odd": number % 2}, examples=examples[:1], learned=learned
    )


def edit_of(upserts: Model, removed: list[str]) -> Edit:
    candidates = [make_candidate(*item) for item in upserts.items()]
    vectors = VECTORS[list(upserts.values())]
    examples = VECTORS[[each for number in upserts.values() for each in numbers_of(number)]]
    return Edit(candidates, vectors, removed, Examples.of(candidates, examples))


def contents_of(upserts: Model) -> Contents:
    return Contents.empty(D).after([edit_of(upserts, [])], FlatIndex)


def check_pages(contents: Contents, ids: list[str], odd: list[str]) -> None:
    """Pages list all candidates, and those that a filter matches, in the order of ids."""
    for tests, expected in (([], sorted(ids)), ([Filter.checked({"odd": 1})], sorted(odd))):
        listed: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = contents.list_page(cursor, 3, tests)
            assert page.matching == len(expected)
            assert page.candidates or not cursor  # only the first page may be empty
            listed += [candidate.id for candidate in page.candidates]
            cursor = page.cursor
        assert listed == expected


def agree(contents: Contents, model: Model) -> None:
    """The contents are the model's, by every way that leads to them."""
    assert {c.id: int(c.text) for c in contents.candidates()} == model
    assert len(contents) == len(model)
    rows = contents.vectors()
    for candidate, vector in zip(contents.candidates(), rows, strict=True):
        assert contents.get(candidate.id) == candidate
        assert vector.tobytes() == VECTORS[model[candidate.id]].tobytes()
    texts = sum(len(name) + len(str(n)) + len('{"odd":0}') for name, n in model.items())
    examples = [each for number in model.values() for each in numbers_of(number)]
    texts += sum(len(f"e{each}") for each in examples)
    assert contents.candidate_bytes == texts + 2 * D * (len(model) + len(examples))
    assert contents.take(list(model)).tobytes() == VECTORS[list(model.values())].tobytes()
    scores = {name: float(VECTORS[n].astype(float) @ QUERY) for name, n in model.items()}
    hits = contents.search(QUERY, 1000)
    expected = sorted(model, key=lambda name: (-np.float32(scores[name]), name))
    assert [hit.candidate.id for hit in hits] == expected
    assert [hit.score for hit in hits] == pytest.approx([scores[name] for name in expected])
    odd = contents.search(QUERY, 1000, Filter.checked({"odd": 1}))
    assert [hit.candidate.id for hit in odd] == [name for name in expected if model[name] % 2]
    check_pages(contents, [*model], [name for name in model if model[name] % 2])
    few = [hit.score for hit in contents.search(QUERY, 3)]  # of equal ones, any
    assert few == [hit.score for hit in hits[:3]]
    examples_agree(contents, model)


def examples_agree(contents: Contents, model: Model) -> None:
    """The examples are the model's, by every way that leads to them."""
    matches = {name: match_of(number) for name, number in model.items()}
    assert contents.best_examples(QUERY, [*model, "none"]) == [*matches.values(), None]
    hits = contents.search_examples(QUERY, 1000)
    found = {name: match for name, match in matches.items() if match}
    expected = sorted(found, key=lambda name: (-found[name].score, name))
    assert [(hit.candidate.id, hit.match) for hit in hits] == [(n, found[n]) for n in expected]
    assert all(hit.match and hit.score == hit.match.score for hit in hits)
    for k in (1, 3):  # of equal ones, any
        few = [hit.score for hit in contents.search_examples(QUERY, k)]
        assert few == [hit.score for hit in hits[:k]]
    odd = contents.search_examples(QUERY, 1000, Filter.checked({"odd": 1}))
    assert [hit.candidate.id for hit in odd] == [name for name in expected if model[name] % 2]
    of_odd = [number for number in model.values() if number % 2]
    assert contents.example_count == sum(len(numbers_of(number)) for number in model.values())
    if contents.example_count:
        spread = contents.example_spread(QUERY, Filter.checked({"odd": 1}))
        assert spread.candidates == sum(len(numbers_of(number)) for number in of_odd)
    for examples, names in (
        (contents.examples(), [candidate.id for candidate in contents.candidates()]),
        (contents.take_examples(list(model)), list(model)),
    ):
        numbers = [each for name in names for each in numbers_of(model[name])]
        assert (examples.vectors.tobytes() if examples else b"") == VECTORS[numbers].tobytes()


def match_of(number: int) -> Match | None:
    scores = {f"e{each}": VECTORS[each].astype(float) @ QUERY for each in numbers_of(number)}
    best = max(scores, key=lambda text: scores[text], default="")
    return Match(float(np.float32(scores[best])), best) if best else None


ids = st.integers(0, 12).map(str)
edits = st.tuples(st.dictionaries(ids, st.integers(0, 49), max_size=6), st.lists(ids, max_size=4))


steps = st.lists(st.tuples(edits, st.sampled_from(["edit", "merge", "join"])), max_size=12)


@given(steps, st.booleans())
def test_any_sequence_of_edits_and_merges_gives_what_a_dict_gives(
    steps: list[tuple[tuple[Model, list[str]], str]], are_packed: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if are_packed:
            patch.setattr(packed, "MANY", 1)
        follow_a_dict(steps)


def follow_a_dict(steps: list[tuple[tuple[Model, list[str]], str]]) -> None:
    contents = Contents.empty(D)
    model = Model()
    waiting = list[Edit]()
    for (upserts, removed), how in steps:
        removed = [name for name in removed if name not in upserts]  # noqa: PLW2901
        waiting.append(edit_of(upserts, removed))
        if how != "join" and len(waiting) == 1:
            growth = contents.growth(waiting[0].candidates, removed)
            grown = contents.after(waiting, FlatIndex).candidate_bytes - contents.candidate_bytes
            assert growth == grown
        model = {name: n for name, n in model.items() if name not in removed} | upserts
        if how != "join":  # with the next one
            contents = contents.after(waiting, FlatIndex)
            waiting = []
            contents = contents.merge(FlatIndex) if how == "merge" else contents
            agree(contents, model)


def test_earlier_contents_do_not_change() -> None:
    before = contents_of({"a": 1, "b": 2}).merge(FlatIndex)
    middle = before.after([edit_of({"a": 3}, [])], FlatIndex)
    after = middle.after([edit_of({"c": 4}, ["a"])], FlatIndex)
    agree(before, {"a": 1, "b": 2})
    agree(middle, {"a": 3, "b": 2})
    agree(after, {"b": 2, "c": 4})


def test_a_large_overlay_is_merged_into_the_base() -> None:
    many = {str(number): number % 50 for number in range(1001)}
    contents = contents_of(many)
    assert (contents.unmerged, len(contents.base.candidates)) == (0, 1001)
    agree(
        contents.after([edit_of({}, list(map(str, range(900))))], FlatIndex),
        {name: n for name, n in many.items() if int(name) >= 900},
    )


def test_few_edits_leave_the_base_as_it_is() -> None:
    before = contents_of({str(number): number % 50 for number in range(1001)})
    after = before.after([edit_of({"new": 1}, ["0"])], FlatIndex)
    assert after.base is before.base
    assert after.unmerged == 2


def test_the_overlay_of_a_large_pool_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents_of({str(number): number % 50 for number in range(12_000)})
    removed = edit_of({}, list(map(str, range(1100))))
    assert before.after([removed], FlatIndex).unmerged == 1100  # of 1200: a tenth
    monkeypatch.setattr("turnwise.service.pools.memory.contents.MAX_UNMERGED", 1050)
    assert before.after([removed], FlatIndex).unmerged == 0


def test_vectors_in_one_array_are_not_copied() -> None:
    before = contents_of({"a": 1, "b": 2})
    assert before.vectors() is before.overlay.index.vectors
    merged = before.merge(FlatIndex)
    assert merged.vectors() is merged.base.index.vectors
    assert np.shares_memory(merged.vectors(), before.vectors())


def test_an_approximate_index_stays_until_another_is_built() -> None:
    queries = unit_vectors(8, D, seed=5)

    def build(vectors: Float16) -> object:
        return build_ivf(FlatIndex(vectors), queries)

    contents = contents_of({str(n): n % 50 for n in range(1500)}).merge(build)  # type: ignore[arg-type]
    after = contents.after([edit_of({}, list(map(str, range(1400))))], FlatIndex)
    assert after.base.index.kind == "ivf"
    assert after.is_due
    agree(after, {str(n): n % 50 for n in range(1400, 1500)})


@pytest.mark.anyio
async def test_only_a_new_filter_is_evaluated_and_not_on_the_event_loop() -> None:
    threads = list[int]()

    class Odd(Condition):
        def matches(self, metadata: Metadata) -> bool:
            threads.append(threading.get_ident())
            return bool(metadata["odd"] == 1)

    where = Filter("odd", Odd())
    workers = Workers(1, Metrics())
    view = LocalView(
        "p", 1, "default", PoolSettings(), contents_of({"a": 1, "b": 2}), workers, Metrics()
    )
    for _ in range(2):
        (hit,) = await view.search(QUERY, 2, where)
        assert hit.candidate.id == "a"
    assert len(threads) == 2
    assert threading.get_ident() not in threads
    workers.close()


@dataclass(frozen=True)
class Slow(Condition):
    """Takes its time, and counts the candidates that it checks."""

    checked: list[int] = field(default_factory=list)

    def matches(self, metadata: Metadata) -> bool:
        self.checked.append(metadata["odd"])
        time.sleep(0.0002)
        return bool(metadata["odd"] == 1)


@pytest.fixture
def large() -> Iterator[LocalView]:
    workers = Workers(1, Metrics())
    contents = contents_of({str(n): n % 50 for n in range(1500)})
    yield LocalView("p", 1, "default", PoolSettings(), contents, workers, Metrics())
    workers.close()


@pytest.mark.anyio
async def test_a_namespace_waits_for_so_many_new_filters() -> None:
    workers = Workers(1, Metrics())
    contents = contents_of({"a": 1, "b": 2})
    view = LocalView("p", 1, "default", PoolSettings(), contents, workers, Metrics())
    where = Filter.checked({"odd": 1})
    with workers.filters.admit(32), pytest.raises(Overloaded):
        await view.search(QUERY, 2, where)
    assert len(await view.search(QUERY, 2, where)) == 1
    workers.close()


@pytest.mark.anyio
async def test_those_who_wait_for_a_new_filter_share_its_evaluation(large: LocalView) -> None:
    where = Filter("slow", slow := Slow())
    one, two = await asyncio.gather(*(large.search(QUERY, 5, where) for _ in range(2)))
    assert one == two
    assert len(slow.checked) == 1500


@pytest.mark.anyio
async def test_a_slow_filter_delays_no_other_and_stops_when_nobody_waits(large: LocalView) -> None:
    where = Filter("slow", slow := Slow())
    waiting = asyncio.create_task(large.search(QUERY, 5, where))
    await until(lambda: bool(slow.checked))
    assert await large.search(QUERY, 5, Filter("none", Combined("any", ()))) == []
    await large.spread(QUERY)
    assert len(slow.checked) < 1000
    waiting.cancel()
    await asyncio.wait({waiting})
    await large.search(QUERY, 5, Filter("others", Combined("any", ())))  # the thread is free again
    assert (before := len(slow.checked)) < 1500
    await asyncio.sleep(0.05)
    assert len(slow.checked) == before
    hits = await large.search(QUERY, 1500, where)
    assert len(hits) == sum(n % 2 for n in range(50)) * 30
    assert len(slow.checked) == 1500  # it went on from there


@pytest.mark.anyio
@pytest.mark.parametrize("count", [100, 4200])
async def test_a_view_of_few_or_many_examples_gives_what_its_contents_give(count: int) -> None:
    made = [
        Candidate.of("Hi.", str(n), {"odd": n % 2}, examples=[str(n)], group="g")
        for n in range(count)
    ]
    vectors = unit_vectors(count, D).astype(np.float16)
    edit = Edit(made, vectors, (), Examples.of(made, vectors[::-1]))
    contents = Contents.empty(D).after([edit], FlatIndex)
    workers = Workers(1, Metrics())
    view = LocalView("p", 1, "default", PoolSettings(), contents, workers, Metrics())
    odd = Filter.checked({"odd": 1})
    for where in (None, odd):
        spread = await view.example_spread(QUERY, where)
        assert spread == contents.example_spread(QUERY, where)
        hits = await view.search_examples(QUERY, 5, where)
        assert hits == contents.search_examples(QUERY, 5, where)
    cosines = vectors.astype(float) @ QUERY
    assert (spread.mean, spread.deviation) == pytest.approx(
        (cosines.mean(), cosines.std()), abs=1e-3
    )
    assert await view.groups_of(["hi"]) == {"g"}
    assert await view.fetch(["7", "none"]) == [made[7], None]
    workers.close()


def test_an_unknown_id_is_an_error() -> None:
    contents = contents_of({"a": 1})
    assert contents.get("b") is None
    assert "b" not in contents
    with pytest.raises(CandidateNotFound, match="'b'"):
        contents.take(["a", "b"])


@pytest.mark.parametrize(
    ("find", "texts", "unknown"),
    [
        (Contents.find_vectors, ["5", "1"], "7"),
        (Contents.find_example_vectors, ["e7", "e15", "e36"], "1"),
    ],
)
def test_texts_and_examples_of_the_pool_have_vectors(
    find: Callable[[Contents, list[str]], dict[str, Float16]], texts: list[str], unknown: str
) -> None:
    contents = contents_of({"a": 1, "b": 2}).merge(FlatIndex)
    contents = contents.after([edit_of({"c": 5}, ["a"])], FlatIndex)
    encoded = find(contents, [*texts, unknown])
    assert {text: vector.tobytes() for text, vector in encoded.items()} == {
        text: VECTORS[int(text.lstrip("e"))].tobytes() for text in texts
    }


def numbered(count: int, first: int = 0) -> Edit:
    candidates = [
        Candidate.of(str(n), str(n), {"even": n % 2 == 0}) for n in range(first, first + count)
    ]
    return Edit(candidates, unit_vectors(count, 8, seed=first).astype(np.float16))


@pytest.mark.parametrize("larger", ["overlay", "base"])
def test_the_spread_is_that_of_the_scores_of_the_larger_segment(larger: str) -> None:
    contents = Contents.empty(8).after([numbered(300)], FlatIndex)
    if larger == "base":
        contents = contents.merge(FlatIndex).after([numbered(20, 1000)], FlatIndex)
    segment = contents.base if larger == "base" else contents.overlay
    assert contents.larger_segment is segment
    assert not segment.knows_moments
    query = unit_vectors(1, 8, seed=7)[0]
    spread = contents.spread(query)
    scores = segment.index.vectors.astype(np.float64) @ query
    assert spread == pytest.approx((scores.mean(), scores.std(), len(contents)), abs=1e-5)
    assert segment.knows_moments
    left = contents.after([Edit([], np.empty((0, 8), np.float16), ["0", "2"])], FlatIndex)
    assert left.spread(query).candidates == len(contents) - 2
    even = left.spread(query, Filter.of({"even": True}))
    assert even.candidates == len(contents) // 2 - 2
    assert even[:2] == left.spread(query)[:2]


def test_the_spread_counts_the_wordings_of_an_answer_once() -> None:
    groups = ["hours", "hours", "hours", "price", None, None]
    candidates = [Candidate.of(str(n), str(n), group=group) for n, group in enumerate(groups)]
    edit = Edit(candidates, unit_vectors(6, 8, seed=0).astype(np.float16))
    contents = Contents.empty(8).after([edit], FlatIndex)
    assert contents.spread(unit_vectors(1, 8, seed=7)[0]).candidates == 4


def test_the_groups_of_texts_are_those_of_candidates_that_are_still_there() -> None:
    made = [
        Candidate.of("Nine to five.", "a", group="hours"),
        Candidate.of("nine  to five", "b", group="times"),
        Candidate.of("Bye.", "c", group="bye"),
        Candidate.of("Nine to five!", "d"),
    ]
    before = Contents.empty(D).after([Edit(made, VECTORS[:4])], FlatIndex).merge(FlatIndex)
    assert before.groups_of({"nine to five"}) == {"hours", "times"}
    changed = [Candidate.of("Nine to five.", "a", group="open")]
    after = before.after([Edit(changed, VECTORS[:1], ["b"])], FlatIndex)
    assert after.groups_of({"nine to five", "no such text"}) == {"open"}
    assert after.groups_of({"bye"}) == {"bye"}


def find_followers(contents: Contents, reply: str | None, text: str = "") -> list[str]:
    return sorted(each.id for each in contents.find_followers(reply, text)[1])


@pytest.mark.parametrize("many", [1, packed.MANY], ids=["packed", "not packed"])
def test_followers_name_the_id_or_the_group_of_a_reply(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "MANY", many)
    made = [
        Candidate.of("Which day?", "day", group="ask-day"),
        Candidate.of("What day is best?", "day-2", group="ask-day"),
        Candidate.of("Morning or afternoon?", "time", {"after": ["ask-day", "full", 3]}),
        Candidate.of("We are full then.", "full", {"after": "day"}),
        Candidate.of("Goodbye.", "bye", {"later": {"after": "day"}}),
    ]
    before = Contents.empty(D).after([Edit(made, VECTORS[:5])], FlatIndex).merge(FlatIndex)
    assert find_followers(before, "day") == ["full", "time"]
    assert find_followers(before, "day-2") == ["time"]
    assert find_followers(before, None, "What day is best!") == ["time"]
    assert find_followers(before, None, "We are full then!") == ["time"]
    assert find_followers(before, None, "no such text") == []
    assert find_followers(before, "bye") == []
    changed = [Candidate.of("Morning or afternoon?", "time", {"after": "bye"})]
    after = before.after([Edit(changed, VECTORS[:1], ["full"])], FlatIndex)
    assert find_followers(after, "day") == []
    assert find_followers(after, None, "Goodbye!") == ["time"]

import asyncio
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.roles import Role, RoleText
from turnwise.service.encoder.batcher import Batch, Batcher, EncodingRequest, Priority, TextSlice
from turnwise.service.observe.metrics import Metrics

BUDGET = 40


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def batcher(metrics: Metrics) -> Batcher:
    return Batcher(metrics, BUDGET)


def asked(
    *texts: str,
    priority: Priority = Priority.TURN,
    deadline: float = float("inf"),
    namespace: str = "",
) -> EncodingRequest:
    loop = asyncio.new_event_loop()
    loop.close()  # the answer is never awaited here
    return EncodingRequest(
        model=None,  # type: ignore[arg-type] # nothing is computed here
        texts=[RoleText(text, Role.AFTER) for text in texts],
        priority=priority,
        answer=asyncio.Future(loop=loop),
        vectors=np.empty((len(texts), 2), np.float32),
        deadline=deadline,
        namespace=namespace,
    )


def add_tokenized(batcher: Batcher, *requests: EncodingRequest) -> None:
    for request in requests:
        batcher.add(request)
    while part := batcher.next_slice():
        tokenize(batcher, part)


def tokenize(batcher: Batcher, part: TextSlice) -> None:
    batcher.add_tokens(part, [[1] * len(role_text.text) for role_text in part.texts])


def batches(batcher: Batcher) -> Iterator[Batch]:
    while work := batcher.next_work():
        assert isinstance(work, list)
        yield work


def texts(batch: Batch) -> list[str]:
    return [entry.request.texts[entry.index].text for entry in batch]


def dropped(metrics: Metrics, reason: str) -> float:
    return metrics.dropped_texts.labels(reason)._value.get()


@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=40), max_size=6))
def test_every_text_is_in_one_batch(lengths: list[list[int]]) -> None:
    batcher = Batcher(Metrics(), BUDGET)
    requests = [
        asked(*("x" * length for length in of_one), namespace=str(n % 3))
        for n, of_one in enumerate(lengths)
    ]
    add_tokenized(batcher, *requests)
    taken = [(entry.request, entry.index) for batch in batches(batcher) for entry in batch]
    assert len(taken) == len(set(taken)) == sum(map(len, lengths))
    assert batcher.size == 0


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_the_oldest_is_in_every_batch_and_the_budget_holds(lengths: list[int]) -> None:
    batcher = Batcher(Metrics(), BUDGET)
    add_tokenized(batcher, asked(*("x" * length for length in lengths)))
    left = list(range(len(lengths)))
    for batch in batches(batcher):
        taken = [entry.index for entry in batch]
        assert left[0] in taken
        assert len(taken) == 1 or len(taken) * max(lengths[index] for index in taken) <= BUDGET
        left = [index for index in left if index not in taken]
    assert not left


def test_a_batch_is_of_like_length(batcher: Batcher) -> None:
    add_tokenized(batcher, asked("aaa", "b" * 20, "cccc", "d" * 19, "ee", "ffffff"))
    assert sorted(map(len, texts(next(batches(batcher))))) == [2, 3, 4, 6]


def test_urgent_texts_go_first(batcher: Batcher) -> None:
    for priority in reversed(Priority):
        add_tokenized(batcher, asked(priority.name, priority=priority))
    assert [texts(batch) for batch in batches(batcher)] == [[each.name] for each in Priority]


@pytest.mark.parametrize(
    ("of_a", "of_b", "order"),
    [
        (Priority.TURN, Priority.TURN, "abaa"),
        (Priority.TURN, Priority.LIST, "abaa"),
        (Priority.BULK, Priority.TURN, "baaa"),
    ],
)
def test_a_namespace_waits_for_one_batch_of_another_at_most(
    batcher: Batcher, of_a: Priority, of_b: Priority, order: str
) -> None:
    a = asked(*["a" * BUDGET] * 3, namespace="a", priority=of_a)
    add_tokenized(batcher, a, asked("b", "bb", namespace="b", priority=of_b))
    assert [texts(batch)[0][0] for batch in batches(batcher)] == list(order)


def test_a_namespace_that_comes_back_is_next(batcher: Batcher) -> None:
    for name in "abc":
        add_tokenized(batcher, asked(*[name * BUDGET] * 3, namespace=name))
    assert [texts(next(batches(batcher)))[0][0] for _ in range(6)] == list("abcabc")
    batcher.add(asked("d", namespace="d"))  # raw: it is tokenized before another batch runs
    part = batcher.next_work()
    assert isinstance(part, TextSlice)
    tokenize(batcher, part)
    assert [texts(batch)[0][0] for batch in batches(batcher)] == list("dabc")


def test_a_batch_with_room_takes_texts_of_other_namespaces(batcher: Batcher) -> None:
    requests = [asked(text, namespace=text[0]) for text in ("aaaa", "b" * 20, "ccccc")]
    add_tokenized(batcher, *requests, asked("dddd", namespace="d", priority=Priority.LIST))
    assert [texts(batch) for batch in batches(batcher)] == [["aaaa", "ccccc"], ["b" * 20], ["dddd"]]


def test_texts_of_another_namespace_run_while_one_is_tokenized(batcher: Batcher) -> None:
    batcher.add(asked("a", namespace="a"))
    assert batcher.next_slice() is not None
    add_tokenized(batcher, asked("b", namespace="b"))
    assert [texts(batch) for batch in batches(batcher)] == [["b"]]


def test_of_another_namespace_as_many_texts_are_ahead_as_of_ones_own(batcher: Batcher) -> None:
    batcher.add(asked(*["a"] * 70, namespace="a", priority=Priority.LIST))
    batcher.add(asked(*["b"] * 3, namespace="b"))
    ahead = {name: batcher.count_ahead(Priority.LIST, name).total() for name in "abc"}
    assert ahead == {"a": 70 + 3, "b": 3 + 4, "c": 1 + 1}
    assert batcher.count_ahead(Priority.TURN, "a").total() == 1
    assert batcher.count_ahead(Priority.IDLE, "c").total() == 73


def test_an_urgent_text_is_tokenized_before_a_batch_of_others_runs(batcher: Batcher) -> None:
    add_tokenized(batcher, asked("bulk", priority=Priority.BULK))
    turn = asked("turn")
    batcher.add(turn)
    work = batcher.next_work()
    assert isinstance(work, TextSlice)
    assert work.request is turn


def test_nothing_overtakes_urgent_texts_that_are_being_tokenized(batcher: Batcher) -> None:
    add_tokenized(batcher, asked("bulk", priority=Priority.BULK))
    batcher.add(asked("turn"))
    part = batcher.next_slice()
    assert part is not None
    assert batcher.next_work() is None
    tokenize(batcher, part)
    assert [texts(batch) for batch in batches(batcher)] == [["turn"], ["bulk"]]


def test_a_dropped_slice_does_not_block_others(batcher: Batcher) -> None:
    add_tokenized(batcher, asked("bulk", priority=Priority.BULK))
    batcher.add(asked("turn"))
    part = batcher.next_slice()
    assert part is not None
    batcher.drop(part)
    assert [texts(batch) for batch in batches(batcher)] == [["bulk"]]


@pytest.mark.parametrize("cut", [True, False])
def test_abandoned_texts_are_dropped_and_counted(
    batcher: Batcher, metrics: Metrics, cut: bool
) -> None:
    cancelled = asked("a", "b")
    late = asked("c", deadline=time.monotonic() + 3600)
    if cut:
        add_tokenized(batcher, cancelled, late)
    else:
        batcher.add(cancelled)
        batcher.add(late)
    cancelled.answer.cancel()
    late.deadline = 0.0
    assert batcher.next_work() is None
    assert (dropped(metrics, "cancelled"), dropped(metrics, "deadline")) == (2, 1)
    assert batcher.size == 0


def test_no_batch_has_a_text_that_nobody_waits_for(batcher: Batcher, metrics: Metrics) -> None:
    first = asked("aaa")
    gone = asked("bbb")
    other = asked("ccc", namespace="other")
    add_tokenized(batcher, first, gone, other)
    gone.answer.cancel()
    assert [texts(batch) for batch in batches(batcher)] == [["aaa", "ccc"]]
    assert dropped(metrics, "cancelled") == 1
    assert batcher.size == 0


def test_the_rest_of_a_failed_request_is_no_drop(batcher: Batcher, metrics: Metrics) -> None:
    failed = asked("a", "b")
    add_tokenized(batcher, failed)
    failed.failed = True
    assert batcher.next_work() is None
    assert dropped(metrics, "cancelled") == 0
    assert batcher.size == 0


def test_uploads_do_not_count_toward_the_bound(batcher: Batcher) -> None:
    batcher.add(asked("a", "b", priority=Priority.BULK))
    batcher.add(asked("c", priority=Priority.IDLE))
    assert (batcher.size, batcher.count_ahead(Priority.IDLE, "").total()) == (3, 1)


def test_waiting_texts_are_counted_per_lane(batcher: Batcher, metrics: Metrics) -> None:
    batcher.add(asked("a", "b", priority=Priority.BULK))
    batcher.add(asked("c", priority=Priority.LIST))
    batcher.add(asked("d"))
    depth = {
        lane: metrics.queue_texts.labels(lane)._value.get() for lane in ("critical", "idle", "bulk")
    }
    assert depth == {"critical": 2, "idle": 0, "bulk": 2}


def test_the_oldest_may_wait_at_any_stage(batcher: Batcher) -> None:
    assert batcher.oldest_seconds == 0
    old = asked("a", priority=Priority.LIST)
    older = asked("b", priority=Priority.BULK)
    older.queued_at -= 200  # which may, for others go before it
    batcher.add(older)
    assert batcher.oldest_seconds == 0
    old.queued_at -= 100
    batcher.add(old)
    batcher.add(asked("b"))
    assert 100 <= batcher.oldest_seconds < 200
    while part := batcher.next_slice():
        tokenize(batcher, part)
    assert 100 <= batcher.oldest_seconds < 200


def test_clear_returns_the_unanswered_requests(batcher: Batcher) -> None:
    cut = asked("a", "b")
    raw = asked("c", priority=Priority.BULK)
    add_tokenized(batcher, cut)
    batcher.add(raw)
    assert batcher.clear() == {cut, raw}
    assert batcher.next_work() is None
    assert batcher.size == 0


def test_tokens_that_come_after_it_was_cleared_are_ignored(batcher: Batcher) -> None:
    batcher.add(asked("a"))
    batcher.add(asked("b", priority=Priority.BULK))
    parts = [batcher.next_slice(), batcher.next_slice()]
    batcher.clear()
    first, second = [part for part in parts if part]
    tokenize(batcher, first)
    batcher.drop(second)
    assert batcher.next_work() is None
    assert batcher.size == 0

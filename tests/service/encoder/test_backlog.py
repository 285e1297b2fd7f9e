import asyncio
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.roles import Role, RoleText
from turnwise.service.encoder.backlog import Backlog, EncodingRequest, Entry, Piece, Priority
from turnwise.service.observe.metrics import Metrics

BUDGET = 40


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def backlog(metrics: Metrics) -> Backlog:
    return Backlog(metrics, BUDGET)


def asked(
    *texts: str, priority: Priority = Priority.TURN, deadline: float = float("inf")
) -> EncodingRequest:
    loop = asyncio.new_event_loop()
    loop.close()  # the answer is never awaited here
    return EncodingRequest(
        items=[RoleText(text, Role.AFTER) for text in texts],
        priority=priority,
        answer=asyncio.Future(loop=loop),
        vectors=np.empty((len(texts), 2), np.float32),
        deadline=deadline,
    )


def cut_up(backlog: Backlog, *requests: EncodingRequest) -> None:
    for request in requests:
        backlog.add(request)
    while piece := backlog.take_piece():
        put(backlog, piece)


def put(backlog: Backlog, piece: Piece) -> None:
    backlog.put(piece, [[1] * len(item.text) for item in piece.items])


def batches(backlog: Backlog) -> Iterator[list[Entry]]:
    while work := backlog.take():
        assert isinstance(work, list)
        yield work


def texts(batch: Sequence[Entry]) -> list[str]:
    return [entry.request.items[entry.place].text for entry in batch]


def dropped(metrics: Metrics, reason: str) -> float:
    return metrics.dropped_texts.labels(reason)._value.get()


@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=40), max_size=6))
def test_every_text_is_in_one_batch_and_no_batch_passes_the_budget(
    lengths: list[list[int]],
) -> None:
    backlog = Backlog(Metrics(), BUDGET)
    requests = [asked(*("x" * length for length in of_one)) for of_one in lengths]
    cut_up(backlog, *requests)
    taken = [(entry.request, entry.place) for batch in batches(backlog) for entry in batch]
    assert len(taken) == len(set(taken)) == sum(map(len, lengths))
    assert backlog.size == 0


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_the_oldest_is_in_every_batch_and_the_budget_holds(lengths: list[int]) -> None:
    backlog = Backlog(Metrics(), BUDGET)
    cut_up(backlog, asked(*("x" * length for length in lengths)))
    left = list(range(len(lengths)))
    for batch in batches(backlog):
        places = [entry.place for entry in batch]
        assert left[0] in places
        assert len(places) == 1 or len(places) * max(lengths[p] for p in places) <= BUDGET
        left = [place for place in left if place not in places]
    assert not left


def test_a_batch_is_of_like_length(backlog: Backlog) -> None:
    cut_up(backlog, asked("aaa", "b" * 20, "cccc", "d" * 19, "ee", "ffffff"))
    assert sorted(map(len, texts(next(batches(backlog))))) == [2, 3, 4, 6]


def test_what_is_urgent_goes_first(backlog: Backlog) -> None:
    for priority in reversed(Priority):
        cut_up(backlog, asked(priority.name, priority=priority))
    assert [texts(batch) for batch in batches(backlog)] == [["TURN"], ["LIST"], ["IDLE"], ["BULK"]]


def test_an_urgent_text_is_cut_up_before_a_batch_of_others_runs(backlog: Backlog) -> None:
    cut_up(backlog, asked("bulk", priority=Priority.BULK))
    turn = asked("turn")
    backlog.add(turn)
    work = backlog.take()
    assert isinstance(work, Piece)
    assert work.request is turn


def test_nothing_overtakes_what_somebody_has_in_hand(backlog: Backlog) -> None:
    cut_up(backlog, asked("bulk", priority=Priority.BULK))
    backlog.add(asked("turn"))
    piece = backlog.take_piece()
    assert piece is not None
    assert backlog.take() is None
    put(backlog, piece)
    assert [texts(batch) for batch in batches(backlog)] == [["turn"], ["bulk"]]


def test_what_is_given_up_holds_nothing_back(backlog: Backlog) -> None:
    cut_up(backlog, asked("bulk", priority=Priority.BULK))
    backlog.add(asked("turn"))
    piece = backlog.take_piece()
    assert piece is not None
    backlog.forget(piece)
    assert [texts(batch) for batch in batches(backlog)] == [["bulk"]]


@pytest.mark.parametrize("cut", [True, False])
def test_what_nobody_waits_for_is_dropped_and_counted(
    backlog: Backlog, metrics: Metrics, cut: bool
) -> None:
    cancelled, late = asked("a", "b"), asked("c", deadline=time.monotonic() + 3600)
    if cut:
        cut_up(backlog, cancelled, late)
    else:
        backlog.add(cancelled)
        backlog.add(late)
    cancelled.answer.cancel()
    late.deadline = 0.0
    assert backlog.take() is None
    assert (dropped(metrics, "cancelled"), dropped(metrics, "deadline")) == (2, 1)
    assert backlog.size == 0


def test_what_nobody_waits_for_takes_no_place_in_a_batch(
    backlog: Backlog, metrics: Metrics
) -> None:
    waiting, cancelled = asked("a"), asked("b")
    cut_up(backlog, waiting, cancelled)
    cancelled.answer.cancel()
    assert [texts(batch) for batch in batches(backlog)] == [["a"]]
    assert dropped(metrics, "cancelled") == 1


def test_the_rest_of_a_failed_request_is_no_drop(backlog: Backlog, metrics: Metrics) -> None:
    failed = asked("a", "b")
    cut_up(backlog, failed)
    failed.failed = True
    assert backlog.take() is None
    assert dropped(metrics, "cancelled") == 0
    assert backlog.size == 0


def test_uploads_do_not_count_toward_the_bound(backlog: Backlog) -> None:
    backlog.add(asked("a", "b", priority=Priority.BULK))
    backlog.add(asked("c", priority=Priority.IDLE))
    assert (backlog.size, backlog.before(Priority.IDLE)) == (3, 1)


def test_waiting_texts_are_counted_per_lane(backlog: Backlog, metrics: Metrics) -> None:
    backlog.add(asked("a", "b", priority=Priority.BULK))
    backlog.add(asked("c", priority=Priority.LIST))
    backlog.add(asked("d"))
    depth = {
        lane: metrics.queue_texts.labels(lane)._value.get() for lane in ("critical", "idle", "bulk")
    }
    assert depth == {"critical": 2, "idle": 0, "bulk": 2}


def test_the_oldest_may_wait_at_any_stage(backlog: Backlog) -> None:
    assert backlog.oldest == 0
    old, older = asked("a", priority=Priority.LIST), asked("b", priority=Priority.BULK)
    older.since -= 200  # which may, for others go before it
    backlog.add(older)
    assert backlog.oldest == 0
    old.since -= 100
    backlog.add(old)
    backlog.add(asked("b"))
    assert 100 <= backlog.oldest < 200
    while piece := backlog.take_piece():
        put(backlog, piece)
    assert 100 <= backlog.oldest < 200


def test_clearing_names_whom_it_left_without_an_answer(backlog: Backlog) -> None:
    cut, raw = asked("a", "b"), asked("c", priority=Priority.BULK)
    cut_up(backlog, cut)
    backlog.add(raw)
    assert backlog.clear() == {cut, raw}
    assert backlog.take() is None
    assert backlog.size == 0

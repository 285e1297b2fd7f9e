import time
from dataclasses import replace

import numpy as np
import pytest

from turnwise.models.arrays import Float32
from turnwise.models.scores import KeptRows, rows
from turnwise.service.sessions.store import Session
from turnwise.service.sessions.turns import Turn
from turnwise.service.sessions.update import NewVectors, Update

D = 8
TEXTS = ["Hello", "Hi, how can I help?", "Where is my parcel?", "Let me look", "Thanks"]
TURNS = tuple(Turn(("user", "bot")[place % 2], text, 0.0) for place, text in enumerate(TEXTS))
FIRST, SECOND = np.random.default_rng(0).normal(size=(2, len(TURNS), D)).astype(np.float32)


def session(turns: int, *, vectors_read: bool = True) -> Session:
    """A session of whose last utterance [B1] is missing."""
    return Session(
        version="1",
        epoch=7,
        responder="bot",
        where=None,
        slots={},
        prefix="",
        fingerprint="f",
        turns=TURNS[:turns],
        first=FIRST[: turns - 1],
        encoded=SECOND[: turns * vectors_read],
        rows=kept(rows(FIRST[:turns], SECOND[:turns])),
        complete=turns,
        lost=False,
        expires_at=0.0,
    )


def kept(whole: Float32) -> KeptRows:
    return KeptRows.none(D, paired=True).then(whole)


def encoded(update: Update) -> NewVectors:
    """The vectors that an encoder would return, by the place of each text, and the rows."""

    def vectors(table: Float32, texts: list[str]) -> Float32:
        return np.array([table[TEXTS.index(text)] for text in texts]).reshape(-1, D)

    first = vectors(FIRST, [said.text for said in update.without_first])
    new = vectors(SECOND, [said.text for said in update.not_encoded])
    before = update.kept_rows or KeptRows.none(D, paired=True)
    start = before.count
    added = rows(update.first(first), update.encoded(new, start), start)
    return NewVectors(first, new, before.then(added))


@pytest.mark.parametrize("read", [0, 1, 3, 4, 5])
def test_kept_and_new_vectors_make_the_context_as_encoded_from_scratch(read: int) -> None:
    update = Update(session(read) if read else None, TURNS, "bot")
    new = encoded(update)
    np.testing.assert_array_equal(update.first(new.first)[:4], FIRST[:4])
    np.testing.assert_array_equal(update.encoded(new.encoded), SECOND)
    wanted = kept(rows(FIRST, SECOND))
    assert new.rows
    assert new.rows.count == wanted.count
    np.testing.assert_allclose(new.rows.total, wanted.total, rtol=1e-6)
    np.testing.assert_array_equal(new.rows.newest, wanted.newest)


def test_a_plain_turn_encodes_the_new_utterance_and_the_one_before() -> None:
    update = Update(session(4), TURNS, "bot")
    assert [said.text for said in update.without_first] == TEXTS[3:4]
    assert [said.text for said in update.not_encoded] == TEXTS[4:]
    change = update.change(encoded(update))
    assert (change.keep_turns, change.keep_first, change.keep_encoded) == (4, 3, 4)
    assert (len(change.turns), len(change.first), len(change.encoded)) == (1, 1, 1)
    assert change.epoch == 7


def test_the_newest_utterance_lacks_its_first_vector_until_that_is_kept() -> None:
    def newest(base: Session | None) -> list[str]:
        return [said.text for said in Update(base, TURNS, "bot").newest_without_first]

    assert newest(None) == newest(session(4)) == newest(session(5)) == TEXTS[4:]
    assert newest(replace(session(5), first=FIRST)) == []
    assert Update(None, (), "bot").newest_without_first == ()


def test_a_turn_that_joins_the_last_utterance_replaces_its_vectors() -> None:
    joined = (*TURNS[:3], Turn("user", "It is late", 1.0))
    update = Update(session(3, vectors_read=False), joined, "bot")
    assert [said.text for said in update.not_encoded] == ["Where is my parcel? It is late"]
    assert update.without_first == ()
    assert update.kept_rows
    wanted = kept(rows(FIRST[:2], SECOND[:2]))
    np.testing.assert_allclose(update.kept_rows.total, wanted.total, atol=1e-6)
    np.testing.assert_array_equal(update.kept_rows.newest, wanted.newest[1:])
    change = update.change(NewVectors.none(D))
    assert (change.keep_turns, change.keep_encoded, change.epoch) == (3, 2, 8)


def test_rows_are_computed_anew_where_none_or_too_few_are_kept() -> None:
    without = replace(session(4), rows=None)
    update = Update(without, TURNS, "bot")
    assert update.kept_rows is None
    np.testing.assert_array_equal(update.encoded(SECOND[4:]), SECOND)
    assert Update(session(4), TURNS[:2], "bot").kept_rows is None


def test_an_undo_keeps_the_vectors_before_and_adds_none() -> None:
    update = Update(session(4), TURNS[:2], "bot")
    change = update.change(NewVectors.none(D))
    assert (change.keep_turns, change.keep_first, change.keep_encoded) == (2, 2, 2)
    assert (len(change.turns), len(change.encoded), change.epoch) == (0, 0, 8)
    assert change.rows is None


@pytest.mark.parametrize(
    ("turns", "unchanged"),
    [
        (TURNS[:3], None),  # nothing new
        (TURNS[:4], None),
        (TURNS[:2], 2),
        ((*TURNS[:2], TURNS[0]), 2),
    ],
)
def test_the_epoch_differs_where_kept_vectors_may_not_be_used(
    turns: tuple[Turn, ...], unchanged: int | None
) -> None:
    change = Update(session(3), turns, "bot").change(NewVectors.none(D))
    assert (change.unchanged, change.epoch) == (unchanged, 7 if unchanged is None else 8)


def test_of_turns_that_redis_lost_no_model_keeps_vectors() -> None:
    lost = replace(session(0), lost=True)
    change = Update(lost, TURNS[:1], "bot").change(NewVectors.none(D))
    assert (change.unchanged, change.epoch) == (0, 8)


def test_a_new_session_never_has_the_epoch_of_one_that_was_deleted() -> None:
    old = Update(None, TURNS[:1], "bot")
    assert old.epoch == old.epoch
    time.sleep(1e-5)
    assert Update(None, TURNS[:1], "bot").epoch > old.epoch

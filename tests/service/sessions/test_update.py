import time
from dataclasses import replace

import numpy as np
import pytest

from turnwise.models.arrays import Float32
from turnwise.models.scores import rows
from turnwise.service.sessions.store import Session
from turnwise.service.sessions.turns import Turn
from turnwise.service.sessions.update import NewVectors, Update

D = 8
TEXTS = ["Hello", "Hi, how can I help?", "Where is my parcel?", "Let me look", "Thanks"]
TURNS = tuple(Turn(("user", "bot")[place % 2], text, 0.0) for place, text in enumerate(TEXTS))
FIRST, SECOND = np.random.default_rng(0).normal(size=(2, len(TURNS), D)).astype(np.float32)


def session(turns: int, *, rows_read: int | None = None) -> Session:
    """A session of whose last utterance [B1] is missing."""
    whole = rows(FIRST[:turns], SECOND[:turns])
    return Session(
        version="1",
        epoch=7,
        responder="bot",
        fingerprint="f",
        turns=TURNS[:turns],
        first=FIRST[: turns - 1],
        second=SECOND[:turns],
        rows=whole if rows_read is None else whole[-rows_read:],
        complete=turns,
        expires_at=0.0,
    )


def encoded(update: Update) -> NewVectors:
    """The vectors that an encoder would return, by the place of each text."""

    def vectors(table: Float32, texts: list[str]) -> Float32:
        return np.array([table[TEXTS.index(text)] for text in texts]).reshape(-1, D)

    return update.new_vectors(
        vectors(FIRST, [said.text for said in update.without_first]),
        vectors(SECOND, [said.text for said in update.without_second]),
    )


@pytest.mark.parametrize("read", [0, 1, 3, 4, 5])
@pytest.mark.parametrize("fingerprint", ["f", "another model's"])
def test_kept_and_new_vectors_make_the_context_as_encoded_from_scratch(
    read: int, fingerprint: str
) -> None:
    base = replace(session(read), fingerprint=fingerprint) if read else None
    update = Update(base, TURNS, "bot", "f")
    context = update.context(encoded(update))
    assert context.texts == TEXTS
    np.testing.assert_array_equal(context.first[:4], FIRST[:4])
    np.testing.assert_array_equal(context.second, SECOND)
    np.testing.assert_array_equal(context.rows, rows(FIRST, SECOND))


def test_a_plain_turn_encodes_the_new_utterance_and_the_one_before() -> None:
    update = Update(session(4), TURNS, "bot", "f")
    assert [said.text for said in update.without_first] == TEXTS[3:4]
    assert [said.text for said in update.without_second] == TEXTS[4:]
    change = update.change(encoded(update))
    assert (change.keep_turns, change.keep_first, change.keep_complete) == (4, 3, 4)
    assert (len(change.turns), len(change.first), len(change.second)) == (1, 1, 1)
    assert change.epoch == 7


def test_rows_that_were_not_read_are_not_in_the_context() -> None:
    update = Update(session(4, rows_read=2), TURNS, "bot", "f")
    context = update.context(encoded(update))
    np.testing.assert_array_equal(context.rows, rows(FIRST, SECOND)[2:])


def test_a_turn_that_joins_the_last_utterance_replaces_its_vectors() -> None:
    joined = (*TURNS[:3], Turn("user", "It is late", 1.0))
    update = Update(session(3, rows_read=2), joined, "bot", "f")
    assert [said.text for said in update.without_second] == ["Where is my parcel? It is late"]
    assert update.without_first == ()
    new = update.new_vectors(np.empty((0, D), np.float32), SECOND[3:4])
    context, change = update.context(new), update.change(new)
    expected = rows(FIRST[:2], np.concatenate([SECOND[:2], SECOND[3:4]]))
    np.testing.assert_array_equal(context.rows, expected[1:])
    assert (change.keep_turns, change.keep_complete, change.epoch) == (3, 2, 8)


def test_an_undo_keeps_the_vectors_before_and_adds_none() -> None:
    update = Update(session(4), TURNS[:3], "bot", "f")
    change = update.change(NewVectors.none(D))
    assert (change.keep_turns, change.keep_first, change.keep_complete) == (3, 3, 3)
    assert (len(change.turns), len(change.second), change.epoch) == (0, 0, 8)


@pytest.mark.parametrize(
    ("turns", "fingerprint", "epoch"),
    [
        (TURNS[:3], "f", 7),  # nothing new
        (TURNS[:4], "f", 7),
        (TURNS[:2], "f", 8),
        ((*TURNS[:2], TURNS[0]), "f", 8),
        (TURNS[:4], "another model's", 8),
    ],
)
def test_the_epoch_differs_where_kept_vectors_may_not_be_used(
    turns: tuple[Turn, ...], fingerprint: str, epoch: int
) -> None:
    assert Update(session(3), turns, "bot", fingerprint).epoch == epoch


def test_a_new_session_never_has_the_epoch_of_one_that_was_deleted() -> None:
    old = Update(None, TURNS[:1], "bot", "f")
    assert old.epoch == old.epoch
    time.sleep(1e-5)
    assert Update(None, TURNS[:1], "bot", "f").epoch > old.epoch

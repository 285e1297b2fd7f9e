from dataclasses import replace

import numpy as np
import pytest
from redis.asyncio import Redis

from tests.support.redis_keys import session_key
from turnwise.models.arrays import Float32
from turnwise.models.scores import ROWS_KEPT, KeptRows
from turnwise.service.observe.metrics import Metrics
from turnwise.service.sessions.feedback import FeedbackStore
from turnwise.service.sessions.store import (
    ANSWER_BYTES_KEPT,
    ANSWERS_KEPT,
    OFFERS_KEPT,
    Answered,
    Change,
    Offer,
    Session,
    SessionKey,
    SessionStore,
)
from turnwise.service.sessions.turns import Turn
from turnwise.service.wire.sessions import FeedbackRequest

pytestmark = pytest.mark.anyio

D = 384
KEY = SessionKey("shop", "s-1")


def key_of(part: str) -> str:
    """The key of a part of the session."""
    return session_key(*KEY, part)


def vectors(count: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(size=(count, D)).astype(np.float32)


def store(redis: Redis, metrics: Metrics | None = None, model: str = "f") -> SessionStore:
    return SessionStore(
        redis, metrics or Metrics(), fingerprint=model, dimension=D, ttl=100, paired=True
    )


def turn(base: Session | None, text: str = "Hello", seed: int = 0) -> Change:
    """A plain turn: the [B1] of the utterance before, the [B2] and row of the new one."""
    place = len(base.turns) if base else 0
    rows = (base and base.rows) or KeptRows.none(D, paired=True)
    return Change(
        epoch=base.epoch if base else 0,
        responder="bot",
        keep_turns=place,
        turns=[Turn("user", text, 1.5)],
        keep_first=max(place - 1, 0),
        first=vectors(min(place, 1), seed),
        keep_encoded=place,
        encoded=vectors(1, seed + 1),
        rows=rows.then(vectors(1, seed + 2)),
    )


async def read(sessions: SessionStore) -> Session:
    session, _ = await sessions.read(KEY, encoded=True)
    assert session
    return session


async def write(sessions: SessionStore, turns: int, text: str = "Hello") -> Session:
    session = None
    for seed in range(turns):
        assert await sessions.commit(KEY, session, turn(session, text, seed))
        session = await read(sessions)
    assert session
    return session


def test_ids_of_version_0_1_have_the_same_keys_as_before() -> None:
    assert SessionKey("shop", "u42-1._~").keys("meta", "posts") == [
        "tw:session:{shop/u42-1._~}:meta",
        "tw:session:{shop/u42-1._~}:posts",
    ]


async def test_what_was_committed_is_read(redis: Redis) -> None:
    sessions = store(redis)
    assert await sessions.read(KEY) == (None, None)
    session = await write(sessions, 3)
    assert session.turns == (Turn("user", "Hello", 1.5),) * 3
    assert (session.responder, session.fingerprint, session.complete) == ("bot", "f", 3)
    assert session.rows
    rows = np.concatenate([vectors(1, s + 2) for s in range(3)])
    np.testing.assert_array_equal(session.rows.newest, rows[-ROWS_KEPT:])
    np.testing.assert_allclose(session.rows.total, rows[1] + rows[2], rtol=1e-6)
    expected = np.concatenate([vectors(1, s + 1) for s in range(3)]).astype(np.float16)
    np.testing.assert_array_equal(session.encoded, expected)
    assert len(session.first) == 2


async def test_only_what_is_wanted_is_read(redis: Redis) -> None:
    sessions = store(redis)
    await write(sessions, 6)
    session, _ = await sessions.read(KEY)
    assert session
    assert session.rows
    assert (session.rows.count, len(session.rows.newest)) == (6, ROWS_KEPT)
    assert session.encoded.shape == (0, D)
    assert session.complete == 6


@pytest.mark.parametrize(
    "stored",
    [
        {"rows": None},
        {"rows_of": None},
        {"rows": None, "rows_of": None},  # as version 0.1 left it
        {"rows": b""},
        {"rows": b"x"},
        {"rows": vectors(2).tobytes()},
    ],
)
async def test_without_rows_of_this_release_the_vectors_are_read_to_compute_them(
    redis: Redis, stored: dict[str, bytes | None]
) -> None:
    sessions = store(redis)
    await write(sessions, 3)
    for field, value in stored.items():
        if value is None:
            await redis.hdel(key_of("meta"), field)
        else:
            await redis.hset(key_of("meta"), field, value)
    session, _ = await sessions.read(KEY)
    assert session
    assert session.rows is None
    assert (session.complete, len(session.encoded)) == (3, 3)


async def test_rows_of_other_utterances_are_not_used(redis: Redis) -> None:
    """A replica of version 0.1 changes a session and leaves the rows that it does not know."""
    sessions = store(redis)
    await write(sessions, 3)
    await redis.rpush(key_of("second"), vectors(1).astype(np.float16).tobytes())
    assert (await read(sessions)).rows is None
    await redis.rpop(key_of("second"))
    assert (await read(sessions)).rows
    await redis.hincrby(key_of("meta"), "epoch", 1)
    assert (await read(sessions)).rows is None


async def test_a_commit_on_an_older_version_changes_nothing(redis: Redis) -> None:
    sessions = store(redis)
    old = await write(sessions, 1)
    assert await sessions.commit(KEY, old, turn(old, "first"))
    assert not await sessions.commit(KEY, old, turn(old, "second"))
    assert not await sessions.commit(KEY, None, turn(None, "third"))
    assert [turn.text for turn in (await read(sessions)).turns] == ["Hello", "first"]


async def test_a_commit_on_a_deleted_session_of_the_same_name_changes_nothing(redis: Redis) -> None:
    sessions = store(redis)
    old = await write(sessions, 2)
    assert await sessions.delete(KEY) == int(old.version)
    assert await sessions.delete(KEY) is None
    await write(sessions, 2)
    assert not await sessions.commit(KEY, old, turn(old))


async def test_every_key_of_a_session_expires(redis: Redis) -> None:
    sessions = store(redis)
    change = replace(turn(None), first=vectors(1), answered=Answered("k" * 64, "b" * 64, "{}"))
    await sessions.commit(KEY, None, change)
    session = await read(sessions)
    assert await sessions.put_b1(KEY, session, session.epoch, 1, vectors(1)[0])
    keys = await redis.keys("*")
    assert len(keys) == 5
    assert all([0 < await redis.ttl(key) <= 100 for key in keys])


async def test_a_late_first_vector_lands_only_on_its_utterance(redis: Redis) -> None:
    sessions = store(redis)
    session = await write(sessions, 2)
    vector = vectors(1)[0]
    assert not await sessions.put_b1(KEY, session, session.epoch, 0, vector)  # is there
    assert not await sessions.put_b1(
        KEY, session, session.epoch, 2, vector
    )  # one before is missing
    assert not await sessions.put_b1(KEY, session, session.epoch + 1, 1, vector)  # another text
    assert await sessions.put_b1(KEY, session, session.epoch, 1, vector)
    assert len((await read(sessions)).first) == 2
    await sessions.delete(KEY)
    assert not await sessions.put_b1(KEY, session, session.epoch, 0, vector)
    assert await redis.keys("*") == []


async def test_lists_are_cut_to_what_is_kept(redis: Redis) -> None:
    sessions = store(redis)
    session = await write(sessions, 3)
    none = vectors(0)
    change = Change(1, "bot", 2, [], 1, none, 1, none, None, unchanged=2)
    assert await sessions.commit(KEY, session, change)
    after = await read(sessions)
    assert (len(after.turns), len(after.first), len(after.encoded)) == (2, 1, 1)
    assert (after.rows, after.epoch) == (None, 1)


@pytest.mark.parametrize("lost", ["first", "second"])
async def test_vectors_that_redis_evicted_are_missing_not_wrong(redis: Redis, lost: str) -> None:
    sessions = store(redis)
    before = await write(sessions, 3)
    await redis.delete(key_of(lost))
    after = await read(sessions)
    assert not await sessions.commit(KEY, before, turn(before))  # nothing lands behind a gap
    assert after.turns == before.turns
    assert (after.complete, len(after.first)) == ((3, 0) if lost == "first" else (0, 2))


@pytest.mark.parametrize("lost", ["meta", "posts"])
async def test_answers_and_feedback_of_turns_that_redis_evicted_go_too(
    redis: Redis, lost: str
) -> None:
    sessions = store(redis)
    answered = Answered("k" * 64, "b" * 64, '{"turn":1}')
    change = replace(turn(None), answered=answered, offer=Offer("p", "m", ["r1"]))
    assert await sessions.commit(KEY, None, change)
    feedback = FeedbackStore(redis, Metrics())
    await feedback.add(KEY, 1, FeedbackRequest(candidate="r1", event="shown"))
    await redis.delete(key_of(lost))
    base, _ = await sessions.read(KEY, idempotency_key="k" * 64)
    assert await sessions.commit(KEY, base, turn(base))
    assert (await sessions.read(KEY, idempotency_key="k" * 64))[1] is None
    assert await feedback.read(KEY) == []


async def test_the_newest_choice_of_a_turn_is_kept_as_long_as_the_turn_may_get_feedback(
    redis: Redis,
) -> None:
    sessions = store(redis)
    feedback = FeedbackStore(redis, Metrics())
    change = replace(turn(None), offer=Offer("p", "m", ["r1", "r2", "r3"]))
    assert await sessions.commit(KEY, None, change)
    for candidate, event in [("r2", "chosen"), ("r1", "chosen"), ("r3", "shown")]:
        await feedback.add(KEY, 1, FeedbackRequest(candidate=candidate, event=event))
    assert (await read(sessions)).choice == "r1"
    for _ in range(OFFERS_KEPT):
        assert await redis.hexists(key_of("meta"), "choice:1")
        session = await read(sessions)
        assert await sessions.commit(KEY, session, turn(session))
        assert (await read(sessions)).choice is None  # of the new turn
    assert not await redis.hexists(key_of("meta"), "choice:1")


async def test_answers_come_back_by_key_and_the_oldest_go(redis: Redis) -> None:
    sessions = store(redis)
    session = None
    for number in range(ANSWERS_KEPT + 1):
        answered = Answered(f"{number:064}", "b" * 64, f'{{"n":\n{number}}}')
        assert await sessions.commit(KEY, session, replace(turn(session), answered=answered))
        session = await read(sessions)
    _, oldest = await sessions.read(KEY, idempotency_key=f"{0:064}")
    _, second = await sessions.read(KEY, idempotency_key=f"{1:064}")
    assert oldest is None
    assert second == Answered(f"{1:064}", "b" * 64, '{"n":\n1}')


async def test_the_bytes_of_answers_are_bounded_and_the_newest_is_kept(redis: Redis) -> None:
    sessions = store(redis)
    session = None
    third = "x" * (ANSWER_BYTES_KEPT // 3)
    for number, answer in enumerate([third, third, third, 4 * third, "{}", third, third]):
        answered = Answered(f"{number:064}", "b" * 64, answer)
        assert await sessions.commit(KEY, session, replace(turn(session), answered=answered))
        session, newest = await sessions.read(KEY, idempotency_key=f"{number:064}")
        assert newest == answered
        kept = await redis.lrange(key_of("answers"), 0, -1)
        assert sum(map(len, kept)) <= ANSWER_BYTES_KEPT or len(kept) == 1
        assert len(kept) == [1, 2, 2, 1, 1, 2, 3][number]


async def test_two_models_keep_their_vectors_and_a_third_takes_the_older_place(
    redis: Redis,
) -> None:
    one, two, three = (store(redis, model=model) for model in "fgh")
    await write(one, 3)
    session = await read(two)
    assert (session.complete, session.fingerprint, len(session.turns)) == (0, "f", 3)
    whole = replace(turn(session), keep_first=0, keep_encoded=0, encoded=vectors(4, seed=9))
    assert await two.commit(KEY, session, replace(whole, rows=rows_of(4)))
    after = await read(two)
    assert (after.complete, after.fingerprint, after.prefix) == (4, "g", "other_")
    np.testing.assert_array_equal(after.encoded, vectors(4, seed=9).astype(np.float16))
    assert after.rows
    of_one = await read(one)
    assert (of_one.complete, len(of_one.first), len(of_one.turns)) == (3, 2, 4)
    await redis.pexpire(key_of("second"), 50_000)  # it was used longer ago
    base = await read(three)
    assert await three.commit(KEY, base, replace(whole, keep_turns=4, rows=None))
    assert [(await read(each)).complete for each in (one, two, three)] == [0, 4, 4]
    assert 0 < await redis.pttl(key_of("other_second")) <= 100_000
    assert await three.delete(KEY)
    assert await redis.keys("*") == []


async def test_a_model_that_is_not_used_loses_its_vectors(redis: Redis) -> None:
    one = store(redis)
    two = store(redis, model="g")
    session = await write(one, 2)
    assert await one.put_b1(KEY, session, session.epoch, 1, vectors(1)[0])
    for part in ("first", "second"):
        await redis.expire(key_of(part), 7)
    assert await two.commit(KEY, session := await read(two), other_turn(session, 0))
    assert all([await redis.pttl(key_of(part)) <= 7_000 for part in ("first", "second")])
    assert await redis.pttl(key_of("other_second")) > 7_000


@pytest.mark.parametrize("changing", ["f", "g"])
async def test_vectors_of_changed_utterances_leave_every_model(redis: Redis, changing: str) -> None:
    await write(store(redis), 3)
    two = store(redis, model="g")
    assert await two.commit(KEY, session := await read(two), other_turn(session, 0))
    await redis.rpush(key_of("rows"), *"abc")  # of version 0.1
    sessions = store(redis, model=changing)
    none = vectors(0)
    session = await read(sessions)
    undo = Change(session.epoch + 1, "bot", 2, [], 0, none, 2, none, None, unchanged=2)
    assert await sessions.commit(KEY, session, undo)
    for model in "fg":
        after = await read(store(redis, model=model))
        assert (after.complete, after.rows, len(after.turns)) == (2, None, 2)
    assert await redis.llen(key_of("rows")) == 2


async def test_an_earlier_release_does_not_know_of_the_second_place(redis: Redis) -> None:
    """It changes an utterance and the epoch, and leaves the second model's vectors as they are."""
    await write(store(redis), 3)
    two = store(redis, model="g")
    assert await two.commit(KEY, session := await read(two), other_turn(session, 0))
    assert (await read(two)).complete == 4
    await redis.hincrby(key_of("meta"), "epoch", 1)
    assert not await two.put_b1(KEY, session, session.epoch + 1, 0, vectors(1)[0])
    session = await read(two)
    assert (session.complete, session.prefix) == (0, "other_")
    assert await two.commit(KEY, session, other_turn(session, 0))
    assert (await read(two)).complete == 5


def other_turn(session: Session, kept: int) -> Change:
    """A turn whose model has the vectors of the first `kept` utterances, and encodes the others."""
    count = len(session.turns) + 1
    change = replace(turn(session), keep_first=kept, keep_encoded=kept, rows=rows_of(count))
    return replace(change, first=vectors(0), encoded=vectors(count - kept))


def rows_of(count: int) -> KeptRows:
    return KeptRows.none(D, paired=True).then(vectors(count))


@pytest.mark.parametrize(("with_first", "limit"), [(False, 1200), (True, 2100)])
async def test_the_memory_of_a_turn(redis: Redis, with_first: bool, limit: int) -> None:
    """One vector a turn with heads, two without; the rows are a few, whatever the turns."""
    sessions = store(redis)
    sizes = {}
    text = "Could you move my booking to the second weekend of May?"
    session: Session | None = None
    for seed in range(60):
        change = turn(session, text, seed)
        if not with_first:
            change = replace(change, keep_first=0, first=vectors(0))
        assert await sessions.commit(KEY, session, change)
        session = await read(sessions)
        keys = await redis.keys("*")
        sizes[seed + 1] = sum([await redis.memory_usage(key, samples=0) for key in keys])
    assert 768 < (sizes[60] - sizes[20]) / 40 < limit


async def test_commits_are_counted_as_a_new_session_a_turn_or_a_conflict(redis: Redis) -> None:
    metrics = Metrics()
    sessions = store(redis, metrics)
    await write(sessions, 2)
    assert not await sessions.commit(KEY, None, turn(None))
    count = metrics.registry.get_sample_value
    writes = {
        result: count(
            "turnwise_redis_operations_total", {"operation": "session_write", "result": result}
        )
        for result in ("ok", "conflict")
    }
    assert writes == {"ok": 2, "conflict": 1}
    assert count("turnwise_sessions_created_total") == 1

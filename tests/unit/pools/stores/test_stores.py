"""What holds for pools wherever their candidates are: the same tests for every candidate store."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, format_trace_id
from redis.asyncio import Redis

from tests.support import qdrant
from tests.support.waiting import until
from tests.unit.pools.conftest import StartReplica, patch_records, some
from tests.unit.pools.stores.conftest import (
    Fill,
    Left,
    StartWith,
    any_engine,
    any_store,
    both,
    contents,
    finds,
    query_of,
    searched,
    start_two,
    store_of,
)
from turnwise.service.cli.doctor.pools import examine_pools
from turnwise.service.errors import (
    Conflict,
    InvalidRequest,
    PoolNotFound,
    PoolNotReady,
    StateUnavailable,
    StoreUnavailable,
)
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import (
    Candidate,
    Filter,
    PoolEncoder,
    PoolKey,
    following,
    pool,
    read_snapshot,
    write_snapshot,
)
from turnwise.service.pools.listing import Page, WordSearch
from turnwise.service.pools.memory import upkeep
from turnwise.service.pools.redis.directory import Directory
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.stores import Stored, connect_store, remote, remote_view
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import Edited, PoolRequest

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:.*(local|Local).*Qdrant.*|Local mode:UserWarning"),
]


async def test_a_call_of_a_store_is_measured_and_traced(
    provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    metrics = Metrics()
    store = qdrant.make_store(metrics=metrics)
    with provider.get_tracer("test").start_as_current_span("request"):
        await store.create("turnwise_traced", 3)
        with pytest.raises(StoreUnavailable):
            await store.count("turnwise_missing")
    create, count, request = spans.get_finished_spans()
    assert [create.name, count.name] == ["qdrant create", "qdrant count"]
    outcomes = [create.status.status_code, count.status.status_code]
    assert outcomes == [StatusCode.UNSET, StatusCode.ERROR]
    trace_id = format_trace_id(request.context.trace_id)
    (family,) = metrics.store_seconds.collect()
    exemplars = [sample.exemplar for sample in family.samples if sample.exemplar]
    assert [exemplar.labels for exemplar in exemplars] == [{"trace_id": trace_id}] * 2
    await store.close()


@any_store
async def test_search_returns_the_exact_scores_best_first(filled: Fill, engine: StoreName) -> None:
    texts = [f"Reply {n}." for n in range(40)]
    replica = await filled(*texts)
    ids = [one.id for one in some(*texts)]
    query = query_of(replica)
    await until(lambda: finds(replica, query, 40))
    view = await replica.pools.view("n", "p")
    vectors = (await view.vectors(ids)).astype(np.float64)
    scores = dict(zip(ids, vectors @ query.astype(np.float64), strict=True))
    hits = await view.search(query, 7)
    assert [hit.candidate.id for hit in hits] == sorted(ids, key=lambda one: -scores[one])[:7]
    np.testing.assert_allclose(
        [hit.score for hit in hits], [scores[hit.candidate.id] for hit in hits], atol=1e-5
    )
    info = replica.info()
    assert (info.store, info.size, info.version, info.state) == (engine, 40, 1, "ready")
    spread = await view.spread(query)
    assert spread.candidates == 40
    assert spread.mean == pytest.approx((vectors @ query).mean(), abs=1e-3)
    assert spread.deviation == pytest.approx((vectors @ query).std(), rel=1e-3)
    with pytest.raises(ValueError, match="finite"):
        await view.search(np.full_like(query, np.nan), 1)


@any_store
async def test_an_edit_that_changes_nothing_returns_the_newest_version(
    filled: Fill, start_with: StartWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one = await filled("One.")
    two = await start_with()
    await two.find()
    await one.upsert("Two.")
    same = await two.upsert("Two.")
    assert (same.version, same.upserted, same.size) == (2, 0, 2)
    await one.remove("Two.")
    removed = await two.pools.remove_many("n", "p", [some("Two.")[0].id])
    assert (removed.version, removed.missing, removed.size) == (3, 1, 1)
    assert two.version() == 3


@any_engine
async def test_a_text_that_the_pool_has_is_not_encoded_again(filled: Fill) -> None:
    replica = await filled("One.", "Two.")
    replica.encoder.candidates.clear()
    await replica.upsert(Candidate.of("One.", some("One.")[0].id, {"new": True}), *some("Three."))
    assert replica.encoder.candidates == ["Three."]


@any_store
async def test_all_candidates_are_replaced_in_one_version_while_other_replicas_go_on(
    filled: Fill, start_with: StartWith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "LAG_SECONDS", 1.0)
    replica = await filled("One.", "Two.")
    other = await start_with()
    query = query_of(replica)
    await until(lambda: finds(other, query, 2))
    await write_snapshot(replica.view(), tmp_path / "s", model="tiny", fingerprint="tiny")
    before = await contents(replica)
    await replica.upsert("Three.", Candidate(some("Two.")[0].id, "Changed."))
    await until(lambda: other.version() == 2)
    replica.encoder.candidates.clear()
    replacing = replica.pools.replace("n", "p", read_snapshot(tmp_path / "s", 10_000).batches)
    task = asyncio.create_task(replacing)
    while not task.done():
        await searched(other, query, 2)
        await asyncio.sleep(0.01)
    edited = await task
    assert (edited.version, edited.upserted, edited.unchanged, edited.size) == (3, 1, 1, 2)
    assert replica.encoder.candidates == []
    assert await contents(replica) == before
    await until(lambda: other.version() == 3)
    assert {*await searched(other, query, 3)} == before.keys()


@any_store
async def test_a_deletion_whose_answer_is_lost_is_finished_by_the_next(
    filled: Fill, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await filled("One.")
    drop = PoolRecords.drop

    async def answer_is_lost(*given: Any) -> None:
        await drop(*given)
        raise StateUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch_records(patch, "drop", answer_is_lost)
        with pytest.raises(StateUnavailable):
            await replica.pools.drop("n", "p")
    await replica.pools.drop("n", "p")
    assert not await redis.exists("tw:pools")
    with pytest.raises(PoolNotFound):
        await replica.pools.drop("n", "p")


@any_engine
async def test_a_deletion_while_the_store_is_away_changes_nothing(
    filled: Fill, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: str) -> None:
        raise StoreUnavailable("away")

    replica = await filled("One.")
    store = store_of(replica)
    with monkeypatch.context() as patch:
        patch.setattr(store, "drop", away)
        with pytest.raises(StoreUnavailable):
            await replica.pools.drop("n", "p")
    assert (await replica.find()).size == 1
    await replica.pools.drop("n", "p")
    assert await left(store) == set()


@any_store
async def test_pages_list_each_candidate_once_though_some_come_and_go(filled: Fill) -> None:
    replica = await filled(*(Candidate.of(f"Reply {n}.", f"c{n:02}") for n in range(20)))

    async def list_page(after: str, **given: Any) -> Page:
        view = await replica.pools.view("n", "p")
        return await view.list_page(after, 6, given.get("where"), given.get("words"))

    first = await list_page("")
    assert first.cursor
    await replica.pools.remove("n", "p", first.cursor)
    await replica.upsert(Candidate.of("Reply again.", first.candidates[0].id))
    listed = [candidate.id for candidate in first.candidates]
    cursor: str | None = first.cursor
    while cursor:
        page = await list_page(cursor)
        listed += [candidate.id for candidate in page.candidates]
        cursor = page.cursor
    assert sorted(listed) == [f"c{n:02}" for n in range(20)]


@any_store
async def test_a_page_has_what_a_filter_matches_and_contains_some_words(filled: Fill) -> None:
    candidates = [
        Candidate.of(f"Reply {n}.", f"c{n:02}", {"odd": n % 2}, examples=[f"Why {n}?"] * (n > 5))
        for n in range(12)
    ]
    replica = await filled(*candidates)
    view = await replica.pools.view("n", "p")
    odd = Filter.checked({"odd": 1})

    async def list_ids(limit: int, where: Filter | None, words: str) -> list[str]:
        page = await view.list_page("", limit, where, WordSearch.of(words, in_learned=True))
        return sorted(candidate.id for candidate in page.candidates)

    assert await list_ids(20, odd, "") == ["c01", "c03", "c05", "c07", "c09", "c11"]
    assert await list_ids(20, None, "WHY 1") == ["c10", "c11"]
    assert await list_ids(20, odd, "why 1") == ["c11"]
    assert len(await list_ids(2, odd, "reply")) == 2


@any_engine
async def test_a_page_of_rare_words_takes_a_bounded_number_of_calls(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_view, "SCANNED", 3)
    replica = await filled(*(f"Reply {n}." for n in range(20)))
    view = await replica.pools.view("n", "p")
    cursor: str | None = ""
    pages: list[Page] = []
    while cursor is not None:
        page = await view.list_page(cursor, 5, None, WordSearch.of("reply 7", in_learned=True))
        pages.append(page)
        cursor = page.cursor
    assert len(pages) == 2
    assert [candidate.text for page in pages for candidate in page.candidates] == ["Reply 7."]


@any_store
async def test_a_changed_text_gets_a_vector_of_its_own(filled: Fill) -> None:
    replica = await filled(Candidate.of("Yes.", "a"), Candidate.of("No.", "b"))

    def reword(before: Candidate) -> Candidate:
        return replace(before, text="Maybe.")

    assert (await replica.pools.revise("n", "p", reword, ["a"])).upserted == 1
    view = await replica.pools.view("n", "p")
    (found,) = await view.fetch(["a"], newest=True)
    assert found == Candidate.of("Maybe.", "a")
    await replica.upsert(Candidate.of("Maybe.", "c"))
    vectors = await (await replica.pools.view("n", "p")).vectors(["a", "c"])
    np.testing.assert_array_equal(*vectors)


_PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.text(max_size=3)
)
_NAMES = st.sampled_from(["a", "b", 'q"', "a.b"])
_VALUES = st.recursive(
    _PLAIN, lambda v: st.lists(v, max_size=5) | st.dictionaries(_NAMES, v, max_size=3), max_leaves=6
)
_BOUNDS = st.one_of(
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), bound, min_size=1)
    for bound in (st.integers(-3, 3), st.text(max_size=2))
)
_CONDITIONS = st.one_of(
    _PLAIN,
    _BOUNDS,
    st.lists(_PLAIN, min_size=1, max_size=3).map(lambda values: {"in": values}),
    _PLAIN.map(lambda value: {"not": value}),
    st.booleans().map(lambda value: {"exists": value}),
)
_FIELDS = st.dictionaries(
    st.sampled_from(["a", "b", "a.b", 'q"']), _CONDITIONS, min_size=1, max_size=2
)
_WHERES = st.recursive(
    _FIELDS,
    lambda where: st.tuples(
        st.sampled_from(["all", "any", "none"]), st.lists(where, min_size=1, max_size=2)
    ).map(lambda part: {part[0]: part[1]}),
    max_leaves=4,
)


@any_engine
async def test_any_filter_finds_in_an_engine_what_it_matches(filled: Fill) -> None:
    replica = await filled()
    drawn: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []

    @given(
        st.lists(st.dictionaries(_NAMES, _VALUES, max_size=3), min_size=12, max_size=12),
        st.lists(_WHERES, min_size=12, max_size=12),
    )
    @settings(max_examples=6, database=None, suppress_health_check=list(HealthCheck))
    def draw(metadata: list[dict[str, Any]], wheres: list[dict[str, Any]]) -> None:
        drawn.append(({"metadata": metadata}, wheres))

    draw()
    metadata = [each for some_metadata, _ in drawn for each in some_metadata["metadata"]]
    candidates = [Candidate.of(f"Reply {n % 9}.", str(n), each) for n, each in enumerate(metadata)]
    await replica.upsert(*candidates)
    query = query_of(replica)
    await until(lambda: finds(replica, query, min(100, len(candidates))))
    for where in [where for _, wheres in drawn for where in wheres]:
        checked = Filter.checked(where)
        wanted = {c.id for c in candidates if checked.matches(c.metadata)}
        found = {*await searched(replica, query, len(candidates), checked)}
        assert found == wanted, json.dumps(where)
        assert len(await searched(replica, query, 1, checked)) == min(1, len(wanted))


@any_engine
async def test_a_pool_moves_while_it_is_edited(
    start_with: StartWith, engine: StoreName, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start_with()
    two = await start_with()
    await one.create()
    await one.upsert(*(f"Reply {n}." for n in range(30)))
    assert (await two.find()).store == "local"
    lists = [
        replica.followed.resources.files.folder_of(PoolKey("n", "p")) for replica in (one, two)
    ]
    for folder in lists:
        folder.mkdir(parents=True)
    held = two.view()
    store = store_of(one)
    create = store.create

    async def edit_meanwhile(*args: Any) -> None:
        await create(*args)
        await two.upsert("Late.", Candidate(some("Reply 1.")[0].id, "Changed."))
        await two.remove("Reply 2.")

    monkeypatch.setattr(store, "create", edit_meanwhile)
    moved = await one.pools.move("n", "p", engine)
    assert (moved.store, moved.version, moved.size) == (engine, 4, 30)
    query = query_of(two)
    assert len(await held.search(query, 100)) == 30  # what began before goes on
    edited = await two.upsert("After.")  # before two has polled
    assert (edited.version, edited.size) == (5, 31)
    await until(lambda: finds(two, query, 31))
    view = await two.pools.view("n", "p")
    texts = {hit.candidate.text for hit in await view.search(query, 100)}
    assert {"Late.", "Changed.", "After."} <= texts
    assert not texts & {"Reply 1.", "Reply 2."}
    with pytest.raises(Conflict, match=engine):
        await one.pools.create("n", "p", PoolRequest(store="local"))
    assert not any(folder.exists() for folder in lists)


@any_engine
@pytest.mark.parametrize("opened", ["before it was moved", "after it was moved"])
async def test_an_edit_reads_the_new_place_of_a_pool_that_a_replica_has_only_opened(
    start_with: StartWith, engine: StoreName, opened: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one, two = await start_two(start_with)
    if opened == "before it was moved":
        await two.followed.look_up(PoolKey("n", "p"))
        await one.pools.move("n", "p", engine)
    else:
        await two.find()
        await one.pools.move("n", "p", engine)
        await two.followed.look_up(PoolKey("n", "p"))
    edited = await two.upsert("Two.")
    assert (edited.version, edited.size) == (3, 2)


@any_engine
async def test_a_moved_pool_is_read_while_its_former_one_is_still_being_read(
    start_with: StartWith, engine: StoreName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one, two = await start_two(start_with)
    begun = asyncio.Event()
    go_on = asyncio.Event()
    read = PoolRecords.read

    async def slow(*given: Any) -> Any:
        if not begun.is_set():
            begun.set()
            await go_on.wait()
        return await read(*given)

    patch_records(monkeypatch, "read", slow)
    await two.followed.look_up(PoolKey("n", "p"))
    two.followed.begin_read(two.followed.get(PoolKey("n", "p")))
    await begun.wait()
    await one.pools.move("n", "p", engine)
    await two.followed.look_up(PoolKey("n", "p"))
    assert (await two.find()).state == "ready"
    go_on.set()


@any_engine
async def test_background_work_that_finds_a_pool_moved_opens_its_new_place(
    start_with: StartWith, engine: StoreName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(upkeep, "MIN_ENTRIES", 0)
    key = PoolKey("n", "p")
    one, two = await start_two(start_with)
    await one.followed.look_up(key)
    await two.pools.move("n", "p", engine)
    one.followed.begin_read(one.followed.get(key))  # upkeep folds its log
    await until(lambda: one.info().store == engine)


@any_engine
async def test_a_poll_that_began_before_a_pool_was_moved_keeps_the_moved_pool(
    start_with: StartWith, engine: StoreName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one = await start_with()
    await one.create()
    await one.upsert("One.")
    has_moved = False
    revisions = PoolRecords.revisions

    async def late(*given: Any) -> Any:
        nonlocal has_moved
        found = await revisions(*given)
        if not has_moved:
            has_moved = True
            await one.pools.move("n", "p", engine)
        return found

    patch_records(monkeypatch, "revisions", late)
    await one.follower.poll()
    assert (one.info().store, one.info().state) == (engine, "ready")


@any_engine
async def test_a_pool_that_is_moved_while_its_settings_change_gets_them(
    start_with: StartWith, engine: StoreName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)
    one, two = await start_two(start_with)
    add = Directory.add

    async def move_meanwhile(*args: Any, **named: Any) -> None:
        await add(*args, **named)
        await two.pools.move("n", "p", engine)

    patch_records(monkeypatch, "add", move_meanwhile, Directory)
    changed = await one.create("new")
    assert (changed.store, changed.description, changed.size) == (engine, "new", 1)


@any_engine
async def test_two_replicas_that_move_a_pool_at_once_leave_one_collection(
    start_with: StartWith, left: Left, engine: StoreName, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await start_two(start_with)
    store = store_of(one)
    create = store.create

    async def move_meanwhile(*args: Any) -> None:
        monkeypatch.setattr(store, "create", create)
        await create(*args)
        await two.pools.move("n", "p", engine)

    monkeypatch.setattr(store, "create", move_meanwhile)
    moved = await one.pools.move("n", "p", engine)
    assert (moved.store, moved.version, moved.size) == (engine, 2, 1)
    again = await one.pools.move("n", "p", engine)
    assert (again.store, again.version) == (engine, 2)
    assert await left(store) == both(one.view().collection.name)
    with pytest.raises(InvalidRequest, match="no candidate store 'local'"):
        await one.pools.move("n", "p", "local")


@any_engine
@pytest.mark.parametrize("good", [0, 1])
async def test_a_move_that_fails_leaves_the_pool_in_memory_and_no_collection(
    start_with: StartWith,
    left: Left,
    engine: StoreName,
    good: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica = await start_with()
    await replica.create()
    await replica.upsert("One.")
    store = store_of(replica)
    written = 0
    upsert = store.upsert

    async def fails(*args: Any) -> None:
        nonlocal written
        if args[1] and written == good:
            raise StoreUnavailable("the disk is full")
        written += len(args[1])
        await upsert(*args)
        if written == 1:
            await replica.upsert("Two.")  # which the move has to write as well

    monkeypatch.setattr(store, "upsert", fails)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await replica.pools.move("n", "p", engine)
    assert await left(store) == set()
    assert (replica.info().store, replica.info().size) == ("local", 1 + good)


@any_engine
async def test_a_replacement_that_comes_after_an_edit_is_rejected_and_leaves_no_collection(
    filled: Fill,
    start_with: StartWith,
    left: Left,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await filled("One.")
    two = await start_with()
    await write_snapshot(one.view(), tmp_path / "s", model="tiny", fingerprint="tiny")
    store = store_of(one)
    before = await left(store)
    create = store.create

    async def edit_meanwhile(*args: Any) -> None:
        await create(*args)
        await two.upsert("Two.")

    monkeypatch.setattr(store, "create", edit_meanwhile)
    with pytest.raises(Conflict, match="edited meanwhile; nothing was changed"):
        await one.pools.replace("n", "p", read_snapshot(tmp_path / "s", 10_000).batches)
    assert await left(store) == before
    stored = await one.followed.records.stored(PoolKey("n", "p"))
    assert stored
    assert stored.position.version == 2  # the edit's; the replacement made none
    await until(lambda: one.version() == 2)
    assert {candidate.text for candidate in (await contents(one)).values()} == {"One.", "Two."}


@any_engine
@pytest.mark.parametrize("command", ["create", "move"])
async def test_a_collection_that_redis_does_not_take_is_removed(
    filled: Fill, left: Left, engine: StoreName, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await filled("One.")
    before = await left(store_of(replica))

    async def fails(*_: object, **__: object) -> None:
        raise StateUnavailable("Redis is full")

    async def rebuild(encoder: PoolEncoder) -> AsyncIterator[CandidateBatch]:
        vectors = (await encoder.candidates(["Two."])).astype(np.float16)
        yield CandidateBatch(some("Two."), vectors, np.empty((0, encoder.dimension), np.float16))

    patch_records(monkeypatch, command, fails)
    commands: dict[str, Callable[[], Awaitable[object]]] = {
        "create": partial(replica.pools.create, "n", "q", PoolRequest(store=engine)),
        "move": partial(replica.pools.replace, "n", "p", rebuild),
    }
    with pytest.raises(StateUnavailable):
        await commands[command]()
    assert await left(store_of(replica)) == before


@any_engine
async def test_an_edit_of_a_collection_that_was_just_replaced_is_repeated_in_the_new_one(
    filled: Fill, start_with: StartWith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await filled("One.")
    two = await start_with()
    await write_snapshot(one.view(), tmp_path / "s", model="tiny", fingerprint="tiny")
    ours = store_of(one)
    theirs = store_of(two)
    count = ours.count
    drop = theirs.drop
    edited_late = asyncio.Event()
    replacing: list[asyncio.Task[Edited]] = []

    async def replace_meanwhile(*args: Any) -> int:
        monkeypatch.setattr(ours, "count", count)
        replace = two.pools.replace("n", "p", read_snapshot(tmp_path / "s", 10_000).batches)
        replacing.append(asyncio.create_task(replace))
        await until(lambda: one.version() == 2)
        return await count(*args)

    async def drop_late(collection: str) -> None:
        await edited_late.wait()
        await drop(collection)

    monkeypatch.setattr(ours, "count", replace_meanwhile)
    monkeypatch.setattr(theirs, "drop", drop_late)
    edited = await one.upsert("Two.")
    assert (edited.version, edited.upserted, edited.size) == (3, 1, 2)
    edited_late.set()
    await replacing[0]
    assert {candidate.text for candidate in (await contents(one)).values()} == {"One.", "Two."}


@any_engine
async def test_a_pool_that_two_replicas_create_at_once_has_one_collection(
    start_with: StartWith, left: Left, engine: StoreName, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start_with()
    two = await start_with()
    store = store_of(one)
    request = PoolRequest(store=engine)
    create = store.create

    async def create_meanwhile(*args: Any) -> None:
        await create(*args)
        await two.pools.create("n", "p", request)

    monkeypatch.setattr(store, "create", create_meanwhile)
    assert (await one.pools.create("n", "p", request)).store == engine
    assert await left(store) == both(one.view().collection.name)
    assert two.view().collection == one.view().collection


@any_engine
@pytest.mark.parametrize("command", ["create", "move"])
async def test_a_command_whose_answer_is_lost_leaves_the_pool_and_its_collection(
    start_with: StartWith, engine: StoreName, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start_with()
    two = await start_with()
    execute = getattr(PoolRecords, command)

    async def answer_is_lost(*args: object, **given: object) -> None:
        await execute(*args, **given)
        raise StateUnavailable("no answer")

    run: Callable[[], Awaitable[object]]
    run = partial(one.pools.create, "n", "p", PoolRequest(store=engine))
    if command == "move":
        await one.create()
        await one.upsert("One.")
        run = partial(one.pools.move, "n", "p", engine)
    with monkeypatch.context() as patch:
        patch_records(patch, command, answer_is_lost)
        with pytest.raises(StateUnavailable):
            await run()
    await run()  # as clients do
    assert (await two.find()).store == engine
    await two.upsert("Two.")
    wanted = {"One.", "Two."} if command == "move" else {"Two."}
    assert {candidate.text for candidate in (await contents(two)).values()} == wanted


@any_engine
async def test_a_first_read_that_found_the_store_away_is_repeated(
    filled: Fill, start_with: StartWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled("One.")
    late = await start_with()

    async def away(_: str) -> AsyncIterator[list[Stored]]:
        raise StoreUnavailable("away")
        yield []

    monkeypatch.setattr(pool, "RETRY_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(store_of(late), "scan", away)
        with pytest.raises((StoreUnavailable, PoolNotReady)):
            await late.pools.view("n", "p")

    async def is_ready() -> bool:
        return (await late.find()).state == "ready"

    await until(is_ready)
    assert [candidate.text for candidate in (await contents(late)).values()] == ["One."]


@any_engine
async def test_a_recall_noted_meanwhile_does_not_stop_a_replacement_which_draws_a_new_sample(
    filled: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await filled("One.")
    await write_snapshot(replica.view(), tmp_path / "s", model="tiny", fingerprint="tiny")
    await replica.upsert("Two.")
    await replica.remove("One.")
    store = store_of(replica)
    records = replica.followed.records
    create = store.create
    collection = replica.view().collection

    async def measured_meanwhile(*args: Any) -> None:
        await create(*args)
        await records.note_recall(PoolKey("n", "p"), replace(collection, width=64, recall=1.0))

    monkeypatch.setattr(store, "create", measured_meanwhile)
    await replica.pools.replace("n", "p", read_snapshot(tmp_path / "s", 10_000).batches)
    assert [candidate.text for candidate in replica.view().sample.rows.candidates] == ["One."]


@any_engine
async def test_the_spread_of_what_a_filter_leaves_is_estimated_from_the_sample(
    filled: Fill,
) -> None:
    replica = await filled()
    await replica.upsert(
        *(Candidate.of(f"Reply {n}.", str(n), {"even": n % 2 == 0}) for n in range(30))
    )
    await replica.followed.get(PoolKey("n", "p")).refresh()
    view = await replica.pools.view("n", "p")
    query = query_of(replica)
    every = await view.spread(query)
    some_of_them = await view.spread(query, Filter.checked({"even": True}))
    assert (every.candidates, some_of_them.candidates) == (30, 15)
    assert (some_of_them.mean, some_of_them.deviation) == (every.mean, every.deviation)


@any_engine
async def test_a_pool_of_another_model_says_so(filled: Fill, start_with: StartWith) -> None:
    one = await filled("One.")
    other = await start_with(fingerprint="another")
    assert (await other.find()).state == "other_model"
    with pytest.raises(PoolNotReady, match="another model"):
        await other.pools.view("n", "p")
    with pytest.raises(PoolNotReady, match="another model"):
        await other.upsert("Two.")
    assert (await one.find()).state == "ready"


@any_engine
async def test_recall_is_measured_and_every_replica_searches_as_wide(
    filled: Fill, start_with: StartWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "FEWEST", 50)
    one = await filled(*(f"Reply {n}." for n in range(60)))
    two = await start_with()
    await two.find()
    await until(lambda: one.info().recall_at_10 is not None and two.info().width == 64)
    assert (one.info().recall_at_10, one.info().width, one.info().index) == (1.0, 64, "hnsw")
    assert (one.version(), two.info().recall_at_10) == (1, 1.0)


@any_engine
@pytest.mark.parametrize(("enough", "chosen"), [(256, 256), (4096, 64)])
async def test_the_narrowest_width_with_a_good_recall_is_chosen_or_else_the_best(
    filled: Fill, enough: int, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await filled(*(f"Reply {n}." for n in range(60)))
    store = store_of(replica)
    search = store.search

    async def narrow(*args: Any) -> list[Any]:
        found = await search(*args)
        width = args[3]
        return found if width >= enough else sorted(found, key=lambda one: one.candidate.id)[:5]

    monkeypatch.setattr(store, "search", narrow)
    monkeypatch.setattr(remote, "FEWEST", 50)
    await until(lambda: replica.info().recall_at_10 is not None)
    recall = 1.0 if chosen == enough else 0.5
    assert (replica.info().width, replica.info().recall_at_10) == (chosen, recall)


@any_engine
async def test_a_replica_without_the_engine_says_so(
    filled: Fill, start: StartReplica, engine: StoreName
) -> None:
    await filled("One.")
    bare = await start()
    with pytest.raises(PoolNotReady, match=f"no candidate store '{engine}'"):
        await bare.find()
    with pytest.raises(InvalidRequest, match=f"no candidate store '{engine}'"):
        await bare.pools.create("n", "q", PoolRequest(store=engine))


@any_engine
async def test_a_pool_that_a_replica_could_not_serve_is_made_anew_in_memory(
    filled: Fill, start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 60.0)  # a poll would find the pool deleted
    one = await filled("One.")
    bare = await start()
    with pytest.raises(PoolNotReady):
        await bare.find()
    await one.pools.drop("n", "p")
    await one.create()
    await one.upsert("Two.")
    await bare.follower.poll()
    await until(lambda: bare.follows(one))


@any_engine
async def test_doctor_finds_what_an_engine_has_lost(filled: Fill, redis: Redis) -> None:
    replica = await filled("One.", "Two.")
    store = store_of(replica)
    good, *_ = await examine_pools(redis, "tiny", pairwise=False, engine=store)
    assert (good.grade, "2 candidates" in good.found) == ("ok", True)
    collection = replica.view().collection.name
    await store.remove(collection, [some("One.")[0].id])
    bad, *_ = await examine_pools(redis, "tiny", pairwise=False, engine=store)
    assert (bad.grade, "which has 1: some are lost" in bad.found) == ("fail", True)
    (other,) = await examine_pools(redis, "another", pairwise=False, engine=None)
    assert (other.grade, other.advice) == ("fail", "set TURNWISE_STORE_URL")


@pytest.mark.parametrize("url", ["milvus://127.0.0.1:1", "qdrant://127.0.0.1:1"])
async def test_an_engine_that_is_not_there_is_unavailable(url: str) -> None:
    store = connect_store(url, Metrics())
    with pytest.raises(StoreUnavailable, match=urlsplit(url).scheme):
        await store.ping()
    await store.close()

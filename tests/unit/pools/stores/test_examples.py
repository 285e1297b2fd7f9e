"""Examples and groups of candidates: the same tests for pools in memory and in every store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import qdrant
from tests.support.milvus import MilvusServer
from tests.support.waiting import until
from tests.unit.pools.conftest import Replica, StartReplica
from tests.unit.pools.stores.conftest import (
    Fill,
    Left,
    StartWith,
    any_engine,
    any_store,
    both,
    contents,
    store_of,
)
from turnwise.models.arrays import Float32
from turnwise.service.errors import Conflict, StoreUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import (
    Candidate,
    Filter,
    PoolEncoder,
    PoolKey,
    PoolView,
    read_snapshot,
    write_snapshot,
)
from turnwise.service.pools.candidate import Learned
from turnwise.service.pools.stores import connect_store
from turnwise.service.pools.stores.rows import name_examples
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.wire.fields import StoreName
from turnwise.service.wire.pools import PoolRequest

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:.*(local|Local).*Qdrant.*|Local mode:UserWarning"),
]

HOURS = Candidate.of(
    "Nine to six.",
    "hours-1",
    {"topic": "visit"},
    examples=["When are you open?", "Opening hours?"],
    group="hours",
)
LEARNED = Candidate.of(
    "We open at nine.", "hours-2", group="hours", learned=[Learned("open now?", 1764250000.5)]
)
PAY = Candidate.of("By card.", "pay", {"topic": "money"}, examples=["How can I pay?"])
HELLO = Candidate.of("Hello!", "hello", body="# Hello\n\nWe say this first.")
CANDIDATES = [HOURS, LEARNED, PAY, HELLO]


def encoder_of(replica: Replica) -> PoolEncoder:
    return replica.followed.opener.backends["default"].encoder


async def encode(replica: Replica, said: str) -> Float32:
    """The vector of an utterance, as a turn has it."""
    return (await encoder_of(replica).examples([said]))[0]


async def cosines(replica: Replica, said: Float32, candidate: Candidate) -> dict[str, float]:
    """The cosine of an utterance with each example of a candidate."""
    vectors = (await encoder_of(replica).examples(candidate.all_examples)).astype(np.float16)
    scores = vectors.astype(np.float64) @ said.astype(np.float64)
    return dict(zip(candidate.all_examples, scores.tolist(), strict=True))


async def matched(view: PoolView, said: Float32) -> list[str]:
    """The examples that match best, of all candidates."""
    return [hit.match.text for hit in await view.search_examples(said, 100) if hit.match]


async def find_examples(replica: Replica, count: int) -> PoolView:
    """Wait until the examples of so many candidates are found; return the newest view."""
    said = await encode(replica, "Hello?")

    async def are_found() -> bool:
        view = await replica.pools.view("n", "p")
        return len(await view.search_examples(said, 100)) == count

    await until(are_found)
    return await replica.pools.view("n", "p")


async def stored_examples(replica: Replica) -> list[str]:
    """The examples in the store, sorted."""
    collection = name_examples(replica.view().collection.name)
    batches = [batch async for batch in store_of(replica).scan(collection)]
    return sorted(row.candidate.text for batch in batches for row in batch)


@any_store
async def test_a_candidate_is_found_once_by_its_best_example(filled: Fill) -> None:
    replica = await filled(*CANDIDATES)
    view = await find_examples(replica, 3)
    said = await encode(replica, "Are you open today?")
    scores = {each.id: await cosines(replica, said, each) for each in CANDIDATES[:3]}
    best = {each: max(found, key=found.__getitem__) for each, found in scores.items()}
    hits = await view.search_examples(said, 10)
    ranked = sorted(scores, key=lambda each: -scores[each][best[each]])
    assert [(hit.candidate.id, hit.match and hit.match.text) for hit in hits] == [
        (each, best[each]) for each in ranked
    ]
    assert {hit.candidate.id: hit.candidate for hit in hits} == {c.id: c for c in CANDIDATES[:3]}
    expected = [scores[each][best[each]] for each in ranked]
    assert [hit.score for hit in hits] == pytest.approx(expected, abs=1e-5)
    assert await view.search_examples(said, 1) == hits[:1]
    money = await view.search_examples(said, 10, Filter.checked({"topic": "money"}))
    assert [hit.candidate for hit in money] == [PAY]


@any_store
async def test_given_candidates_get_their_best_examples(filled: Fill) -> None:
    replica = await filled(*CANDIDATES)
    view = await find_examples(replica, 3)
    said = await encode(replica, "Are you open today?")
    scores = await cosines(replica, said, HOURS)
    matches = await view.best_examples(said, ["hello", "hours-1", "nowhere"])
    assert [match and match.text for match in matches] == [None, max(scores, key=scores.get), None]  # type: ignore[arg-type]
    assert matches[1] is not None
    assert matches[1].score == pytest.approx(max(scores.values()), abs=1e-5)
    assert await view.fetch(["hours-2", "nowhere"]) == [LEARNED, None]


@any_store
async def test_the_spread_is_that_of_all_examples(filled: Fill) -> None:
    replica = await filled(*CANDIDATES)
    view = await find_examples(replica, 3)
    said = await encode(replica, "Are you open today?")
    found = [await cosines(replica, said, each) for each in CANDIDATES[:3]]
    scores = [score for each in found for score in each.values()]
    spread = await view.example_spread(said)
    assert (view.has_examples, spread.candidates) == (True, 4)
    assert spread.mean == pytest.approx(np.mean(scores), abs=1e-3)
    assert spread.deviation == pytest.approx(np.std(scores), rel=1e-2)


@any_store
async def test_a_text_leads_to_its_group(filled: Fill) -> None:
    replica = await filled(*CANDIDATES)
    view = await find_examples(replica, 3)
    assert await view.groups_of({"nine to six", "by card", "no such text"}) == {"hours"}
    assert await view.groups_of(set()) == frozenset()


@any_store
async def test_followers_are_found_by_the_id_and_the_group_of_a_reply(filled: Fill) -> None:
    follower = Candidate.of(
        "Are you coming?", "come", {"after": ["hours", "pay"], "topic": "visit"}
    )
    replica = await filled(*CANDIDATES, follower)
    view = await find_examples(replica, 3)
    query = (await encoder_of(replica).candidates(["Hello!"]))[0]
    for reply in ("hours-1", "pay"):
        [hit] = await view.search_followers(reply, "", query, 10)
        assert (hit.candidate, hit.follows) == (follower, reply)
        vector = (await view.vectors(["come"]))[0].astype(np.float64)
        assert hit.score == pytest.approx(vector @ query, abs=1e-5)
    assert await view.search_followers("hello", "", query, 10) == []
    money = Filter.checked({"topic": "money"})
    assert await view.search_followers("pay", "", query, 10, money) == []


@any_store
async def test_many_examples_of_one_candidate_do_not_hide_the_others(filled: Fill) -> None:
    many = Candidate.of("Yes.", "yes", examples=[f"Is it {n}?" for n in range(32)])
    replica = await filled(many, *CANDIDATES)
    view = await find_examples(replica, 4)
    hits = await view.search_examples(await encode(replica, "Is it 7?"), 2)
    assert len({hit.candidate.id for hit in hits}) == 2
    assert hits[0].match
    assert (hits[0].candidate.id, hits[0].match.text) == ("yes", "Is it 7?")


@any_store
async def test_a_pool_without_examples_has_none(filled: Fill) -> None:
    replica = await filled("One.")
    view = await replica.pools.view("n", "p")
    said = await encode(replica, "One?")
    assert not view.has_examples
    assert await view.search_examples(said, 5) == []
    assert await view.best_examples(said, [Candidate.of("One.").id]) == [None]


@any_engine
async def test_an_edit_encodes_new_examples_and_removes_former_ones(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await filled(*CANDIDATES)
    encoder = encoder_of(replica)
    examples = encoder.examples
    encoded: list[str] = []

    async def recorded(texts: Sequence[str]) -> Float32:
        encoded.extend(texts)
        return await examples(texts)

    monkeypatch.setattr(encoder, "examples", recorded)
    changed = Candidate.of("Nine to six.", "hours-1", examples=["Opening hours?", "On Sunday?"])
    edited = await replica.upsert(changed, PAY)
    assert (edited.upserted, edited.unchanged, encoded) == (1, 1, ["On Sunday?"])
    left = ["How can I pay?", "On Sunday?", "Opening hours?", "open now?"]
    assert await stored_examples(replica) == left
    await replica.pools.remove_many("n", "p", ["hours-1", "hours-2"])
    assert await stored_examples(replica) == ["How can I pay?"]
    assert await contents(replica) == {"pay": PAY, "hello": HELLO}


@any_engine
async def test_a_revision_begins_with_the_newest_edit(filled: Fill) -> None:
    replica = await filled(*CANDIDATES)
    pool = replica.followed.get(PoolKey("n", "p"))
    for number in range(3):
        example = Learned(f"Cash {number}?", 1764250000.0 + number, f"session-{number}")
        await pool.revise(partial(Candidate.learn, example=example), ["pay"])
    learned = (await contents(replica))["pay"].learned
    assert [(each.text, each.session) for each in learned] == [
        (f"Cash {number}?", f"session-{number}") for number in range(3)
    ]


@any_store
async def test_a_candidate_keeps_all_that_it_learns_at_once(filled: Fill) -> None:
    replica = await filled(*CANDIDATES)
    learned = [Learned(f"Cash {number}?", 1764250000.0 + number) for number in range(5)]
    learns = [partial(Candidate.learn, example=each) for each in learned]
    await asyncio.gather(*(replica.pools.revise("n", "p", each, ["pay"]) for each in learns))
    assert {*(await contents(replica))["pay"].learned} == {*learned}


@any_store
async def test_edits_of_two_replicas_at_once_all_count(filled: Fill, start_with: StartWith) -> None:
    one = await filled(*CANDIDATES)
    two = await start_with()
    replicas = (one, two)
    for replica in replicas:
        await replica.find()
    learned = [Learned(f"Cash {number}?", 1764250000.0 + number) for number in range(4)]
    await asyncio.gather(
        *(
            replica.pools.revise("n", "p", partial(Candidate.learn, example=each), ["pay"])
            for replica, each in zip(replicas * 2, learned, strict=True)
        ),
        *(replica.upsert(f"Of {number}.") for number, replica in enumerate(replicas)),
    )
    for replica in replicas:
        await replica.pools.load("n", "p")
        held = await contents(replica)
        assert {*held["pay"].learned} == {*learned}
        assert (replica.info().size, replica.version()) == (len(CANDIDATES) + 2, 7)


@any_store
async def test_candidates_that_replace_others_keep_what_those_have_learned(filled: Fill) -> None:
    replica = await filled(*CANDIDATES)
    wanted = [
        Candidate.of("We are open from nine.", "hours-2", examples=["Closed now?"]),
        Candidate.of("Hello!", "hello", learned=[Learned("hey there", 1764250001.5)]),
        Candidate.of("Bye.", "bye"),
    ]

    async def batches(encoder: PoolEncoder) -> AsyncIterator[CandidateBatch]:
        texts = [candidate.text for candidate in wanted]
        said = [text for candidate in wanted for text in candidate.all_examples]
        vectors = (await encoder.candidates(texts)).astype(np.float16)
        yield CandidateBatch(wanted, vectors, (await encoder.examples(said)).astype(np.float16))

    await replica.pools.replace("n", "p", batches)
    kept = replace(wanted[0], learned=LEARNED.learned)
    assert await contents(replica) == {"hours-2": kept, "hello": wanted[1], "bye": wanted[2]}
    view = await find_examples(replica, 2)
    assert "open now?" in await matched(view, await encode(replica, "open now?"))


@any_engine
async def test_an_interrupted_edit_changes_no_answer_and_is_completed_by_the_next(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await filled(*CANDIDATES)
    store = store_of(replica)
    upsert = store.upsert
    collection = replica.view().collection.name

    async def fails(name: str, *args: Any) -> None:
        if name == collection:
            raise StoreUnavailable("the disk is full")
        await upsert(name, *args)

    changed = Candidate.of("By card.", "pay", examples=["Do you take coins?"])
    with monkeypatch.context() as patch:
        patch.setattr(store, "upsert", fails)
        with pytest.raises(StoreUnavailable):
            await replica.upsert(changed)
    assert "Do you take coins?" in await stored_examples(replica)
    said = await encode(replica, "Do you take coins?")
    view = await find_examples(replica, 3)
    assert "Do you take coins?" not in await matched(view, said)
    assert (await contents(replica))["pay"] == PAY
    assert (await replica.upsert(changed)).upserted == 1
    assert (await replica.upsert(changed)).unchanged == 1

    async def is_found() -> bool:
        return "Do you take coins?" in await matched(await replica.pools.view("n", "p"), said)

    await until(is_found)
    assert "How can I pay?" not in await stored_examples(replica)


@any_engine
async def test_examples_move_with_their_pool_and_go_with_it(
    start_with: StartWith, left: Left, engine: StoreName
) -> None:
    replica = await start_with()
    await replica.create()
    await replica.upsert(*CANDIDATES)
    await replica.pools.move("n", "p", engine)
    view = await find_examples(replica, 3)
    assert await contents(replica) == {each.id: each for each in CANDIDATES}
    (match,) = await view.best_examples(await encode(replica, "How can I pay?"), ["pay"])
    assert match is not None
    assert (match.text, match.score) == ("How can I pay?", pytest.approx(1, abs=1e-3))
    store = store_of(replica)
    assert await left(store) == both(replica.view().collection.name)
    await replica.pools.drop("n", "p")
    assert await left(store) == set()


@any_store
async def test_a_snapshot_brings_examples_back_without_encoding(
    filled: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await filled(*CANDIDATES)
    await write_snapshot(replica.view(), tmp_path / "s", model="tiny", fingerprint="tiny")
    await replica.upsert(Candidate.of("By card.", "pay", examples=["Coins?"]), "New.")

    async def fails(_: Sequence[str]) -> Float32:
        raise AssertionError("encoded again")

    with monkeypatch.context() as patch:
        patch.setattr(encoder_of(replica), "examples", fails)
        patch.setattr(encoder_of(replica), "candidates", fails)
        await replica.pools.replace("n", "p", read_snapshot(tmp_path / "s", 10).batches)
    await find_examples(replica, 3)
    assert await contents(replica) == {each.id: each for each in CANDIDATES}


async def check_former_collection(replica: Replica, engine: StoreName, folder: Path) -> None:
    """Check a pool whose collection an earlier release made, and that a snapshot renews it."""
    await replica.pools.create("n", "p", PoolRequest(store=engine))
    await replica.upsert("One.")
    view = await replica.pools.view("n", "p")
    said = await encode(replica, "One?")
    assert (view.has_examples, await view.search_examples(said, 5)) == (False, [])
    assert await view.groups_of({"one"}) == frozenset()
    for candidate in CANDIDATES:
        with pytest.raises(Conflict, match="before there were examples"):
            await replica.upsert(candidate)
    assert [each.text for each in (await contents(replica)).values()] == ["One."]
    await write_snapshot(replica.view(), folder, model="tiny", fingerprint="tiny")
    await replica.pools.replace("n", "p", read_snapshot(folder, 10).batches)
    await replica.upsert(*CANDIDATES)
    await find_examples(replica, 3)


async def test_a_former_collection_of_qdrant_is_used_without_examples(
    start: StartReplica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = pytest.importorskip("qdrant_client.models")
    client = qdrant.in_memory()
    store = qdrant.make_store(client)

    async def create(collection: str, dimension: int) -> None:
        monkeypatch.undo()
        vectors = models.VectorParams(size=dimension, distance=models.Distance.DOT)
        await client.create_collection(collection, vectors)

    monkeypatch.setattr(store, "create", create)
    await check_former_collection(await start(store=store), "qdrant", tmp_path / "s")
    await store.close()


@pytest.mark.nightly
async def test_a_former_collection_of_milvus_is_used_without_examples(
    start: StartReplica,
    milvus_server: MilvusServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = connect_store(milvus_server.url, Metrics())
    types = pytest.importorskip("pymilvus").DataType
    client = milvus_server.client()

    async def create(collection: str, dimension: int) -> None:
        monkeypatch.undo()
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", types.VARCHAR, is_primary=True, max_length=512)
        schema.add_field("text", types.VARCHAR, max_length=8000)
        schema.add_field("metadata", types.VARCHAR, max_length=16_384)
        schema.add_field("facets", types.JSON)
        schema.add_field("vector", types.FLOAT_VECTOR, dim=dimension)
        index = client.prepare_index_params()
        graph = {"M": 16, "efConstruction": 200}
        index.add_index("vector", index_type="HNSW", metric_type="IP", params=graph)
        client.create_collection(collection, schema=schema, index_params=index)

    monkeypatch.setattr(store, "create", create)
    replica = await start(store=store)
    await check_former_collection(replica, "milvus", tmp_path / "s")
    await replica.pools.drop("n", "p")
    await store.close()

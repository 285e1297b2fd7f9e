"""Indexes that are saved, and read after a restart."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.waiting import until
from tests.unit.pools.conftest import MANY, StartReplica, unit_vectors, with_pool
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory import free_memory, ivf, upkeep
from turnwise.service.pools.memory.flat import FlatIndex, Float16, one_thread
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.redis.values import PoolKey

D = 16
KEY = PoolKey("n", "p")
QUERIES = unit_vectors(32, D, seed=5) * 3


@pytest.fixture(scope="module")
def vectors() -> Float16:
    centres = unit_vectors(40, D)
    near = centres[np.random.default_rng(3).integers(40, size=2000)]
    made = (near + 0.1 * unit_vectors(2000, D, seed=4)).astype(np.float16)
    made[7] = made[8] = made[9]
    return made


@pytest.fixture(scope="module")
def built(vectors: Float16) -> IvfIndex:
    one_thread()
    return build_ivf(FlatIndex(vectors), QUERIES)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the pools for which lists are trained."""
    train = ivf.train_lists
    sizes = list[int]()

    def count(flat: FlatIndex) -> object:
        sizes.append(len(flat))
        return train(flat)

    monkeypatch.setattr(ivf, "train_lists", count)
    return sizes


def same_results(index: IvfIndex, vectors: Float16) -> None:
    """The index finds what exact search finds in these vectors, at their places."""
    index.probes = index.lists
    index.short_list = len(vectors)
    flat = FlatIndex(vectors)
    for query in QUERIES:
        assert index.search(query, 10)[1].tolist() == flat.search(query, 10)[1].tolist()
    everything, _ = index.search(QUERIES[0], len(vectors))
    assert sorted(everything.tolist()) == list(range(len(vectors)))


def test_an_index_is_read_for_the_vectors_that_it_was_built_from(
    built: IvfIndex, vectors: Float16, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = IndexFiles(tmp_path)
    files.write(KEY, "f", built)
    index = files.read(KEY, "f", FlatIndex(vectors.copy()))
    assert index
    assert (index.probes, index.short_list, index.recall) == (
        built.probes,
        built.short_list,
        built.recall,
    )
    same_results(index, vectors)
    for others in (vectors[::-1].copy(), vectors[:-1], vectors.reshape(-1, D // 2)):
        assert files.read(KEY, "f", FlatIndex(others)) is None
    assert caplog.text == ""


def test_files_that_are_damaged_or_of_another_release_are_not_used(
    built: IvfIndex, vectors: Float16, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = IndexFiles(tmp_path / "indexes")
    flat = FlatIndex(vectors)
    assert files.read(KEY, "f", flat) is None
    for _ in range(2):  # the second replaces the first
        files.write(KEY, "f", built)
    assert files.read(KEY, "other", flat) is None
    folder = tmp_path / "indexes" / "n" / "p" / "f"
    lists = folder / "lists.faiss"
    lists.write_bytes(lists.read_bytes()[:-1] + b"?")
    assert files.read(KEY, "f", flat) is None
    assert "lists.faiss is not the file" in caplog.text
    (folder / "manifest.json").write_text('{"format": 1, "marks": "marks.npy"}')
    assert files.read(KEY, "f", flat) is None
    assert "is of another release" in caplog.text
    files.remove(KEY)
    assert list((tmp_path / "indexes" / "n").iterdir()) == []


def test_the_indexes_of_the_last_two_models_are_kept(
    built: IvfIndex, vectors: Float16, tmp_path: Path
) -> None:
    files = IndexFiles(tmp_path)
    for time, model in enumerate("cab"):
        files.write(KEY, model, built)
        os.utime(tmp_path / "n" / "p" / model, (time, time))
    found = [files.read(KEY, model, FlatIndex(vectors)) for model in "cab"]
    assert [index is not None for index in found] == [False, True, True]


def test_a_folder_that_cannot_be_written_is_reported(
    built: IvfIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    files = IndexFiles(tmp_path / "file")
    files.write(KEY, "f", built)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.anyio
async def test_a_restart_does_not_train_again_after_a_few_edits(
    start: StartReplica, trainings: list[int], tmp_path: Path
) -> None:
    one = await start(exact_limit=1000, data="kept")
    await one.create()
    await one.upsert(*MANY)
    await until(lambda: one.info().index == "ivf")
    info = one.info()
    assert (info.exact, (info.recall_at_10 or 0) >= 0.99) == (False, True)
    await one.upsert(Candidate("new", "Reply 7."))
    await one.remove("Reply 8.")
    two = await start(exact_limit=1000, data="kept", ready=True)
    assert (two.info().index, two.contents(), trainings) == ("ivf", one.contents(), [1100])
    query = (await two.view().vectors(["new"]))[0]
    assert "new" in {hit.candidate.id for hit in await two.view().search(query, 2)}
    await one.pools.drop("n", "p")
    await until(lambda: not list((tmp_path / "kept").glob("n/*")))


@pytest.mark.anyio
async def test_an_index_is_trained_again_when_many_candidates_have_changed(
    start: StartReplica, trainings: list[int]
) -> None:
    one = await with_pool(start, *MANY, exact_limit=1000)
    await until(lambda: one.info().index == "ivf")
    await one.upsert(*(Candidate(f"again {n}", text) for n, text in enumerate(MANY)))
    await until(lambda: one.info().index == "ivf" and one.view().contents.unmerged == 0)
    assert trainings == [1100, 2200]


@pytest.mark.anyio
async def test_readiness_waits_for_indexes_of_pools_in_use_and_never_again(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    build = Workers.build

    async def build_late(self: Workers, work: Callable[[], object]) -> object:
        await go_on.wait()
        return await build(self, work)

    monkeypatch.setattr(Workers, "build", build_late)
    one = await with_pool(start, *MANY)
    two = await start(exact_limit=1000)
    await until(lambda: two.info().state == "ready")
    assert not two.follower.ready
    go_on.set()
    await until(lambda: two.follower.ready)
    assert two.info().index == "ivf"
    await two.fill("later", *MANY)
    assert two.follower.ready
    monkeypatch.setattr(upkeep, "code_bytes", lambda _: 1 << 20)
    monkeypatch.setattr(free_memory, "available_memory", lambda: 100.0 * (1 << 20))
    three = await start(exact_limit=1000, ready=True)
    assert three.info().index == "flat"
    assert one.follower.ready

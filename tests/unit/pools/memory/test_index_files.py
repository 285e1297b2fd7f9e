"""Indexes that are kept: the lists are refilled, read after a restart, or trained anew."""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest

from tests.support.waiting import until
from tests.unit.pools.conftest import MANY, StartReplica, unit_vectors, with_pool
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory import free_memory, ivf, upkeep
from turnwise.service.pools.memory.flat import FlatIndex, Float16, one_thread
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf, marks_of, refilled
from turnwise.service.pools.redis.values import PoolKey

D = 16
KEY = PoolKey("n", "p")
QUERIES = unit_vectors(32, D, seed=5) * 3
ALL = faiss.SearchParametersIVF(nprobe=1024)


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
    trained, sizes = ivf.train_lists, list[int]()

    def count(flat: FlatIndex) -> object:
        sizes.append(len(flat))
        return trained(flat)

    monkeypatch.setattr(ivf, "train_lists", count)
    return sizes


def same_results(index: IvfIndex, vectors: Float16) -> None:
    """The index finds what exact search finds in these vectors, at their places."""
    index.probes, index.short_list, flat = index.lists, len(vectors), FlatIndex(vectors)
    for query in QUERIES:
        assert index.search(query, 10)[1].tolist() == flat.search(query, 10)[1].tolist()
    everything, _ = index.search(QUERIES[0], len(vectors))
    assert sorted(everything.tolist()) == list(range(len(vectors)))


def test_marks_find_vectors_at_other_places_equal_ones_included(vectors: Float16) -> None:
    order = np.random.default_rng(1).permutation(len(vectors))
    marks, moved = marks_of(vectors), marks_of(vectors[order])
    assert len(set(marks.tolist())) == len(vectors)
    places = ivf._places_of(marks, moved)
    assert sorted(places.tolist()) == list(range(len(vectors)))
    assert (vectors[order][places] == vectors).all()


def test_lists_are_refilled_with_the_vectors_of_a_later_version(
    built: IvfIndex, vectors: Float16, trainings: list[int]
) -> None:
    later = np.concatenate([vectors[1900:2000], vectors[:1500:2], unit_vectors(60, D, 8)])
    later = later.astype(np.float16)
    index = refilled(replace(built.copied(), recall=0.5), FlatIndex(later), QUERIES)
    assert index
    assert (trainings, index.probes, index.short_list) == ([], built.probes, built.short_list)
    same_results(index, later)
    assert built.codes.ntotal == len(vectors)


def test_refilled_lists_hold_the_codes_that_fresh_ones_would(
    built: IvfIndex, vectors: Float16
) -> None:
    later = np.concatenate([vectors[:1500:2], unit_vectors(900, D, 8)]).astype(np.float16)
    index = refilled(replace(built.copied(), recall=0.0), FlatIndex(later), QUERIES)
    assert index
    fresh = built.copied().codes
    fresh.reset()
    fresh.add(later.astype(np.float32))
    found, expected = (
        dict(zip(*(each[0].tolist() for each in (places, scores)), strict=True))
        for codes in (index.codes, fresh)
        for scores, places in [codes.search(QUERIES[:1], len(later), params=ALL)]
    )
    assert found == pytest.approx(expected)


def test_lists_are_trained_anew_when_recall_has_fallen(built: IvfIndex, vectors: Float16) -> None:
    lists = built.copied()
    blind = ivf.Lists(lists.codes, lists.marks, probes=1, short_list=1, recall=1.0)
    assert refilled(blind, FlatIndex(vectors), unit_vectors(32, D, 11)) is None


def test_recall_is_compared_with_that_of_the_training_however_often_lists_are_refilled(
    built: IvfIndex, vectors: Float16, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat, files = FlatIndex(vectors), IndexFiles(tmp_path)
    monkeypatch.setattr(ivf, "recall_at_10", lambda *_: 0.965)
    index = refilled(replace(built.copied(), recall=0.97), flat, QUERIES)
    assert index
    assert index.recall == 0.965
    files.write(KEY, "f", index)
    kept = files.read(KEY, "f")
    assert kept
    monkeypatch.setattr(ivf, "recall_at_10", lambda *_: 0.956)
    assert refilled(index.copied(), flat, QUERIES) is None
    assert refilled(kept, flat, QUERIES) is None


def test_lists_are_trained_anew_for_a_much_larger_pool(built: IvfIndex) -> None:
    larger = unit_vectors(9000, D).astype(np.float16)
    assert refilled(built.copied(), FlatIndex(larger), QUERIES) is None


def test_files_that_are_damaged_or_of_another_model_are_not_used(
    built: IvfIndex, vectors: Float16, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = IndexFiles(tmp_path / "indexes")
    assert files.read(KEY, "f") is None
    for _ in range(2):  # the second replaces the first
        files.write(KEY, "f", built)
    assert files.read(KEY, "other") is None
    lists = files.read(KEY, "f")
    assert lists
    index = refilled(lists, FlatIndex(vectors[::-1].copy()), QUERIES)
    assert index
    same_results(index, vectors[::-1].copy())
    assert caplog.text == ""
    changed = tmp_path / "indexes" / "n" / "p" / "f" / "lists.faiss"
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    assert files.read(KEY, "f") is None
    assert "lists.faiss is not the file" in caplog.text
    changed.parent.rename(changed.parent.with_name("other"))
    assert files.read(KEY, "other") is None
    assert "of another model" in caplog.text
    files.remove(KEY)
    assert list((tmp_path / "indexes" / "n").iterdir()) == []


def test_the_indexes_of_the_last_two_models_are_kept(built: IvfIndex, tmp_path: Path) -> None:
    files = IndexFiles(tmp_path)
    for place, model in enumerate("cab"):
        files.write(KEY, model, built)
        os.utime(tmp_path / "n" / "p" / model, (place, place))
    assert [bool(files.read(KEY, model)) for model in "cab"] == [False, True, True]


def test_a_folder_that_cannot_be_written_is_reported(
    built: IvfIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    files = IndexFiles(tmp_path / "file")
    files.write(KEY, "f", built)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.anyio
async def test_a_restart_and_a_fold_of_edits_do_not_train_again(
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
    await one.upsert(*(Candidate(f"again {n}", text) for n, text in enumerate(MANY)))
    await until(lambda: one.info().index == "ivf" and one.view().contents.loose == 0)
    assert trainings == [1100]
    await one.pools.drop("n", "p")
    await until(lambda: not list((tmp_path / "kept").glob("n/*")))


@pytest.mark.anyio
async def test_readiness_waits_for_indexes_of_pools_in_use_and_never_again(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await with_pool(start, *MANY)
    two = await start(exact_limit=1000)
    await until(lambda: two.info().state == "ready")
    assert not two.followed.ready
    await until(lambda: two.followed.ready)
    assert two.info().index == "ivf"
    await two.fill("later", *MANY)
    assert two.followed.ready
    monkeypatch.setattr(upkeep, "code_bytes", lambda _: 1 << 20)
    monkeypatch.setattr(free_memory, "available_memory", lambda: 100.0 * (1 << 20))
    three = await start(exact_limit=1000, ready=True)
    assert three.info().index == "flat"
    assert one.followed.ready

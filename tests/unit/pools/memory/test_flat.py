from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.unit.pools.conftest import unit_vectors
from turnwise.models.arrays import Float32
from turnwise.service.pools.memory.flat import FlatIndex, Float16, Index
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf, recall_at_10

D = 16


def vectors(n: int, seed: int = 0) -> Float16:
    return unit_vectors(n, D, seed).astype(np.float16)


def queries(n: int) -> Float32:
    """Not of unit length, as running queries are."""
    return unit_vectors(n, D, seed=1) * 7


def brute_force(searched: Float16, query: Float32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return searched.astype(np.float64) @ query.astype(np.float64)


def bits(alive: list[bool]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.packbits(alive, bitorder="little")


@pytest.mark.parametrize("k", [1, 10, 300])
def test_flat_search_is_exact(k: int) -> None:
    searched = vectors(300)
    for query in queries(20):
        places, scores = FlatIndex(searched).search(query, k)
        expected = brute_force(searched, query)
        assert places.tolist() == np.argsort(-expected, kind="stable")[:k].tolist()
        np.testing.assert_allclose(scores, expected[places], rtol=1e-6)


def test_parts_find_what_one_finds() -> None:
    searched = vectors(45_003)
    alive = np.random.default_rng(2).random(len(searched)) < 0.9
    alive[45_000:] = True
    with ThreadPoolExecutor(2) as executor:
        whole = FlatIndex(searched)
        parts = FlatIndex(searched, parts=2, executor=executor)
        for query in [*queries(5), searched[45_002].astype(np.float32)]:
            for bitmap in (None, bits(alive.tolist())):
                expected, found = (index.search(query, 10, bitmap) for index in (whole, parts))
                assert found[0].tolist() == expected[0].tolist()
                assert found[1].tolist() == expected[1].tolist()


def test_the_best_of_a_part_may_all_be_dead() -> None:
    searched = vectors(45_003)
    query = queries(1)[0]
    first = brute_force(searched, query)[:22_000]
    alive = np.ones(len(searched), bool)
    alive[np.argsort(-first)[:5000]] = False
    expected = np.where(alive, brute_force(searched, query), -np.inf)
    with ThreadPoolExecutor(2) as executor:
        index = FlatIndex(searched, parts=2, executor=executor)
        places, _ = index.search(query, 10, bits(alive.tolist()))
    assert places.tolist() == np.argsort(-expected, kind="stable")[:10].tolist()


def test_vectors_are_searched_without_a_copy(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", vectors(300))
    for searched in (vectors(300), np.load(tmp_path / "vectors.npy", mmap_mode="r")):
        index = FlatIndex(searched)
        assert np.shares_memory(index.vectors, searched)
        assert index.search(queries(1)[0], 1)[0] == brute_force(searched, queries(1)[0]).argmax()


def test_equal_vectors_stand_in_the_order_of_their_places() -> None:
    searched = np.repeat(vectors(1), 5, axis=0)
    assert FlatIndex(searched).search(queries(1)[0], 5)[0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "query",
    [
        np.full(D, np.nan, np.float32),
        np.full(D, np.inf, np.float32),
        np.zeros(D + 1, np.float32),
        np.zeros((1, D), np.float32),
    ],
)
@pytest.mark.parametrize("n", [0, 50])
def test_invalid_queries_are_rejected(query: Float32, n: int) -> None:
    with pytest.raises(ValueError, match="finite vector of 16"):
        FlatIndex(vectors(n)).search(query, 3)


@pytest.fixture(scope="module")
def searched() -> Float16:
    centres = unit_vectors(40, D)
    near = centres[np.random.default_rng(3).integers(40, size=4000)]
    return np.asarray((near + 0.1 * unit_vectors(4000, D, seed=4)), np.float16)


@pytest.fixture(scope="module")
def ivf(searched: Float16) -> IvfIndex:
    return build_ivf(FlatIndex(searched), queries(64))


def test_ivf_reaches_the_recall_that_it_was_built_for(searched: Float16, ivf: Index) -> None:
    others = unit_vectors(64, D, seed=9) * 3
    exact = [np.sort(brute_force(searched, query))[::-1][:10] for query in others]
    assert ivf.recall is not None
    assert ivf.recall >= 0.99
    assert recall_at_10(ivf, others, [e.astype(np.float32) for e in exact]) >= 0.97


def test_ivf_probes_more_lists_for_harder_queries(searched: Float16, ivf: IvfIndex) -> None:
    wider = build_ivf(FlatIndex(searched), queries(64), widening=2)
    assert wider.probes == min(2 * ivf.probes, ivf.lists)
    assert (wider.recall or 0) >= (ivf.recall or 1)


def test_recall_counts_what_is_missed() -> None:
    index = FlatIndex(vectors(20))
    query = queries(1)
    places, exact = index.search(query[0], 10)
    alive = np.isin(np.arange(20), places[:6], invert=True)

    class Blind(FlatIndex):
        def search(self, query, k, _=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return super().search(query, k, bits(alive.tolist()))

    assert recall_at_10(Blind(vectors(20)), query, [exact]) == 0.4


def test_ivf_scores_exactly(searched: Float16, ivf: Index) -> None:
    query = queries(1)[0]
    places, scores = ivf.search(query, 10)
    np.testing.assert_allclose(scores, brute_force(searched, query)[places], rtol=1e-6)
    assert (np.diff(scores) <= 0).all()


def test_ivf_finds_all_where_more_is_asked_for_than_its_lists_hold(
    searched: Float16, ivf: Index
) -> None:
    places, _ = ivf.search(queries(1)[0], len(searched) + 1)
    assert sorted(places.tolist()) == list(range(len(searched)))


def test_ivf_finds_only_what_is_alive(searched: Float16, ivf: Index) -> None:
    query = queries(1)[0]
    found, _ = ivf.search(query, 10)
    alive = np.isin(np.arange(len(searched)), found, invert=True)
    others, _ = ivf.search(query, 10, bits(alive.tolist()))
    assert len(others) == 10
    assert not set(others) & set(found)


@pytest.mark.parametrize("share", [0.5, 0.05, 0.002])
def test_ivf_finds_the_best_of_the_few_that_are_alive(
    searched: Float16, ivf: Index, share: float
) -> None:
    alive = np.random.default_rng(5).random(len(searched)) < share
    found = 0
    wanted = 0
    for query in queries(32):
        best = np.sort(brute_force(searched, query)[alive])[::-1][:10]
        _, scores = ivf.search(query, 10, bits(alive.tolist()))
        found = found + int((scores >= best[-1] - 1e-5).sum())
        wanted = wanted + len(best)
    assert found / wanted >= 0.98

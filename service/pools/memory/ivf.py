"""The approximate index: an inverted file of 4-bit product-quantised codes, with exact scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32
from turnwise.service.pools.memory.flat import (
    Bitmap,
    FlatIndex,
    Float16,
    Index,
    Places,
    as_faiss,
    rescored,
    selected,
    share_of,
)

_MAX_LISTS = 1024  # more make building slow, and scanning a list of 4-bit codes is cheap
_SHORT_LISTS = (200, 800, 3200)
_RECALL = 0.99
"""Recall@10 to reach: the fewest probed lists and exact scores that reach it are chosen. With many
near-duplicates none may."""
_TRAINING_POINTS = 40
SLICE = 20_000
_FEW = 0.08
"""Share of vectors that are alive below which comparing all of them is as fast as reading lists."""
_SPREAD = 0.25
"""If a share s of the vectors is alive, a search reads s^-0.25 times as many lists: 1.8 times as
many for a tenth."""
_MARKED = 2000
_TOLERANCE = 0.01
"""Difference of recall that may be chance: other queries are drawn when the pool has changed."""

Marks = NDArray[np.uint64]
"""A number for each vector, by which it is found again at another place."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Trained and filled lists, with the marks of the vectors that they were filled with."""

    codes: faiss.IndexIVFPQFastScan
    marks: Marks
    probes: int
    short_list: int
    recall: float
    """When they were trained."""


class IvfIndex(Index):
    """Approximate search over lists of 4-bit codes; scores a short list exactly."""

    kind = "ivf"

    def __init__(
        self, flat: FlatIndex, codes: faiss.IndexIVFPQFastScan, *, probes: int, short_list: int
    ) -> None:
        """Combine trained, filled lists with the flat index of the same vectors.

        Args:
            flat: Gives the exact scores.
            codes: Trained and filled lists of codes.
            probes: Number of lists that a search reads.
            short_list: Least number of candidates that a search scores exactly.
        """
        self._flat, self.codes, self.probes, self.short_list = flat, codes, probes, short_list
        self.recall = None
        self.trained_recall = 0.0
        """Recall when the lists were trained; `recall` is that with these vectors."""
        self.vectors = flat.vectors
        self.bytes = flat.bytes + len(flat) * code_bytes(flat.dimension)

    @property
    def lists(self) -> int:
        """Number of lists."""
        return int(self.codes.nlist)

    def copied(self) -> Lists:
        """Return a copy of the lists, which may be changed while this index is searched."""
        return Lists(
            cast(faiss.IndexIVFPQFastScan, faiss.clone_index(self.codes)),
            marks_of(self.vectors),
            probes=self.probes,
            short_list=self.short_list,
            recall=self.trained_recall,
        )

    def search(self, query: Float32, k: int, alive: Bitmap | None = None) -> tuple[Places, Float32]:
        """Search the nearest lists; if they hold too few vectors, or few are alive, search all.

        The fewer are alive, the further away are the best of them: more lists are read.
        """
        share = share_of(alive, len(self))
        if share < _FEW:
            return self._flat.search(query, k, alive)
        found = self._found(query, k, alive, share)
        if len(found) < min(k, len(self)):
            return self._flat.search(query, k, alive)
        return rescored(self, query, found, k)

    def _found(self, query: Float32, k: int, alive: Bitmap | None, share: float) -> Places:
        """Return the places of the best codes, several times k of them."""
        params: Any = faiss.SearchParametersIVF
        probes = min(round(self.probes / share**_SPREAD), self.lists)
        chosen = params(nprobe=probes, sel=None if alive is None else selected(alive))
        wanted = min(max(self.short_list, 4 * k), len(self))
        _, places = self.codes.search(as_faiss(query, self.dimension), wanted, params=chosen)
        found: Places = places[0][places[0] >= 0]
        return found


def build_ivf(
    flat: FlatIndex,
    queries: Float32,
    progress: Callable[[float], None] | None = None,
) -> IvfIndex:
    """Return an approximate index over the same vectors; takes seconds to minutes of one core.

    Args:
        flat: At least 16 vectors.
        queries: (m, d) running queries to measure recall with, m ≥ 1. They are further from the
            data than the vectors, whose own recall would be too high.
        progress: Called with the share of the vectors that are in their lists.
    """
    codes = train_lists(flat)
    _fill(codes, flat, np.arange(len(flat)), progress)
    exact = [flat.search(query, 10)[1] for query in queries]
    for short_list, probes in product(_SHORT_LISTS, _probes(codes.nlist)):
        index = IvfIndex(flat, codes, probes=probes, short_list=short_list)
        index.recall = index.trained_recall = recall_at_10(index, queries, exact)
        if index.recall >= _RECALL:
            break
    return index


def refilled(
    lists: Lists,
    flat: FlatIndex,
    queries: Float32,
    progress: Callable[[float], None] | None = None,
) -> IvfIndex | None:
    """Return an approximate index with lists that were trained for other vectors, or mostly these.

    Codes of vectors that stay are kept, the others are removed, and new vectors are added.

    Args:
        lists: Trained lists, which this changes.
        flat: The vectors of the index.
        queries: As for `build_ivf`.
        progress: Called with the share of the new vectors that are in their lists.

    Returns:
        None if the lists have to be trained anew: recall is below that of the lists and below what
        `build_ivf` aims at, or there are too few lists.
    """
    codes = lists.codes
    if codes.d != flat.dimension or _list_count(len(flat)) > 2 * codes.nlist:
        return None
    places = _places_of(lists.marks, marks_of(flat.vectors))
    _move(codes, places)
    new = np.ones(len(flat), bool)
    new[places[places >= 0]] = False
    _fill(codes, flat, np.flatnonzero(new), progress)
    index = IvfIndex(flat, codes, probes=lists.probes, short_list=lists.short_list)
    exact = [flat.search(query, 10)[1] for query in queries]
    index.recall, index.trained_recall = recall_at_10(index, queries, exact), lists.recall
    return index if index.recall >= min(_RECALL, lists.recall) - _TOLERANCE else None


def marks_of(vectors: Float16) -> Marks:
    """Return a mark for each vector (n, d): a random sum of its bits.

    The marks of equal vectors differ by how many of them come before.
    """
    random = np.random.default_rng(0).integers(1 << 63, size=vectors.shape[1], dtype=np.uint64)
    marks = np.empty(len(vectors), np.uint64)
    for start in range(0, len(vectors), _MARKED):
        some = vectors[start : start + _MARKED].view(np.uint16).astype(np.uint64)
        marks[start : start + _MARKED] = some @ (2 * random + 1)
    order = np.argsort(marks, kind="stable")
    ordered = marks[order]
    before = np.arange(len(marks)) - np.searchsorted(ordered, ordered)
    marks[order] += before.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return marks


def _places_of(marks: Marks, among: Marks) -> Places:
    """Return the place of each mark among others, -1 for those that are not there."""
    if not len(among):
        return np.full(len(marks), -1)
    order = np.argsort(among)
    places = order[np.searchsorted(among, marks, sorter=order).clip(max=len(among) - 1)]
    return np.where(among[places] == marks, places, -1)


def _move(codes: faiss.IndexIVFPQFastScan, places: Places) -> None:
    """Give each vector in the lists another place; remove those whose new place is negative."""
    codes.remove_ids(faiss.IDSelectorBatch(np.flatnonzero(places < 0)))
    lists: Any = faiss.downcast_InvertedLists(cast(Any, codes.invlists))
    nothing = np.zeros(codes.code_size, np.uint8)
    for number in range(codes.nlist):
        if not (size := lists.list_size(number)):
            continue
        ids = faiss.rev_swig_ptr(lists.get_ids(number), size)
        ids[:] = places[ids]
        # FAISS leaves the bits of removed codes in the last block, and adds new codes on top.
        before = (size - 1) // lists.n_per_block
        blocks = faiss.rev_swig_ptr(lists.get_codes(number), (before + 1) * lists.block_size)
        last = blocks[before * lists.block_size :][None]
        for slot in range(size - before * lists.n_per_block, lists.n_per_block):
            lists.packer.pack_1(nothing, slot, last)


def _fill(
    codes: faiss.IndexIVFPQFastScan,
    flat: FlatIndex,
    places: Places,
    progress: Callable[[float], None] | None,
) -> None:
    """Add the vectors at some places to the lists."""
    for start in range(0, len(places), SLICE):
        some = places[start : start + SLICE]
        codes.add_with_ids(flat.vectors[some].astype(np.float32), some)
        if progress:
            progress(min(1.0, (start + SLICE) / len(places)))


def recall_at_10(index: Index, queries: Float32, exact: Sequence[Float32]) -> float:
    """Return the share of each query's exact top 10 that the index finds.

    Args:
        index: The index to measure.
        queries: (m, d), m ≥ 1.
        exact: The exact scores of each query's top 10. A result counts if its score is among
            them, so any of several equal vectors counts.
    """
    found = [index.search(query, 10)[1] for query in queries]
    shares = [(f >= e[-1] - 1e-6).mean() for e, f in zip(exact, found, strict=True)]
    return float(np.mean(shares))


def code_bytes(dimension: int) -> int:
    """Return the bytes that a vector takes in its list: 4 bits a part, and its place."""
    return -(-_parts(dimension) // 2) + 8


def _parts(dimension: int) -> int:
    return dimension // 2 if dimension % 2 == 0 else dimension


def _list_count(size: int) -> int:
    return max(1, min(_MAX_LISTS, int(2 * size**0.5)))


def train_lists(flat: FlatIndex) -> faiss.IndexIVFPQFastScan:
    """Return empty lists that were trained on a sample of the vectors."""
    n, dimension = len(flat), flat.dimension
    n_lists = _list_count(n)
    lists = faiss.IndexIVFPQFastScan(
        faiss.IndexFlatIP(dimension),
        dimension,
        n_lists,
        _parts(dimension),
        4,
        faiss.METRIC_INNER_PRODUCT,
    )
    lists.by_residual = False  # one table of distances a query, not one a list
    lists.cp.niter, lists.cp.spherical = 8, True
    lists.cp.min_points_per_centroid = 1
    sample = np.random.default_rng(0).choice(n, min(n, _TRAINING_POINTS * n_lists), replace=False)
    lists.train(flat.vectors[np.sort(sample)].astype(np.float32))
    return lists


def _probes(lists: int) -> list[int]:
    steps = [step << power for power in range(2, 9) for step in (2, 3)]
    return [*(step for step in steps if step < lists), lists]

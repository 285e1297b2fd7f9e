"""The approximate index: an inverted file of 4-bit product-quantised codes, with exact scores."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import faiss
import numpy as np

from turnwise.models.arrays import Float32
from turnwise.service.pools.memory.flat import (
    Bitmap,
    FlatIndex,
    Index,
    Indices,
    as_faiss,
    compute_share,
    make_selector,
    rescore,
)

_MAX_LISTS = 1024  # more make building slow, and scanning a list of 4-bit codes is cheap
_SHORT_LISTS = (200, 800, 3200)
_TARGET_RECALL = 0.99
"""Recall@10 to reach: the fewest probed lists and exact scores that reach it are chosen. With many
near-duplicates none of them may."""
_TRAINING_POINTS = 40
SLICE = 20_000
_MIN_SHARE = 0.08
"""Share of vectors that are alive below which comparing all of them is as fast as reading lists."""
_WIDENING_POWER = 0.25
"""If a share s of the vectors is alive, a search reads s^-0.25 times as many lists: 1.8 times as
many for a tenth."""


class IvfIndex(Index):
    """Approximate search over lists of 4-bit codes; scores a short list exactly."""

    kind = "ivf"

    def __init__(
        self,
        flat: FlatIndex,
        codes: faiss.IndexIVFPQFastScan,
        *,
        probes: int,
        short_list: int,
        recall: float | None = None,
    ) -> None:
        """Combine trained, filled lists with the flat index of the same vectors.

        Args:
            flat: Gives the exact scores.
            codes: Trained and filled lists of codes.
            probes: Number of lists that a search reads.
            short_list: Least number of candidates that a search scores exactly.
            recall: Measured share of the exact top 10 that it finds.
        """
        self._flat = flat
        self.codes = codes
        self.probes = probes
        self.short_list = short_list
        self.recall = recall
        self.vectors = flat.vectors
        self.bytes = flat.bytes + len(flat) * code_bytes(flat.dimension)

    @property
    def lists(self) -> int:
        """Number of lists."""
        return int(self.codes.nlist)

    def search(
        self, query: Float32, k: int, alive: Bitmap | None = None
    ) -> tuple[Indices, Float32]:
        """Search the nearest lists; if they hold too few vectors, or few are alive, search all.

        The fewer are alive, the further away are the best of them: more lists are read.
        """
        share = compute_share(alive, len(self))
        if share < _MIN_SHARE:
            return self._flat.search(query, k, alive)
        indices = self._search_lists(query, k, alive, share)
        if len(indices) < min(k, len(self)):
            return self._flat.search(query, k, alive)
        return rescore(self, query, indices, k)

    def _search_lists(self, query: Float32, k: int, alive: Bitmap | None, share: float) -> Indices:
        """Return the indices of the best codes, several times k of them."""
        make: Any = faiss.SearchParametersIVF
        probes = min(round(self.probes / share**_WIDENING_POWER), self.lists)
        selector = None if alive is None else make_selector(alive)
        params = make(nprobe=probes, sel=selector)
        wanted = min(max(self.short_list, 4 * k), len(self))
        _, found = self.codes.search(as_faiss(query, self.dimension), wanted, params=params)
        indices: Indices = found[0][found[0] >= 0]
        return indices


def build_ivf(
    flat: FlatIndex,
    queries: Float32,
    progress: Callable[[float], None] | None = None,
    *,
    widening: int = 1,
) -> IvfIndex:
    """Return an approximate index over the same vectors; takes seconds to minutes of one core.

    Args:
        flat: At least 16 vectors.
        queries: (m, d) running queries to measure recall with, m ≥ 1. They are further from the
            data than the pool's own vectors, with which the recall would be too high.
        progress: Called with the share of the vectors that are in their lists.
        widening: Factor of the number of probed lists, where later queries are harder than these.
    """
    codes = train_lists(flat)
    for start in range(0, len(flat), SLICE):
        codes.add(flat.vectors[start : start + SLICE].astype(np.float32))
        if progress:
            progress(min(1.0, (start + SLICE) / len(flat)))
    exact = [flat.search(query, 10)[1] for query in queries]
    for short_list, probes in product(_SHORT_LISTS, _probe_counts(codes.nlist)):
        index = IvfIndex(flat, codes, probes=probes, short_list=short_list)
        index.recall = recall_at_10(index, queries, exact)
        if index.recall >= _TARGET_RECALL:
            break
    index.probes = min(widening * index.probes, index.lists)
    index.recall = recall_at_10(index, queries, exact)
    return index


def recall_at_10(index: Index, queries: Float32, exact: Sequence[Float32]) -> float:
    """Return the share of each query's exact top 10 that the index finds.

    Args:
        index: The index to measure.
        queries: (m, d), m ≥ 1.
        exact: The exact scores of each query's top 10. A result counts if its score is among
            them, so any of several equal vectors counts.
    """
    found = [index.search(query, 10)[1] for query in queries]
    shares = [
        (scores >= exact_scores[-1] - 1e-6).mean()
        for scores, exact_scores in zip(found, exact, strict=True)
    ]
    return float(np.mean(shares))


def code_bytes(dimension: int) -> int:
    """Return the bytes that a vector takes in its list: 4 bits a part, and its index."""
    return math.ceil(_count_parts(dimension) / 2) + 8


def _count_parts(dimension: int) -> int:
    return dimension // 2 if dimension % 2 == 0 else dimension


def train_lists(flat: FlatIndex) -> faiss.IndexIVFPQFastScan:
    """Return empty lists that were trained on a sample of the vectors."""
    n = len(flat)
    dimension = flat.dimension
    n_lists = max(1, min(_MAX_LISTS, int(2 * n**0.5)))
    lists = faiss.IndexIVFPQFastScan(
        faiss.IndexFlatIP(dimension),
        dimension,
        n_lists,
        _count_parts(dimension),
        4,
        faiss.METRIC_INNER_PRODUCT,
    )
    lists.by_residual = False  # one table of distances for each query, not for each list
    lists.cp.niter = 8
    lists.cp.spherical = True
    lists.cp.min_points_per_centroid = 1
    sample = np.random.default_rng(0).choice(n, min(n, _TRAINING_POINTS * n_lists), replace=False)
    lists.train(flat.vectors[np.sort(sample)].astype(np.float32))
    return lists


def _probe_counts(lists: int) -> list[int]:
    """Return the numbers of probed lists to try: 8, 12, 16, 24, 32, 48, ..., and all lists."""
    counts = [factor * 2**power for power in range(2, 9) for factor in (2, 3)]
    return [*(count for count in counts if count < lists), lists]

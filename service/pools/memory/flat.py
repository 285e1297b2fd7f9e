"""The interface of an index over the vectors of a pool, and the exact index.

Vectors are stored in float16. Every index scores its results again in float64 from these, so a
score does not depend on which index found the candidate.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32
from turnwise.service.pools.memory.vectors import empty_vectors

Float16 = NDArray[np.float16]
Indices = NDArray[np.int64]
"""Indices of vectors in an array (n, d)."""
Bitmap = NDArray[np.uint8]
"""One bit a vector, least significant first: 1 if a search may return it."""

_COMPARE_ALL_SHARE = 0.3
"""Share of vectors that are alive above which FAISS compares all faster than it selects these."""
_UNIT_TOLERANCE = 0.01
"""Tolerance for the length of a unit vector that was rounded to float16."""
_MIN_PART = 20_000  # below it a second thread costs more than it saves


def are_unit(vectors: Float16) -> bool:
    """Return whether all vectors (n, d) have unit length, but for rounding."""
    squares = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float32)
    return bool(np.allclose(squares, 1, atol=_UNIT_TOLERANCE))


def gather(parts: Sequence[tuple[Float16, Sequence[int] | Indices]]) -> Float16:
    """Return some vectors of several arrays in one array; each vector is copied once."""
    size = sum(len(indices) for _, indices in parts)
    first, _ = parts[0]
    gathered = empty_vectors(size, first.shape[1])
    start = 0
    for vectors, indices in parts:
        end = start + len(indices)
        np.take(
            vectors,
            np.asarray(indices, np.int64),
            axis=0,
            out=gathered[start:end],
            mode="clip",  # with "raise", NumPy would make a buffer
        )
        start = end
    return gathered


def one_thread() -> None:
    """Limit FAISS to one OpenMP thread; the setting holds for the calling thread only."""
    faiss.omp_set_num_threads(1)


class Index(ABC):
    """An index over the vectors of a pool.

    Attributes:
        kind: "flat" compares all vectors, "ivf" only those in the nearest lists.
        recall: Measured share of the exact top 10 that it finds; None if search is exact.
        vectors: The vectors (n, d).
        bytes: Bytes of memory that the vectors and codes take.
    """

    kind: Literal["flat", "ivf"]
    recall: float | None
    vectors: Float16
    bytes: int

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return int(self.vectors.shape[1])

    @abstractmethod
    def search(
        self, query: Float32, k: int, alive: Bitmap | None = None
    ) -> tuple[Indices, Float32]:
        """Return indices and scores of the k vectors with the largest inner products, best first.

        Returns all if there are fewer than k. Ties are in the order of their indices; any of those
        that tie with the last one may be among the k.

        Raises:
            ValueError: The query is not a finite vector of the index's dimension.
        """


class FlatIndex(Index):
    """Exact search: one pass over all vectors, split into parts if there are several threads."""

    kind = "flat"
    recall = None

    def __init__(
        self, vectors: Float16, *, parts: int = 1, executor: Executor | None = None
    ) -> None:
        """Take n vectors (n, d) without a copy; they must not change any more.

        Args:
            vectors: In memory, or mapped into it.
            parts: Number of threads that search in parallel if the index is large enough.
            executor: Searches all parts but one; needed if `parts` is above 1.
        """
        self.vectors = np.ascontiguousarray(vectors)
        self.bytes = vectors.nbytes
        size = len(vectors)
        parts = max(1, min(parts, size // _MIN_PART))
        step = 8 * max(1, math.ceil(size / parts / 8))  # parts start at whole bytes of a bitmap
        self._parts = [
            _Part(self.vectors[start : start + step], start)
            for start in range(0, max(size, 1), step)
        ]
        self._executor = executor

    def search(
        self, query: Float32, k: int, alive: Bitmap | None = None
    ) -> tuple[Indices, Float32]:
        """Search all parts, the first in this thread."""
        checked = as_faiss(query, self.dimension)
        share = compute_share(alive, len(self))
        if alive is not None and share > _COMPARE_ALL_SHARE:
            more = math.ceil(2 * k / share)
            candidates = self._search_parts(checked, more, None)
            indices, scores = rescore(self, query, candidates, more)
            kept = read_bits(alive, indices)
            if kept.sum() >= k:  # so that no other vector is among the best k
                return indices[kept][:k], scores[kept][:k]
        return rescore(self, query, self._search_parts(checked, k, alive), k)

    def _search_parts(self, query: Float32, k: int, alive: Bitmap | None) -> Indices:
        """Return the indices of the best k vectors of each part."""
        first, *others = self._parts
        if not others or self._executor is None:
            return np.concatenate([part.search(query, k, alive) for part in self._parts])
        waiting = [self._executor.submit(part.search, query, k, alive) for part in others]
        found = [first.search(query, k, alive), *(future.result() for future in waiting)]
        return np.concatenate(found)


class _Part:
    """Consecutive vectors; FAISS gets a view, not a copy."""

    def __init__(self, vectors: Float16, start: int) -> None:
        self._vectors = vectors
        self._start = start
        self._index = faiss.IndexScalarQuantizer(
            vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        codes: Any = faiss.MaybeOwnedVectorUInt8
        memory = faiss.swig_ptr(vectors.view(np.uint8))
        self._index.codes = codes.create_view(memory, vectors.nbytes, codes().owner)
        self._index.ntotal = len(vectors)

    def search(self, query: Float32, k: int, alive: Bitmap | None) -> Indices:
        """Return the indices, in the whole array, of the best k vectors of the part."""
        k = min(k, len(self._vectors))
        if k <= 0:
            return np.empty(0, np.int64)
        make: Any = faiss.SearchParameters
        params = None
        if alive is not None:
            params = make(sel=make_selector(alive[self._start // 8 :]))
        _, found = self._index.search(query, k, params=params)
        indices: Indices = found[0][found[0] >= 0] + self._start
        return indices


def make_selector(alive: Bitmap) -> Any:  # noqa: ANN401 - FAISS has no types for Python
    """Return a FAISS selector of the vectors whose bit is set."""
    selector: Any = faiss.IDSelectorBitmap
    return selector(alive)


def read_bits(bitmap: Bitmap, indices: Indices) -> NDArray[np.bool_]:
    """Return whether the bit at each index is set."""
    bits = bitmap[indices // 8] >> (indices % 8) & 1
    return bits.astype(np.bool_)


def find_set_bits(bitmap: Bitmap, size: int) -> Indices:
    """Return the indices of the bits that are set among the first ones."""
    return np.flatnonzero(np.unpackbits(bitmap, count=size, bitorder="little"))


def compute_share(alive: Bitmap | None, size: int) -> float:
    """Return the share of vectors whose bit is set; 1 without a bitmap."""
    return 1.0 if alive is None else float(np.bitwise_count(alive).sum()) / max(size, 1)


def rescore(index: Index, query: Float32, indices: Indices, k: int) -> tuple[Indices, Float32]:
    """Return the k of these indices with the best scores in float64, and the scores."""
    scores = index.vectors[indices].astype(np.float64) @ query.astype(np.float64)
    best = np.lexsort((indices, -scores))[:k]
    return indices[best], scores[best].astype(np.float32)


def as_faiss(query: Float32, dimension: int) -> Float32:
    """Return the query as FAISS expects it, (1, d); for NaN, FAISS would return indices of -1."""
    if query.shape != (dimension,) or not np.isfinite(query).all():
        raise ValueError(f"a query must be a finite vector of {dimension} numbers")
    return np.ascontiguousarray(query, np.float32)[None]

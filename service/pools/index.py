"""Search over the vectors of a pool: what every index does, and the exact one.

float16 is the one representation of a candidate's vector. What an index returns is scored
again in float64 from it, so a score does not depend on which index found the candidate.
"""

from abc import ABC, abstractmethod
from concurrent.futures import Executor
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32

Float16 = NDArray[np.float16]
Places = NDArray[np.int64]
Bitmap = NDArray[np.uint8]
"""One bit a vector, little end first: whether a search may return it."""

_MIN_PART = 20_000  # below it a second thread costs more than it saves


def one_thread() -> None:
    """Set FAISS's OpenMP threads of the calling thread to one: it is a setting of each thread."""
    faiss.omp_set_num_threads(1)


class Index(ABC):
    """What a pool searches.

    Attributes:
        kind: Whether all vectors are compared, or those in the nearest lists.
        recall: Share of the exact top 10 that is found, measured; None where search is exact.
        vectors: What is searched, (n, d).
        bytes: Memory of vectors and codes.
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
    def search(self, query: Float32, k: int, alive: Bitmap | None = None) -> tuple[Places, Float32]:
        """Return places and scores of the k vectors of largest inner product, best first.

        Fewer where there are fewer. Equal scores stand in the order of their places.

        Raises:
            ValueError: The query is not a finite vector of the index's dimension.
        """


class FlatIndex(Index):
    """Exact search: one pass over all vectors, in parts where there are threads for them."""

    kind = "flat"
    recall = None

    def __init__(
        self, vectors: Float16, *, parts: int = 1, executor: Executor | None = None
    ) -> None:
        """Search n vectors (n, d) where they lie: nobody may change them from now on.

        Args:
            vectors: What is searched; in memory, or mapped into it.
            parts: How many threads search side by side, where there is enough to do.
            executor: Where all parts but one are searched; needed where `parts` is above 1.
        """
        self.vectors = np.ascontiguousarray(vectors)
        self.bytes = vectors.nbytes
        size = len(vectors)
        parts = max(1, min(parts, size // _MIN_PART))
        step = max(-(-size // parts // 8) * 8, 1)  # a part's bits start with a byte of the bitmap
        self._parts = [
            _Part(self.vectors[start:][:step], start) for start in range(0, max(size, 1), step)
        ]
        self._executor = executor

    def search(self, query: Float32, k: int, alive: Bitmap | None = None) -> tuple[Places, Float32]:
        """Search all parts, one in this thread."""
        checked = as_faiss(query, self.dimension)
        first, *others = self._parts
        if not others or self._executor is None:
            found = [part.search(checked, k, alive) for part in self._parts]
        else:
            waiting = [self._executor.submit(part.search, checked, k, alive) for part in others]
            found = [first.search(checked, k, alive), *(future.result() for future in waiting)]
        return rescored(self, query, np.concatenate(found), k)


class _Part:
    """Vectors of consecutive places; FAISS has a view on them, not a copy."""

    def __init__(self, vectors: Float16, start: int) -> None:
        self._vectors, self.start = vectors, start
        self._index = faiss.IndexScalarQuantizer(
            vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        codes: Any = faiss.MaybeOwnedVectorUInt8
        memory = faiss.swig_ptr(vectors.view(np.uint8))
        self._index.codes = codes.create_view(memory, vectors.nbytes, codes().owner)
        self._index.ntotal = len(vectors)

    def search(self, query: Float32, k: int, alive: Bitmap | None) -> Places:
        k = min(k, len(self._vectors))
        if k <= 0:
            return np.empty(0, np.int64)
        selector = None if alive is None else selected(alive[self.start // 8 :])
        params: Any = faiss.SearchParameters
        _, places = self._index.search(query, k, params=params(sel=selector))
        found: Places = places[0][places[0] >= 0] + self.start
        return found


def selected(alive: Bitmap) -> Any:  # noqa: ANN401 - FAISS's types tell of C++, not of Python
    """Return what makes FAISS find only the places whose bit is set."""
    selector: Any = faiss.IDSelectorBitmap
    return selector(alive)


def rescored(index: Index, query: Float32, places: Places, k: int) -> tuple[Places, Float32]:
    """Return the best k of some places by their score in float64, and the scores."""
    scores = index.vectors[places].astype(np.float64) @ query.astype(np.float64)
    best = np.lexsort((places, -scores))[:k]
    return places[best], scores[best].astype(np.float32)


def as_faiss(query: Float32, dimension: int) -> Float32:
    """Return the query as FAISS takes it, (1, d); it answers a NaN with places of -1."""
    if query.shape != (dimension,) or not np.isfinite(query).all():
        raise ValueError(f"a query must be a finite vector of {dimension} numbers")
    return np.ascontiguousarray(query, np.float32)[None]

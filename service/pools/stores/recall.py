"""Measures how many of the exact top candidates a search of a store finds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.service.pools.stores.rows import to_batch
from turnwise.service.pools.stores.store import CandidateStore, Stored

RECALL = 0.99
"""Recall at which the narrowest width is chosen."""
_WIDTHS = (64, 128, 256, 512, 1024)
_TOP = 10
_ROUNDING = 1e-4


class Width(NamedTuple):
    """How many candidates an index looks at in a search, and the recall of such searches."""

    width: int
    recall: float


async def find_least_scores(store: CandidateStore, collection: str, queries: Float32) -> Float32:
    """Return the lowest score (m,) of the exact top candidates of each query (m, d).

    It scans the whole collection.
    """
    top = np.full((len(queries), _TOP), -np.inf, np.float32)  # scores, best last
    async for stored in store.scan(collection):
        scores = queries @ to_batch(stored).vectors.astype(np.float32).T
        top = np.sort(np.hstack([top, scores]))[:, -_TOP:]
    least: Float32 = top[:, 0]
    return least


async def choose_width(
    store: CandidateStore, collection: str, queries: Float32, least: Float32
) -> Width:
    """Return the narrowest width with a recall of `RECALL`, or else the one with the best recall.

    Args:
        store: The candidate store.
        collection: Name of the collection.
        queries: (m, d).
        least: (m,) what `find_least_scores` returned for them.
    """
    measured: list[Width] = []
    for width in _WIDTHS:
        found = [await store.search(collection, query, _TOP, width, None) for query in queries]
        measured.append(Width(width, _measure_recall(queries, least, found)))
        if measured[-1].recall >= RECALL:
            break
    return max(measured, key=lambda each: each.recall)


def _measure_recall(queries: Float32, least: Float32, found: Sequence[Sequence[Stored]]) -> float:
    shares = [
        np.count_nonzero(to_batch(stored, len(query)).vectors @ query >= score - _ROUNDING) / _TOP
        for query, score, stored in zip(queries, least, found, strict=True)
    ]
    return float(np.mean(shares))

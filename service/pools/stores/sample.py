"""The samples that a replica keeps of the collections of a pool."""

from contextlib import aclosing
from typing import NamedTuple

import numpy as np

from turnwise.service.pools.filter import Filter
from turnwise.service.pools.memory.flat import FlatIndex
from turnwise.service.pools.memory.segment import Segment
from turnwise.service.pools.stores.rows import to_batch
from turnwise.service.pools.stores.store import CandidateStore, Stored

_SAMPLE = 2000
"""Rows that a replica draws of a collection: a standard deviation of their scores is within 2 %."""


class Sample(NamedTuple):
    """A sample of the rows of a collection.

    Attributes:
        collection: Name of the collection.
        size: Number of its rows when they were drawn.
        rows: The rows that were drawn.
    """

    collection: str
    size: int
    rows: Segment

    def represents(self, collection: str, size: int) -> bool:
        """Return whether it still represents a collection, which has this size now."""
        return self.collection == collection and self.size / 2 <= size <= self.size * 2

    def estimate_matches(self, size: int, where: Filter | None) -> int:
        """Return about how many rows of a collection of this size a filter matches."""
        if not where:
            return size
        matching = int(np.bitwise_count(self.rows.match(where)).sum())
        return round(size * matching / max(1, len(self.rows.candidates)))


class SampledExamples(NamedTuple):
    """The examples, groups and followers of a pool in a store, as a replica last counted them.

    Attributes:
        sample: Some of the examples.
        size: Number of all examples.
        has_groups: Whether any candidate has a group.
        has_followers: Whether any candidate follows a reply.
    """

    sample: Sample
    size: int
    has_groups: bool
    has_followers: bool


async def draw_sample(store: CandidateStore, collection: str, size: int, dimension: int) -> Sample:
    """Return the first rows of a collection that has this size."""
    drawn: list[Stored] = []
    if size:
        async with aclosing(store.scan(collection)) as batches:
            async for batch in batches:
                drawn += batch
                if len(drawn) >= _SAMPLE:
                    break
    sample = to_batch(drawn, dimension)
    rows = Segment.of(sample.candidates, sample.vectors, None, FlatIndex)
    return Sample(collection, size, rows)

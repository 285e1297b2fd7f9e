"""Qdrant in the memory of the test's process, by the local mode of its client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwise.service.observe.metrics import Metrics

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

    from turnwise.service.pools.stores.qdrant import Qdrant


def in_memory() -> AsyncQdrantClient:
    """Return a client that holds the data."""
    from qdrant_client import AsyncQdrantClient

    return AsyncQdrantClient(":memory:")


def make_store(client: AsyncQdrantClient | None = None, metrics: Metrics | None = None) -> Qdrant:
    """Return a candidate store with data of its own, or with those of a client."""
    from turnwise.service.pools.stores.qdrant import Qdrant

    return Qdrant(client or in_memory(), metrics or Metrics())

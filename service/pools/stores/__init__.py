"""Candidate stores: engines beside the replicas that keep and search the candidates of pools.

- `store` (`CandidateStore`): what an engine must do, which one a URL names (`connect_store`), how
  failures are reported, and whether the engine answers (`StoreProbe`).
- `facets`: metadata as strings that every engine can match exactly.
- `milvus`, `qdrant`: the engines.

An engine is only asked for candidates and their vectors. Scores are computed from the vectors here,
and filters are checked again, so an answer does not depend on the engine but by its recall.
"""

from turnwise.service.pools.stores.store import (
    CandidateStore,
    Stored,
    StoreProbe,
    connect_store,
)

__all__ = ["CandidateStore", "StoreProbe", "Stored", "connect_store"]

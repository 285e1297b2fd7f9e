"""Candidate stores: engines beside the replicas that keep and search the candidates of pools.

- `store` (`CandidateStore`): what an engine must do, how its failures are reported, and whether it
  answers (`StoreProbe`).
- `facets`: metadata as strings that every engine can match exactly.
- `milvus`, `qdrant`: the engines. `connect` opens the one that a URL names.

An engine is only asked for candidates and their vectors. Scores are computed from the vectors here,
and filters are checked again, so an answer does not depend on the engine but by its recall.
"""

from turnwise.service.pools.stores.connect import connect_store
from turnwise.service.pools.stores.store import CandidateStore, Stored, StoreProbe

__all__ = ["CandidateStore", "StoreProbe", "Stored", "connect_store"]

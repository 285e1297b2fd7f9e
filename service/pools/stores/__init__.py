"""Candidate stores: engines outside of the replicas that keep and search the candidates of pools.

- `store` (`CandidateStore`): what an engine must do, which one a URL names (`connect_store`), how
  failures are reported, and whether the engine answers (`does_answer`).
- `facets`: metadata as strings that every engine can match exactly.
- `milvus`, `qdrant`: the engines. Qdrant is experimental: no real server was tried.

An engine only returns candidates and their vectors. The replica computes the scores from the
vectors and checks the filters again, so the engine affects an answer only by its recall.
"""

from turnwise.service.pools.stores.store import CandidateStore, Stored, connect_store, does_answer

__all__ = ["CandidateStore", "Stored", "connect_store", "does_answer"]

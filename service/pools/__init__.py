"""Candidate pools: versioned in Redis, searched in memory."""

from service.pools.candidate import Candidate, read_candidates
from service.pools.contents import Hit
from service.pools.encoding import PoolEncoder, RunningQueries
from service.pools.registry import Pools
from service.pools.snapshot import (
    Manifest,
    Snapshot,
    SnapshotError,
    read_snapshot,
    write_snapshot,
)
from service.pools.view import PoolView

__all__ = [
    "Candidate",
    "Hit",
    "Manifest",
    "PoolEncoder",
    "PoolView",
    "Pools",
    "RunningQueries",
    "Snapshot",
    "SnapshotError",
    "read_candidates",
    "read_snapshot",
    "write_snapshot",
]

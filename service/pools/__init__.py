"""Candidate pools: versioned in Redis, searched in memory."""

from turnwise.service.pools.candidate import Candidate, read_candidates
from turnwise.service.pools.contents import Hit
from turnwise.service.pools.encoding import PoolEncoder, RunningQueries
from turnwise.service.pools.registry import Pools
from turnwise.service.pools.snapshot import (
    Manifest,
    Snapshot,
    SnapshotError,
    read_snapshot,
    write_snapshot,
)
from turnwise.service.pools.view import PoolView

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

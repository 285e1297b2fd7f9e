"""Candidate pools: a versioned log in Redis, which each replica follows and searches in memory.

- `registry` (`Pools`): all pools of a replica; `pool` (`Pool`): one of them; `view` (`PoolView`):
  one version of it, as a request searches it; `contents`: the candidates of a version, and edits.
- `store`, `log`, `replay`: a pool in Redis; its values; from them to edits. `scripts/` are in Lua.
- `index`, `ivf`: exact and approximate search. `encoding`: texts of candidates to vectors.
- `upkeep`, `workers`: folding and indexing in the background; threads and tasks.
- `candidate`, `snapshot`: candidates and pools as files.

Anything that keeps, changes or searches candidates belongs here; how a turn uses them belongs to
`selection`. It may import `encoder`, `state`, `wire`, `observe`, `errors` and `models`.
"""

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

"""Candidate pools: in the memory of each replica, or in a candidate store.

- `followed` (`FollowedPools`): the pools of this replica; `following` (`PoolFollower`): polls Redis
  for them; `pool` (`Pool`): one of them; `view` (`PoolView`): one version of it, as a request
  searches it.
- `opener`: makes pools; `resources`: what they share; `names`: names and aliases; `missing`: those
  that Redis lost; `readiness`: the pools that a replica waits for; `namespace_limit`.
- `candidate`, `filter`, `encoding`: candidates, conditions on their metadata, their vectors.
- `listing`: a page of the candidates, and the search for words in them; `slots`: places in a text
  that a session fills.
- `redis`: the log of a pool in Redis, the names of all pools, and aliases.
- `memory`: a pool in memory, its contents and indexes.
- `stores`: a pool in a candidate store, and the engines.
- `files`: files of candidates, snapshots, backups and catalogues.

Anything that keeps, changes or searches candidates belongs here; how a turn uses them belongs to
`selection`.
"""

from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import PoolEncoder, RunningQueries
from turnwise.service.pools.files.candidates import read_candidates
from turnwise.service.pools.files.snapshot import (
    Snapshot,
    SnapshotError,
    SnapshotManifest,
    read_snapshot,
    write_snapshot,
)
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.followed import FollowedPools
from turnwise.service.pools.following import PoolFollower
from turnwise.service.pools.memory.segment import Hit, Match
from turnwise.service.pools.redis.values import PoolKey
from turnwise.service.pools.view import PoolView, warn_about_filter

__all__ = [
    "Candidate",
    "Filter",
    "FollowedPools",
    "Hit",
    "Match",
    "PoolEncoder",
    "PoolFollower",
    "PoolKey",
    "PoolView",
    "RunningQueries",
    "Snapshot",
    "SnapshotError",
    "SnapshotManifest",
    "read_candidates",
    "read_snapshot",
    "warn_about_filter",
    "write_snapshot",
]

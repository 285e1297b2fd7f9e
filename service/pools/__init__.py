"""Candidate pools: in the memory of each replica, or in a candidate store beside them.

- `use_cases` (`Pools`): what requests and commands do with pools.
- `following` (`FollowedPools`): the pools in memory, which follow Redis; `pool` (`Pool`): one of
  them; `view` (`PoolView`): one version of it, as a request searches it.
- `local`: a pool in memory, which follows a versioned log in Redis; `contents`: the candidates of
  a version, and edits.
- `remote`: a pool in a candidate store; `collections`: a new collection; `stores`: the engines.
- `filter` (`Filter`): which candidates a search may return.
- `directory`: the names of all pools in Redis, and aliases. `records`, `log`, `replay`: the pools
  in Redis; their values; from them to edits. `redis_commands` runs the `scripts/`.
- `index`, `ivf`: exact and approximate search. `ivf` chooses the parameters of its lists, and each
  engine in `stores` those of its graph; `remote` chooses the width of searches in that graph.
- `encoding`: texts of candidates to vectors.
- `upkeep`, `workers`: folding and indexing in the background; threads and tasks.
- `free_memory`: whether an upload, a read, a fold or an index fits into memory.
- `candidate`, `snapshot`, `index_files`: candidates, pools and trained indexes as files.
- `catalogue`, `parts` (extra `bulk`): files of candidates to encode in bulk, and the encoded files.

Anything that keeps, changes or searches candidates belongs here; how a turn uses them belongs to
`selection`. It may import `encoder`, `state`, `wire`, `observe`, `settings`, `errors` and
`models`.
"""

from turnwise.service.pools.candidate import Candidate, read_candidates
from turnwise.service.pools.contents import Hit
from turnwise.service.pools.encoding import PoolEncoder, RunningQueries
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.following import FollowedPools
from turnwise.service.pools.log import PoolKey
from turnwise.service.pools.snapshot import (
    Manifest,
    Snapshot,
    SnapshotError,
    read_snapshot,
    write_snapshot,
)
from turnwise.service.pools.use_cases import Pools
from turnwise.service.pools.view import PoolView

__all__ = [
    "Candidate",
    "Filter",
    "FollowedPools",
    "Hit",
    "Manifest",
    "PoolEncoder",
    "PoolKey",
    "PoolView",
    "Pools",
    "RunningQueries",
    "Snapshot",
    "SnapshotError",
    "read_candidates",
    "read_snapshot",
    "write_snapshot",
]

"""Background work on a pool: folding its log, and building an approximate index if it is large."""

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turnwise.service.pools.contents import Contents, Edit
from turnwise.service.pools.ivf import build_ivf, code_bytes
from turnwise.service.pools.pool import Pool
from turnwise.service.pools.store import CHUNK
from turnwise.service.pools.workers import Workers

_MIN_INDEXED = 1000
_TAIL_SECONDS = 30.0
"""Edits that are younger stay in the log: a replica that lags by less replays them, instead of
reading the whole pool again and building its index anew."""
_MIN_ENTRIES = 64
_ENTRY_SHARE = 200
"""A fold writes the whole pool, so each edit pays for writing at most 200 candidates."""

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def log_is_long(pool: Pool) -> bool:
    """Return whether reading the log takes much longer than reading the candidates."""
    log, size = pool.log, len(pool.contents)
    if log is None:
        return False
    entries = pool.position.version - log.base
    return entries > _MIN_ENTRIES + size // _ENTRY_SHARE or log.stored > 2 * size + CHUNK


async def fold(pool: Pool, workers: Workers) -> None:
    """Replace all of a long log but its tail by one entry, unless another replica does it.

    The version stays.
    """
    store = pool.store
    await pool.refresh()
    if not (log_is_long(pool) and await store.lock_fold(pool.key)):
        return
    position, contents = pool.position, pool.contents
    await asyncio.sleep(_TAIL_SECONDS)
    log = await store.read(pool.key)
    if log is None or (known := log.until(position)) is None:
        return
    edit = await workers.edit(lambda: Edit(contents.candidates(), contents.vectors()))
    staged = await store.stage(pool.key, edit)
    if await store.fold(pool.key, known, replace(staged, stamp=position.stamp)) != "ok":
        await store.discard(pool.key, staged.chunks)
    await pool.refresh()


def needs_index(pool: Pool, exact_limit: int) -> bool:
    """Return whether the pool is too large for exact search, or its index is out of date."""
    contents = pool.contents
    if len(contents) <= max(exact_limit, _MIN_INDEXED) or not pool.may_be_indexed:
        return False
    return contents.base.index.kind == "flat" or contents.is_loose


async def build_index(pool: Pool, workers: Workers) -> None:
    """Build an approximate index; takes up to minutes, while the old index answers.

    Raises:
        MemoryError: There is not enough memory for the build.
    """
    texts: Sequence[str] = [candidate.text for candidate in pool.contents.candidates()]
    queries = await pool.encoder.sample_queries(texts)

    def build(contents: Contents) -> Contents:
        _check_memory(contents)
        return contents.merged(
            lambda vectors: build_ivf(workers.flat(vectors), queries, progress=pool.set_progress)
        )

    await pool.replace_index(build)


def _check_memory(contents: Contents) -> None:
    """Check first: Linux overcommits memory and kills the process that uses too much."""
    size, d = len(contents), contents.base.index.dimension
    needed = 2 * size * code_bytes(d)  # lists grow by doubling
    if contents.loose and len(contents.base.candidates):
        needed += 2 * size * d  # the merged copy of the vectors
    if needed > (free := available_memory()):
        raise MemoryError(
            f"building an index of {size} candidates needs {needed >> 20} MB of memory, but "
            f"{free / 2**20:.0f} MB are free: search keeps the old index"
        )


def available_memory() -> float:
    """Return the bytes of memory that this process may still take; infinity if unknown."""
    return min(_machine_memory(), _container_memory())


def _machine_memory() -> float:
    return 1024 * _number(MEMINFO, r"^MemAvailable:\s+(\d+)")


def _container_memory() -> float:
    """Return the bytes left below the container's limit; the page cache counts as free."""
    used = _number(CGROUP / "memory.current", r"^(\d+)")
    cached = _number(CGROUP / "memory.stat", r"^inactive_file (\d+)")
    left = _number(CGROUP / "memory.max", r"^(\d+)") - used + cached
    return math.inf if math.isnan(left) else left


def _number(path: Path, pattern: str) -> float:
    """Return the first number that matches in a file; infinity if there is none."""
    try:
        found = re.search(pattern, path.read_text(encoding="utf-8"), re.M)
    except OSError:
        return math.inf
    return float(found[1]) if found else math.inf

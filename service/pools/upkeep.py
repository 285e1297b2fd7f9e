"""What a replica does for a pool beside answering: folding its log, indexing what is large."""

from collections.abc import Sequence
from dataclasses import replace

from turnwise.service.pools.contents import Contents
from turnwise.service.pools.edit import Edit
from turnwise.service.pools.ivf import build_ivf, code_bytes
from turnwise.service.pools.live import LivePool
from turnwise.service.pools.memory import available
from turnwise.service.pools.store import CHUNK
from turnwise.service.pools.workers import Workers

_WORTH_INDEXING = 1000
_MIN_ENTRIES = 64
_ENTRY_SHARE = 200
"""A fold writes the whole pool; so few times that an edit's part is 200 candidates at most."""


def log_is_long(pool: LivePool) -> bool:
    """Say whether reading the log takes much more than reading the pool's candidates."""
    log, size = pool.log, len(pool.contents)
    if log is None:
        return False
    entries = pool.position.version - log.base
    return entries > _MIN_ENTRIES + size // _ENTRY_SHARE or log.stored > 2 * size + CHUNK


async def fold(pool: LivePool, workers: Workers) -> None:
    """Put one entry in the place of a long log, of which one replica does it; the version stays."""
    store = pool.store
    await pool.refresh()
    if not (log_is_long(pool) and await store.may_fold(pool.key)):
        return
    position, contents = pool.position, pool.contents
    log = await store.read(pool.key)
    if log is None or (known := log.until(position)) is None:
        return
    edit = await workers.edit(lambda: Edit(contents.candidates(), contents.vectors()))
    staged = await store.stage(pool.key, edit)
    if await store.fold(pool.key, known, replace(staged, stamp=position.stamp)) != "ok":
        await store.discard(pool.key, staged.chunks)
    await pool.refresh()


def needs_index(pool: LivePool, exact_limit: int) -> bool:
    """Say whether search is exact where that is no longer cheap, or goes beside the index."""
    contents = pool.contents
    if len(contents) <= max(exact_limit, _WORTH_INDEXING) or not pool.may_be_indexed:
        return False
    return contents.base.index.kind == "flat" or contents.is_loose


async def build_index(pool: LivePool, workers: Workers) -> None:
    """Put the pool under an approximate index; up to minutes, in which the old one answers.

    Raises:
        MemoryError: There is too little. The system would not say so, but kill the process.
    """
    texts: Sequence[str] = [candidate.text for candidate in pool.contents.candidates()]
    queries = await pool.encoder.sample_queries(texts)

    def build(contents: Contents) -> Contents:
        _check_memory(contents)
        return contents.merged(
            lambda vectors: build_ivf(workers.flat(vectors), queries, progress=pool.tell)
        )

    await pool.put_under(build)


def _check_memory(contents: Contents) -> None:
    size, d = len(contents), contents.base.index.dimension
    needed = 2 * size * code_bytes(d)  # lists grow by doubling
    if contents.loose and len(contents.base.candidates):
        needed += 2 * size * d  # all in one piece, while the old pieces are searched
    if needed > (free := available()):
        raise MemoryError(
            f"an index of {size} candidates takes {needed >> 20} MB for a while, of which "
            f"{free / 2**20:.0f} are free: search goes on as it is"
        )

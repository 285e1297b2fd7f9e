"""Decides when to fold a pool's log and when to build an approximate index, and does both."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from turnwise.service.pools.memory.contents import Contents, Edit
from turnwise.service.pools.memory.flat import FlatIndex, Float16
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf, code_bytes
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.redis.records import CHUNK

if TYPE_CHECKING:
    from turnwise.service.pools.memory.local import LocalPool

_MIN_INDEXED = 1000
TAIL_SECONDS = 30.0
"""Edits that are younger stay in the log: a replica that lags by less replays them, instead of
reading the whole pool again and building its index anew."""
MIN_ENTRIES = 64
_ENTRY_SHARE = 200
"""A fold writes the whole pool, so each edit pays for writing at most 200 candidates."""


def log_is_long(pool: "LocalPool") -> bool:
    """Return whether reading the log takes much longer than reading the candidates."""
    log, size = pool.log, len(pool.contents)
    if log is None:
        return False
    entries = pool.position.version - log.base
    return entries > MIN_ENTRIES + size // _ENTRY_SHARE or log.stored > 2 * size + CHUNK


async def fold(pool: "LocalPool", workers: Workers) -> None:
    """Replace a long log, except its newest edits, by one entry, unless another replica does it.

    The version of the pool does not change.
    """
    records = pool.records
    await pool.refresh()
    if not (log_is_long(pool) and await records.lock_upkeep(pool.key)):
        return
    position, contents = pool.position, pool.contents
    await asyncio.sleep(TAIL_SECONDS)
    log = await records.read(pool.key)
    if log is None or (known := log.until(position)) is None:
        return
    with pool.memory.admitted(contents.bytes_merged, f"folding the log of pool '{pool.key.name}'"):
        edit = await workers.edit(lambda: Edit(contents.candidates(), contents.vectors()))
        staged = await records.stage(pool.key, edit)
    if await records.fold(pool.key, known, replace(staged, stamp=position.stamp)) != "ok":
        await records.discard(pool.key, staged.chunks)
    await pool.refresh()


def needs_index(pool: "LocalPool") -> bool:
    """Return whether the pool is too large for exact search, or its index is out of date."""
    contents = pool.contents
    if len(contents) <= max(pool.exact_limit, _MIN_INDEXED) or not pool.may_be_indexed:
        return False
    return contents.base.index.kind == "flat" or contents.is_due


async def build_index(pool: "LocalPool", workers: Workers, files: IndexFiles) -> None:
    """Build an approximate index, or read it; takes up to minutes, while the old index answers.

    After a restart, the saved index fits the base if the log still begins with the same entry.

    Raises:
        NotEnoughMemory: There is not enough memory for the build.
    """
    contents = pool.contents
    texts = await workers.edit(lambda: [candidate.text for candidate in contents.candidates()])
    queries = await pool.encoder.sample_queries(texts)

    fingerprint = pool.encoder.fingerprint

    def train(vectors: Float16) -> IvfIndex:
        index = build_ivf(workers.flat(vectors), queries, progress=pool.set_progress)
        if not pool.forgotten:
            files.write(pool.key, fingerprint, index)
        return index

    def build(contents: Contents) -> Contents:
        base = contents.base.index
        if isinstance(base, FlatIndex):
            saved = files.read(pool.key, fingerprint, base)
            if saved:
                return contents.with_base_index(saved)
        return contents.merge(train)

    lists = 2 * len(pool.contents) * code_bytes(pool.encoder.dimension)  # they grow by doubling
    await pool.replace_index(build, pool.contents.bytes_merged + lists)

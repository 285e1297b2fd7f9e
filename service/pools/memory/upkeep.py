"""Decides when to fold a pool's log and when to build an approximate index, and does both."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from turnwise.models.arrays import Float32
from turnwise.service.pools.encoding import Kind, draw_contexts
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.memory.flat import FlatIndex, Float16, Index
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf, code_bytes
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.redis.records import CHUNK

if TYPE_CHECKING:
    from turnwise.service.pools.memory.local import LocalPool

EXAMPLES_WIDENING = 2
"""Messages are further from the examples than the texts that tune the index: with 300,000 examples,
twice as many lists find .98 of the ten best candidates, instead of .96."""
_MIN_INDEXED = 1000
TAIL_SECONDS = 30.0
"""Edits that are younger stay in the log: a replica that lags by less replays them, instead of
reading the whole pool and building its index again."""
MIN_ENTRIES = 64
_ENTRY_SHARE = 200
"""A fold writes the whole pool, so each edit pays for writing at most 200 candidates."""


def log_is_long(pool: "LocalPool") -> bool:
    """Return whether reading the log takes much longer than reading the candidates."""
    log = pool.log
    size = len(pool.contents)
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
    position = pool.position
    contents = pool.contents
    await asyncio.sleep(TAIL_SECONDS)
    log = await records.read(pool.key)
    known = log.until(position) if log else None
    if known is None:
        return
    with pool.memory.admitted(contents.merge_bytes, f"folding the log of pool '{pool.key.name}'"):
        edit = await workers.edit(
            lambda: Edit(contents.candidates(), contents.vectors(), (), contents.examples())
        )
        staged = await records.stage(pool.key, edit)
    if await records.fold(pool.key, known, replace(staged, stamp=position.stamp)) != "ok":
        await records.discard(pool.key, staged.chunks)
    await pool.refresh()


def needs_index(pool: "LocalPool") -> bool:
    """Return whether the pool is too large for exact search, or its indexes are out of date."""
    kinds = _list_large_kinds(pool)
    if not kinds or not pool.may_be_indexed:
        return False
    contents = pool.contents
    indexes = {"candidates": contents.base.index, "examples": contents.base.index_of_examples}
    are_built = all(isinstance(indexes[kind], IvfIndex) for kind in kinds)
    return not are_built or contents.is_due


def _list_large_kinds(pool: "LocalPool") -> list[Kind]:
    """Return which vectors are too many for exact search: of candidates, of examples."""
    contents = pool.contents
    limit = max(pool.exact_limit, _MIN_INDEXED)
    sizes: dict[Kind, int] = {"candidates": len(contents), "examples": contents.example_count}
    return [kind for kind, size in sizes.items() if size > limit]


async def build_index(pool: "LocalPool", workers: Workers, files: IndexFiles) -> None:
    """Build approximate indexes, or read them; takes up to minutes, while the old ones answer.

    After a restart, a saved index fits the base if the log still begins with the same entry.

    Raises:
        NotEnoughMemory: There is not enough memory for the build.
    """
    kinds = _list_large_kinds(pool)
    queries = await _draw_queries(pool, workers, kinds)
    fingerprint = pool.encoder.fingerprint

    def make(kind: Kind, vectors: Float16) -> Index:
        flat = workers.flat(vectors)
        if kind not in kinds:
            return flat
        widening = EXAMPLES_WIDENING if kind == "examples" else 1
        index = build_ivf(flat, queries[kind], pool.set_progress, widening=widening)
        if not pool.forgotten:
            files.write(pool.key, fingerprint, index, kind)
        return index

    def read(kind: Kind, index: Index | None) -> Index | None:
        if kind in kinds and isinstance(index, FlatIndex):
            return files.read(pool.key, fingerprint, index, kind)
        return index

    def build(contents: Contents) -> Contents:
        base = contents.base
        if base.is_exact:
            index = read("candidates", base.index)
            example_index = read("examples", base.index_of_examples)
            if index is not None and (example_index is not None or "examples" not in kinds):
                return contents.with_base_indexes(index, example_index)
        return contents.merge(partial(make, "candidates"), partial(make, "examples"))

    sizes = {"candidates": len(pool.contents), "examples": pool.contents.example_count}
    vectors = sum(sizes[kind] for kind in kinds)
    lists = 2 * vectors * code_bytes(pool.encoder.dimension)  # they grow by doubling
    await pool.replace_index(build, pool.contents.merge_bytes + lists)


async def _draw_queries(
    pool: "LocalPool", workers: Workers, kinds: Sequence[Kind]
) -> dict[Kind, Float32]:
    """Return queries (m, d) to measure the recall of each index with."""
    contents = pool.contents
    contexts = await workers.edit(lambda: draw_contexts(contents.candidates()))
    queries: dict[Kind, Float32] = {}
    if "candidates" in kinds:
        queries["candidates"] = await pool.encoder.queries(contexts)
    if "examples" in kinds:
        # Utterances that are examples would be too easy to find.
        queries["examples"] = await pool.encoder.examples([context[0] for context in contexts])
    return queries

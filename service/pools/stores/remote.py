"""`RemotePool`: a pool in a candidate store. The replica keeps a sample and asks for the rest.

An edit is written to the store first, and then counted in Redis. So an edit that fails halfway may
leave some of its candidates in the pool; sending it again completes it. To replace all candidates,
the replica fills a new collection; then one command in Redis points the pool at it.
"""

import asyncio
import math
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from turnwise.service.errors import Conflict, PoolNotReady
from turnwise.service.pools.candidate import (
    Candidate,
    keep_learned,
    select_changed,
)
from turnwise.service.pools.encoding import (
    EncodingProgress,
    KnownVectors,
    add_learned,
    draw_contexts,
    encode_new,
)
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.memory.workers import Work
from turnwise.service.pools.pool import Backend, MakeBatches, Pool, Revise
from turnwise.service.pools.redis.values import (
    Collection,
    PoolKey,
    PoolMoved,
    Revision,
    StoredPool,
    not_found,
)
from turnwise.service.pools.resources import PoolResources
from turnwise.service.pools.stores import CandidateStore, Stored
from turnwise.service.pools.stores.facets import HAVING_GROUP, IS_FOLLOWER
from turnwise.service.pools.stores.new_collection import drop_unused, fill_collection
from turnwise.service.pools.stores.recall import RECALL, choose_width, find_least_scores
from turnwise.service.pools.stores.remote_view import WIDTH, RemoteView
from turnwise.service.pools.stores.rows import (
    example_rows,
    fetch_rows,
    name_examples,
    remove,
    write,
)
from turnwise.service.pools.stores.sample import Sample, SampledExamples, draw_sample
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.wire.pools import Edited, PoolInfo, PoolSettings, Removed

FEWEST = 1000
"""Size from which the recall is measured."""
_MEASURE_SECONDS = 600.0
"""Delay before the recall is measured again: an engine builds its index in the background."""
LAG_SECONDS = 3.0
"""Time until other replicas see that a pool has another collection, and until searches of a store
see an edit."""


MakeCandidates = Callable[[Mapping[str, Candidate]], Sequence[Candidate]]
"""Returns the candidates that an edit wants, from those that the pool has, by id."""


class _Plan(NamedTuple):
    """What an edit writes and removes.

    Attributes:
        batch: The candidates that it adds or replaces.
        former_rows: The ids of the rows of examples that these candidates do not have any more.
    """

    batch: CandidateBatch
    former_rows: Sequence[str]


class RemotePool(Pool):
    """A pool in a candidate store, as this replica last read it; empty before the first read.

    Edits are written one after the other, also those of several replicas.
    """

    def __init__(
        self,
        key: PoolKey,
        backend: Backend,
        newest: Revision,
        resources: PoolResources,
        store: CandidateStore,
    ) -> None:
        super().__init__(key, backend, newest, resources)
        self.store = store
        self._known: StoredPool | None = None
        self._sample: Sample | None = None
        self._examples: SampledExamples | None = None
        """None for a collection that was made before there were examples."""
        self._measured_at = -math.inf
        self._write_lock = asyncio.Lock()
        self._written = 0
        """Number of edits that this replica has written, also of those that failed halfway."""

    @property
    def revision(self) -> Revision | None:
        """The revision of the version that is here; None before the first read."""
        return self._known.revision if self._known else None

    @property
    def candidate_bytes(self) -> int:
        """Zero: the candidates are in the store, and take no memory here."""
        return 0

    @property
    def known(self) -> StoredPool:
        """The pool as Redis last described it.

        Raises:
            PoolNotReady: It has not been read yet, or is of another model.
        """
        if self._known is None or self.state != "ready":
            why = "being read"
            if self.state == "other_model":
                why = f"encoded by another model, and stays so in the store '{self.store.name}'"
            raise PoolNotReady(f"pool '{self.key.name}' is {why}")
        return self._known

    def view(self) -> RemoteView:
        """Return the newest version that is known to be acknowledged."""
        known = self.known
        sample = self._sample
        assert sample is not None  # a ready pool has one
        return RemoteView(
            self.key.name,
            known.position.version,
            self.encoder_name,
            known.revision.settings,
            known.size,
            known.collection,
            self.store,
            sample,
            self._examples,
            self._metrics,
        )

    def info(self) -> PoolInfo:
        """Return the description of the pool as clients get it."""
        known = self._known
        collection = known.collection if known else None
        return PoolInfo(
            name=self.key.name,
            version=known.position.version if known else 0,
            size=known.size if known else 0,
            index="hnsw",
            exact=False,
            recall_at_10=collection.recall if collection else None,
            width=(collection and collection.width) or WIDTH,
            encoder=self.encoder_name,
            store=self.store.name,
            model=self.encoder.name,
            fingerprint=collection.fingerprint if collection else self.encoder.fingerprint,
            state=self.state,
            created_at=known.created_at if known else 0.0,
            bytes=0,
            progress=None,
            **(known.revision.settings if known else PoolSettings())._asdict(),
        )

    def due_upkeep(self) -> Iterator[tuple[str, Work]]:
        """Yield the measurement of recall where that is due."""
        if self.needs_measuring:
            yield "measure", self.measure

    async def move_to(self, engine: CandidateStore) -> None:
        """Do nothing: the pool is in a candidate store."""

    async def upsert(
        self, candidates: Sequence[Candidate], progress: EncodingProgress | None = None
    ) -> Edited:
        """Write the candidates that differ, batch by batch, and count one edit."""
        ids = [candidate.id for candidate in candidates]
        edited = await self._edit(ids, lambda has: keep_learned(has.get, candidates), progress)
        return replace(edited, unchanged=len(candidates) - edited.upserted)

    async def revise(self, revise: Revise, ids: Sequence[str] | None = None) -> Edited:
        """Write the candidates that a function changes, batch by batch, and count one edit."""
        if ids is None:
            ids = []
            async for batch in self.view().scan():
                ids += [each.id for each in batch.candidates if revise(each) != each]
        return await self._edit(ids, lambda has: [revise(each) for each in has.values()])

    async def _edit(
        self, ids: Sequence[str], make: MakeCandidates, progress: EncodingProgress | None = None
    ) -> Edited:
        """Write the candidates that a function makes of those in the pool, and count one edit.

        Encoding takes long, so it runs without the lock. If another edit was written meanwhile, the
        candidates are made again.
        """
        known = self.known
        vectors = KnownVectors()
        written = self._written
        plan = await self._plan(known, ids, make, vectors, progress)
        async with self._writing() as newest:
            if newest.position != known.position or self._written != written:
                plan = await self._plan(newest, ids, make, vectors)
            changed = plan.batch.candidates
            if not changed:
                return Edited(newest.position.version, 0, 0, newest.size)
            await write(self.store, newest.collection.name, plan.batch)
            await self.store.remove(name_examples(newest.collection.name), plan.former_rows)
            version, size = await self._count_edit(newest)
        return Edited(version, len(changed), 0, size)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[StoredPool]:
        """Let no other edit write until the block ends; yield the newest version of the pool.

        Without that, the size that one edit counts could lack what another one adds, and one could
        remove the rows of examples that another one has just written.
        """
        async with self._write_lock, self.records.lock_edits(self.key):
            await self.refresh()
            try:
                yield self.known
            finally:
                self._written += 1

    async def _plan(
        self,
        known: StoredPool,
        ids: Sequence[str],
        make: MakeCandidates,
        vectors: KnownVectors,
        progress: EncodingProgress | None = None,
    ) -> _Plan:
        """Return what an edit changes in the present candidates; new vectors go into `vectors`."""
        collection = known.collection.name
        rows = await fetch_rows(self.store, collection, ids)
        present = {id: row.candidate for id, row in rows.items()}
        changed = select_changed(present.get, make(present))
        self._check_examples(changed)
        replaced = [present[each.id] for each in changed if each.id in present]
        rows_before = {row.id for row in example_rows(replaced)}
        rows_after = {row.id for row in example_rows(changed)}
        kept = sorted(rows_before & rows_after)
        kept_rows = await fetch_rows(self.store, name_examples(collection), kept)
        vectors.candidates.update(_vectors_by_text(rows))
        vectors.examples.update(_vectors_by_text(kept_rows))
        batch = await encode_new(self.encoder, self._workers, changed, vectors, progress)
        return _Plan(batch, former_rows=sorted(rows_before - rows_after))

    async def remove(self, ids: Iterable[str]) -> Removed:
        """Remove the candidates, and count one edit."""
        wanted = list(dict.fromkeys(ids))
        async with self._writing() as known:
            has = await fetch_rows(self.store, known.collection.name, wanted)
            gone = [stored.candidate for stored in has.values()]
            if not gone:
                return Removed(known.position.version, 0, len(wanted), known.size)
            await remove(self.store, known.collection.name, gone)
            version, size = await self._count_edit(known)
        return Removed(version, len(gone), len(wanted) - len(gone), size)

    async def replace(self, batches: MakeBatches) -> Edited:
        """Fill a new collection, and point the pool at it in one version."""
        await self.refresh()
        known = self.known
        size = 0
        changed = 0

        async def counted() -> AsyncIterator[CandidateBatch]:
            nonlocal size, changed
            async for batch in batches():
                # An empty pool need not be asked.
                ids = [candidate.id for candidate in batch.candidates] if known.size else []
                rows = await fetch_rows(self.store, known.collection.name, ids)
                has = {id: row.candidate for id, row in rows.items()}
                learned = await add_learned(self.encoder, self._workers, batch, has.get)
                size += len(learned.candidates)
                changed += len(select_changed(has.get, learned.candidates))
                yield learned

        filled = await fill_collection(self.key, self.store, self.encoder, counted())
        await self._switch_to(filled, known, size)
        await self.refresh()
        return Edited(self.known.position.version, changed, size - changed, size)

    async def _switch_to(self, filled: Collection, read: StoredPool, size: int) -> None:
        """Point the pool at another collection, and drop the one before.

        Raises:
            Conflict: The pool was edited since it was read; the new collection is dropped.
        """
        move = partial(self.records.move, self.key, store=self.store.name, collection=filled)
        try:
            is_moved = await move(read.position, None, size=size)
        except BaseException:
            await drop_unused(self.records, self.key, self.store, filled.name)
            raise
        if not is_moved:
            await self.store.drop(filled.name)
            raise Conflict(f"pool '{self.key.name}' was edited meanwhile; nothing was changed")
        await self._resources.count_change()
        # Other replicas read the pool again before the old collection is dropped.
        await asyncio.sleep(LAG_SECONDS)
        await self.store.drop(read.collection.name)

    async def measure(self) -> None:
        """Measure the recall on running queries, and choose how wide all replicas search.

        The exact search to compare with scans the whole pool.
        """
        known = self.known
        sample = self.view().sample.rows
        if not await self.records.lock_upkeep(self.key):
            return
        self._measured_at = monotonic()
        queries = await self.encoder.queries(draw_contexts(sample.candidates))
        name = known.collection.name
        least = await find_least_scores(self.store, name, queries)
        await asyncio.sleep(LAG_SECONDS)  # searches see the last edits
        width, recall = await choose_width(self.store, name, queries, least)
        measured = replace(known.collection, width=width, recall=recall, measured=known.size)
        await self.records.note_recall(self.key, measured)
        await self._resources.count_change()
        await self.refresh()

    @property
    def needs_measuring(self) -> bool:
        """Whether the recall is unknown, was too low, or was measured on a much smaller pool."""
        known = self._known
        if self.state != "ready" or known is None or known.size < FEWEST:
            return False
        collection = known.collection
        is_good = (collection.recall or 0.0) >= RECALL
        is_current = known.size <= 2 * collection.measured
        if is_good and is_current:
            return False
        return monotonic() - self._measured_at > _MEASURE_SECONDS

    async def _read_new(self) -> None:
        known = await self.records.stored(self.key)
        if known is None:
            raise not_found(self.key)
        if known.revision.store_name != self.store.name:
            raise PoolMoved(f"pool '{self.key.name}' was moved to another candidate store just now")
        if known.collection.fingerprint != self.encoder.fingerprint:
            self._known = known
            self.state = "other_model"
            return
        # Both at once: the former collection of a pool that was replaced is dropped soon.
        sample, examples = await asyncio.gather(
            self._read_sample(known), self._read_examples(known)
        )
        # Only now: a pool whose revision is known would not be read again.
        self._known = known
        self._sample = sample
        self._examples = examples
        self.state = "ready"
        self._report_size(known.size, known.position.version)

    async def _read_sample(self, known: StoredPool) -> Sample:
        """Return a sample of the candidates: the present one, if it still represents them."""
        name = known.collection.name
        if self._sample and self._sample.represents(name, known.size):
            return self._sample
        return await draw_sample(self.store, name, known.size, self.encoder.dimension)

    async def _read_examples(self, known: StoredPool) -> SampledExamples | None:
        """Count the examples, and draw a sample of them; None if there is no collection of them."""
        examples = self._examples
        if self._known and self._known.position == known.position:
            return examples
        name = name_examples(known.collection.name)
        is_known = examples is not None and examples.sample.collection == name
        if not is_known and name not in await self.store.collections():
            return None
        count, with_group, followers = await asyncio.gather(
            self.store.count(name),
            self.store.count(known.collection.name, HAVING_GROUP),
            self.store.count(known.collection.name, IS_FOLLOWER),
        )
        if examples and examples.sample.represents(name, count):
            sample = examples.sample
        else:
            sample = await draw_sample(self.store, name, count, self.encoder.dimension)
        return SampledExamples(sample, count, with_group > 0, followers > 0)

    def _check_examples(self, candidates: Iterable[Candidate]) -> None:
        """Raise Conflict if the collection of the pool is too old for what candidates have."""
        if self._examples is None and any(c.all_examples or c.group or c.body for c in candidates):
            raise Conflict(
                f"pool '{self.key.name}' is in a collection that was made before there were "
                "examples, groups and bodies: `turnwise pool snapshot`, then `restore` makes a "
                "new one"
            )

    async def _count_edit(self, known: StoredPool) -> tuple[int, int]:
        """Count an edit; return the version and the size after it.

        Raises:
            PoolMoved: The pool is in another collection now, which lacks the edit.
        """
        size = await self.store.count(known.collection.name)
        version = await self.records.count_edit(self.key, known.collection.name, size)
        if version is None:
            raise PoolMoved(f"pool '{self.key.name}' was moved or replaced meanwhile; try again")
        await self._resources.count_change()
        await self.refresh()
        return version, size


def _vectors_by_text(stored: Mapping[str, Stored]) -> dict[str, Float16]:
    return {each.candidate.text: each.vector for each in stored.values()}

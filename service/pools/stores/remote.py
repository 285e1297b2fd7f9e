"""`RemotePool`: a pool in a candidate store. The replica keeps a sample and asks for the rest.

An edit is written to the store first, and then counted in Redis. So an edit that fails halfway may
leave some of its candidates in the pool; sending it again completes it. To replace all candidates,
the replica fills a new collection; then one command in Redis lets the pool stand for it.
"""

import asyncio
import math
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from time import monotonic

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Spread
from turnwise.service.errors import CandidateNotFound, Conflict, PoolNotReady
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import Progress, encode_unknown
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.memory.contents import Hit, Match, Segment
from turnwise.service.pools.memory.flat import FlatIndex, Float16
from turnwise.service.pools.memory.workers import Work, Workers
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.redis.values import (
    Collection,
    Head,
    PoolKey,
    PoolMoved,
    StoredPool,
    not_found,
)
from turnwise.service.pools.stores import CandidateStore, Stored
from turnwise.service.pools.stores.new_collection import filled_collection
from turnwise.service.pools.stores.store import SCANNED
from turnwise.service.pools.view import Batch
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import Edited, PoolInfo, PoolSettings, Removed

WIDTH = 256
"""Candidates that the index looks at in a search until its recall was measured."""
_WIDTHS = (64, 128, 256, 512, 1024)
_RECALL = 0.99
"""Recall at which the narrowest width is chosen."""
_TOP = 10
FEWEST = 1000
"""Size from which the recall is measured."""
_MEASURE_SECONDS = 600.0
"""Delay before the recall is measured again: an engine builds its index in the background."""
_ROUNDING = 1e-4
LAG_SECONDS = 3.0
"""Time in which other replicas see that a pool stands for another collection, and in which the
searches of a store see an edit."""
_SAMPLE = 2000
"""Candidates that a replica draws: a standard deviation of their scores is within 2 %."""


class RemotePool(Pool):
    """A pool in a candidate store, as this replica last read it; empty before the first read."""

    def __init__(
        self,
        key: PoolKey,
        backend: Backend,
        store: CandidateStore,
        workers: Workers,
        metrics: Metrics,
        *,
        newest: Head,
        count_change: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(key, backend, metrics, newest, count_change)
        self.store = store
        self._workers = workers
        self._known: StoredPool | None = None
        self._sample: Segment | None = None
        self._sampled = "", 0
        """The collection from which the sample was drawn, and the size of the pool then."""
        self._measured_at = -math.inf

    @property
    def head(self) -> Head | None:
        """The head of the version that is here; None before the first read."""
        return self._known.head if self._known else None

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

    def view(self) -> "RemoteView":
        """Return the newest version that is known to be acknowledged."""
        known = self.known
        sample = self._sample
        assert sample is not None  # noqa: S101 - a ready pool has one
        return RemoteView(
            self.key.name,
            known.position.version,
            self.encoder_name,
            known.head.settings,
            known.size,
            known.collection,
            self.store,
            sample,
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
            **(known.head.settings if known else PoolSettings())._asdict(),
        )

    def due_upkeep(self) -> Iterator[tuple[str, Work]]:
        """Yield the measurement of recall where that is due."""
        if self.needs_measuring:
            yield "measure", self.measure

    async def move_to(self, engine: CandidateStore) -> None:
        """Do nothing: the pool is in a candidate store."""

    async def upsert(
        self, candidates: Sequence[Candidate], progress: Progress | None = None
    ) -> Edited:
        """Write the candidates that differ, batch by batch, and count one edit."""
        known = self.known
        vectors = dict[str, Float16]()
        changed = await self._changed(known, candidates, vectors)
        if not changed:
            return Edited(known.position.version, 0, len(candidates), known.size)
        for start in range(0, len(changed), SCANNED):
            batch = changed[start : start + SCANNED]
            texts = [candidate.text for candidate in batch]
            rows = await encode_unknown(self.encoder, self._workers, texts, vectors)
            await self.store.upsert(known.collection.name, batch, rows)
            if progress:
                progress(start + len(batch), len(changed))
        version, size = await self._counted(known)
        return Edited(version, len(changed), len(candidates) - len(changed), size)

    async def remove(self, ids: Iterable[str]) -> Removed:
        """Remove the candidates, and count one edit."""
        known = self.known
        wanted = list(dict.fromkeys(ids))
        gone = list(await self.store.fetch(known.collection.name, wanted))
        if not gone:
            return Removed(known.position.version, 0, len(wanted), known.size)
        await self.store.remove(known.collection.name, gone)
        version, size = await self._counted(known)
        return Removed(version, len(gone), len(wanted) - len(gone), size)

    async def replace(self, batches: AsyncIterable[Batch]) -> Edited:
        """Fill a new collection, and let the pool stand for it in one version."""
        known = self.known
        size = 0
        changed = 0

        async def counted() -> AsyncIterator[Batch]:
            nonlocal size, changed
            async for batch in batches:
                size += len(batch.candidates)
                changed += len(await self._changed(known, batch.candidates, {}))
                yield batch

        filled = await filled_collection(self.key, self.store, self.encoder, counted())
        await self._stand_for(filled, known, size)
        await self.refresh()
        return Edited(self.known.position.version, changed, size - changed, size)

    async def _stand_for(self, filled: Collection, read: StoredPool, size: int) -> None:
        """Let the pool stand for another collection, and drop the one before.

        Raises:
            Conflict: The pool was edited since it was read; the new collection is dropped.
        """
        if not await self.records.move(
            self.key, read.position, None, store=self.store.name, collection=filled, size=size
        ):
            await self.store.drop(filled.name)
            raise Conflict(f"pool '{self.key.name}' was edited meanwhile; nothing was changed")
        await self._count_change()  # so that other replicas read the pool again before the drop
        await asyncio.sleep(LAG_SECONDS)
        await self.store.drop(read.collection.name)

    async def measure(self) -> None:
        """Choose how wide the index searches, by its recall on running queries; others see it.

        It compares with an exact search, for which it scans the whole pool.
        """
        known = self.known
        sample = self.view().sample
        if not await self.records.lock_upkeep(self.key):
            return
        self._measured_at = monotonic()
        texts = [candidate.text for candidate in sample.candidates]
        queries = await self.encoder.sample_queries(texts)
        exact = np.full((len(queries), _TOP), -np.inf, np.float32)  # scores, best last
        async for stored in self.store.scan(known.collection.name):
            scores = queries @ _batch(stored).vectors.astype(np.float32).T
            exact = np.sort(np.hstack([exact, scores]))[:, -_TOP:]
        await asyncio.sleep(LAG_SECONDS)  # searches see the last edits
        found: dict[int, float] = {}
        for width in _WIDTHS:
            hits = [
                await self.store.search(known.collection.name, query, _TOP, width, None)
                for query in queries
            ]
            found[width] = _recall(queries, exact[:, 0], hits)
            if found[width] >= _RECALL:
                break
        width = max(found, key=lambda width: (found[width], -width))
        measured = replace(known.collection, width=width, recall=found[width], measured=known.size)
        await self.records.note_recall(self.key, measured)
        await self._count_change()
        await self.refresh()

    @property
    def needs_measuring(self) -> bool:
        """Whether the recall is not known, was too low, or is that of a much smaller pool."""
        known = self._known
        if self.state != "ready" or known is None or known.size < FEWEST:
            return False
        collection = known.collection
        good = (collection.recall or 0.0) >= _RECALL and known.size <= 2 * collection.measured
        return not good and monotonic() - self._measured_at > _MEASURE_SECONDS

    async def _read_new(self) -> None:
        known = await self.records.stored(self.key)
        if known is None:
            raise not_found(self.key)
        if known.head.store_name != self.store.name:
            raise PoolMoved(f"pool '{self.key.name}' was moved to another candidate store just now")
        if known.collection.fingerprint != self.encoder.fingerprint:
            self._known = known
            self.state = "other_model"
            return
        name, size = self._sampled
        if name != known.collection.name or not size / 2 <= known.size <= size * 2:
            self._sample = await self._drawn(known)
            self._sampled = known.collection.name, known.size
        # Only now: a pool whose head is known would not be read again.
        self._known = known
        self.state = "ready"
        self._report_size(known.size, known.position.version)

    async def _drawn(self, known: StoredPool) -> Segment:
        drawn: list[Stored] = []
        async with aclosing(self.store.scan(known.collection.name)) as batches:
            async for batch in batches:
                drawn += batch
                if len(drawn) >= _SAMPLE:
                    break
        sample = _batch(drawn, self.encoder.dimension)
        return Segment(tuple(sample.candidates), FlatIndex(sample.vectors))

    async def _changed(
        self, known: StoredPool, candidates: Sequence[Candidate], vectors: dict[str, Float16]
    ) -> list[Candidate]:
        """Return the candidates that the pool lacks; add the vectors of texts that it has."""
        if not known.size:
            return list(candidates)
        changed: list[Candidate] = []
        for start in range(0, len(candidates), SCANNED):
            batch = candidates[start : start + SCANNED]
            ids = [candidate.id for candidate in batch]
            has = await self.store.fetch(known.collection.name, ids)
            vectors |= {stored.candidate.text: stored.vector for stored in has.values()}
            changed += [c for c in batch if c.id not in has or has[c.id].candidate != c]
        return changed

    async def _counted(self, known: StoredPool) -> tuple[int, int]:
        """Count an edit; return the version and the size after it.

        Raises:
            PoolMoved: The pool is in another collection now, which lacks the edit.
        """
        size = await self.store.count(known.collection.name)
        version = await self.records.count_edit(self.key, known.collection.name, size)
        if version is None:
            raise PoolMoved(f"pool '{self.key.name}' was moved or replaced meanwhile; try again")
        await self._count_change()
        await self.refresh()
        return version, size


@dataclass(frozen=True, slots=True)
class RemoteView:
    """A pool in a candidate store, as one request searches it."""

    name: str
    version: int
    encoder_name: EncoderName
    settings: PoolSettings
    size: int
    collection: Collection
    store: CandidateStore
    sample: Segment
    metrics: Metrics
    found: dict[str, Float16] = field(default_factory=dict)
    """Vectors (d,) of the candidates that were found, by id."""

    async def search(self, query: Float32, top_k: int, where: Filter | None = None) -> list[Hit]:
        """Ask the store for more, as long as the filter leaves out some of what it finds."""
        if query.shape != (self.sample.index.dimension,) or not np.isfinite(query).all():
            raise ValueError("the query is not a finite vector of the pool's dimension")
        width = self.collection.width or WIDTH
        k = top_k
        condition = where.condition if where else None
        with self.metrics.stage("search"):
            while True:
                k = min(k, self.store.deepest)
                stored = await self.store.search(
                    self.collection.name, query, k, max(width, k), condition
                )
                kept = [s for s in stored if not where or where.matches(s.candidate.metadata)]
                if len(kept) >= top_k or len(stored) < k or k == self.store.deepest:
                    break
                k *= 4
        self.found.update({stored.candidate.id: stored.vector for stored in kept})
        return _hits(query, kept)[:top_k]

    async def spread(self, query: Float32, where: Filter | None = None) -> Spread:
        """Return the scores, as the sample of the pool says."""
        candidates = self.size
        if where:
            matching = int(np.bitwise_count(self.sample.match(where)).sum())
            candidates = round(candidates * matching / max(1, len(self.sample.candidates)))
        return self.sample.moments.spread(query, max(2, candidates))

    @property
    def has_examples(self) -> bool:
        """False: a candidate store keeps no vectors of examples yet."""
        return False

    async def search_examples(
        self,
        said: Float32,  # noqa: ARG002
        top_k: int,  # noqa: ARG002
        where: Filter | None = None,  # noqa: ARG002
    ) -> list[Hit]:
        """Return nothing."""
        return []

    async def best_examples(
        self,
        said: Float32,  # noqa: ARG002
        ids: Sequence[str],
    ) -> list[Match | None]:
        """Return None for each candidate."""
        return [None] * len(ids)

    async def example_spread(
        self,
        said: Float32,  # noqa: ARG002
        where: Filter | None = None,  # noqa: ARG002
    ) -> Spread:
        """Return the spread of no scores."""
        return Spread(0.0, 0.0, 2)

    async def groups_of(self, texts: Iterable[str]) -> frozenset[str]:  # noqa: ARG002
        """Return no groups."""
        return frozenset()

    async def fetch(self, ids: Sequence[str]) -> list[Candidate | None]:
        """Return k candidates by their ids."""
        found = await self.store.fetch(self.collection.name, ids)
        return [found[each].candidate if each in found else None for each in ids]

    async def vectors(self, ids: Sequence[str]) -> Float32:
        """Return the vectors (k, d) of k candidates, those that were not found from the store."""
        if missing := [id for id in ids if id not in self.found]:  # noqa: A001 - the field's name
            fetched = await self.store.fetch(self.collection.name, missing)
            self.found.update({id: stored.vector for id, stored in fetched.items()})  # noqa: A001
        for id in ids:  # noqa: A001
            if id not in self.found:
                raise CandidateNotFound(f"the pool has no candidate '{id}'")
        rows = np.array([self.found[id] for id in ids], np.float32)  # noqa: A001
        return rows.reshape(len(ids), self.sample.index.dimension)

    async def scan(self) -> AsyncIterator[Batch]:
        """Yield all candidates with their vectors in batches. The first batch is empty."""
        yield _batch([], self.sample.index.dimension)
        async for stored in self.store.scan(self.collection.name):
            yield _batch(stored)


def _batch(stored: Sequence[Stored], dimension: int = 0) -> Batch:
    if not stored:
        nothing = np.empty((0, dimension), np.float16)
        return Batch([], nothing, nothing)
    vectors = np.stack([one.vector for one in stored])
    return Batch([one.candidate for one in stored], vectors, vectors[:0])


def _hits(query: Float32, stored: Sequence[Stored]) -> list[Hit]:
    if not stored:
        return []
    batch = _batch(stored)
    scores = batch.vectors.astype(np.float64) @ query.astype(np.float64)
    hits = map(Hit, batch.candidates, scores.astype(np.float32).tolist())
    return sorted(hits, key=lambda hit: (-hit.score, hit.candidate.id))


def _recall(queries: Float32, least: Float32, found: Sequence[Sequence[Stored]]) -> float:
    """Return the share of the exact top candidates that were found.

    Args:
        queries: (m, d).
        least: (m,) the lowest score of the exact top candidates of each query.
        found: What was found for each query.
    """
    shares = [
        np.count_nonzero(_batch(stored, len(query)).vectors @ query >= score - _ROUNDING) / _TOP
        for query, score, stored in zip(queries, least, found, strict=True)
    ]
    return float(np.mean(shares))

"""`RemotePool`: a pool in a candidate store. The replica keeps a sample and asks for the rest.

An edit is written to the store first, and then counted in Redis. So an edit that fails halfway may
leave some of its candidates in the pool; sending it again completes it. To replace all candidates,
the replica fills a new collection; then one command in Redis points the pool at it.
"""

import asyncio
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Spread
from turnwise.models.texts import fold_text
from turnwise.service.errors import CandidateNotFound, Conflict, PoolNotReady
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import EncodingProgress, encode_unknown
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.memory.flat import FlatIndex, Float16
from turnwise.service.pools.memory.segment import Hit, Match, Segment
from turnwise.service.pools.memory.workers import Work, Workers
from turnwise.service.pools.pool import Backend, Pool, Revise
from turnwise.service.pools.redis.values import (
    Collection,
    PoolKey,
    PoolMoved,
    Revision,
    StoredPool,
    not_found,
)
from turnwise.service.pools.stores import CandidateStore, Stored
from turnwise.service.pools.stores.facets import HAVING_GROUP, having_texts
from turnwise.service.pools.stores.new_collection import filled_collection
from turnwise.service.pools.stores.rows import example_rows, name_examples, remove, write
from turnwise.service.pools.stores.store import SCANNED
from turnwise.service.pools.view import CandidateBatch
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
"""Time until other replicas see that a pool has another collection, and until searches of a store
see an edit."""
_SAMPLE = 2000
"""Rows that a replica draws of a collection: a standard deviation of their scores is within 2 %."""
_MOST_WORDINGS = 100
"""Candidates among which `groups_of` looks for the groups of texts."""


class Sample(NamedTuple):
    """A sample of the rows of a collection.

    Attributes:
        collection: Name of the collection.
        size: Number of its rows when they were drawn.
        rows: The rows that were drawn.
    """

    collection: str
    size: int
    rows: Segment

    def stands_for(self, collection: str, size: int) -> bool:
        """Return whether it still represents a collection, which has this size now."""
        return self.collection == collection and self.size / 2 <= size <= self.size * 2

    def spread(self, query: Float32, size: int, where: Filter | None) -> Spread:
        """Return the scores of a query (d,) over the rows of a collection that a filter matches."""
        if where:
            matching = int(np.bitwise_count(self.rows.match(where)).sum())
            size = round(size * matching / max(1, len(self.rows.candidates)))
        return self.rows.moments.spread(query, max(2, size))


class Examples(NamedTuple):
    """The examples and groups of a pool in a store, as a replica last counted them.

    Attributes:
        sample: Some of the examples.
        size: Number of all examples.
        has_groups: Whether any candidate has a group.
    """

    sample: Sample
    size: int
    has_groups: bool


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
        newest: Revision,
        count_change: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(key, backend, metrics, newest, count_change)
        self.store = store
        self._workers = workers
        self._known: StoredPool | None = None
        self._sample: Sample | None = None
        self._examples: Examples | None = None
        """None for a collection that was made before there were examples."""
        self._measured_at = -math.inf

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

    def view(self) -> "RemoteView":
        """Return the newest version that is known to be acknowledged."""
        known = self.known
        sample = self._sample
        assert sample is not None  # noqa: S101 - a ready pool has one
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
        return await self._write(candidates, progress, keeps_learned=True)

    async def _write(
        self,
        candidates: Sequence[Candidate],
        progress: EncodingProgress | None = None,
        *,
        keeps_learned: bool,
    ) -> Edited:
        known = self.known
        has = await self._find(known, candidates)
        if keeps_learned:
            candidates = _keep_learned(has, candidates)
        changed = _select_changed(has, candidates)
        if not changed:
            return Edited(known.position.version, 0, len(candidates), known.size)
        self._check_examples(changed)
        examples = name_examples(known.collection.name)
        before = example_rows(has[each.id].candidate for each in changed if each.id in has)
        after = {row.id for row in example_rows(changed)}
        kept = await self._fetch(examples, [row.id for row in before if row.id in after])
        vectors = _vectors_by_text(has)
        example_vectors = _vectors_by_text(kept)
        for start in range(0, len(changed), SCANNED):
            batch = await self._encode(changed[start : start + SCANNED], vectors, example_vectors)
            await write(self.store, known.collection.name, batch)
            if progress:
                progress(start + len(batch.candidates), len(changed))
        await self.store.remove(examples, [row.id for row in before if row.id not in after])
        version, size = await self._count_edit(known)
        return Edited(version, len(changed), len(candidates) - len(changed), size)

    async def _encode(
        self,
        candidates: Sequence[Candidate],
        vectors: dict[str, Float16],
        example_vectors: dict[str, Float16],
    ) -> CandidateBatch:
        """Return candidates with their vectors; those of known texts are not encoded again."""
        texts = [candidate.text for candidate in candidates]
        said = [text for candidate in candidates for text in candidate.all_examples]
        return CandidateBatch(
            candidates,
            await encode_unknown(self.encoder, self._workers, texts, vectors),
            await encode_unknown(
                self.encoder, self._workers, said, example_vectors, kind="examples"
            ),
        )

    async def revise(self, revise: Revise, ids: Sequence[str] | None = None) -> Edited:
        """Write the candidates that a function changes, batch by batch, and count one edit."""
        changed: list[Candidate] = []
        if ids is None:
            async for batch in self.view().scan():
                changed += _revise(revise, batch.candidates)
        else:
            has = await self._fetch(self.known.collection.name, ids)
            changed += _revise(revise, [stored.candidate for stored in has.values()])
        return await self._write(changed, keeps_learned=False)

    async def remove(self, ids: Iterable[str]) -> Removed:
        """Remove the candidates, and count one edit."""
        known = self.known
        wanted = list(dict.fromkeys(ids))
        has = await self._fetch(known.collection.name, wanted)
        gone = [stored.candidate for stored in has.values()]
        if not gone:
            return Removed(known.position.version, 0, len(wanted), known.size)
        await remove(self.store, known.collection.name, gone)
        version, size = await self._count_edit(known)
        return Removed(version, len(gone), len(wanted) - len(gone), size)

    async def replace(self, batches: AsyncIterable[CandidateBatch]) -> Edited:
        """Fill a new collection, and point the pool at it in one version."""
        known = self.known
        size = 0
        changed = 0

        async def counted() -> AsyncIterator[CandidateBatch]:
            nonlocal size, changed
            async for batch in batches:
                size += len(batch.candidates)
                has = await self._find(known, batch.candidates)
                changed += len(_select_changed(has, batch.candidates))
                yield batch

        filled = await filled_collection(self.key, self.store, self.encoder, counted())
        await self._switch_to(filled, known, size)
        await self.refresh()
        return Edited(self.known.position.version, changed, size - changed, size)

    async def _switch_to(self, filled: Collection, read: StoredPool, size: int) -> None:
        """Point the pool at another collection, and drop the one before.

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
        sample = self.view().sample.rows
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
        """Whether the recall is unknown, was too low, or was measured on a much smaller pool."""
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
        if self._sample and self._sample.stands_for(name, known.size):
            return self._sample
        return await self._draw(name, known.size)

    async def _read_examples(self, known: StoredPool) -> Examples | None:
        """Count the examples, and draw a sample of them; None if there is no collection of them."""
        examples = self._examples
        if self._known and self._known.position == known.position:
            return examples
        name = name_examples(known.collection.name)
        is_known = examples is not None and examples.sample.collection == name
        if not is_known and name not in await self.store.collections():
            return None
        count, with_group = await asyncio.gather(
            self.store.count(name), self.store.count(known.collection.name, HAVING_GROUP)
        )
        if examples and examples.sample.stands_for(name, count):
            sample = examples.sample
        else:
            sample = await self._draw(name, count)
        return Examples(sample, count, with_group > 0)

    async def _draw(self, collection: str, size: int) -> Sample:
        drawn: list[Stored] = []
        if size:
            async with aclosing(self.store.scan(collection)) as batches:
                async for batch in batches:
                    drawn += batch
                    if len(drawn) >= _SAMPLE:
                        break
        sample = _batch(drawn, self.encoder.dimension)
        rows = Segment(tuple(sample.candidates), FlatIndex(sample.vectors))
        return Sample(collection, size, rows)

    async def _find(self, known: StoredPool, candidates: Sequence[Candidate]) -> dict[str, Stored]:
        """Return those of some candidates that the pool has; an empty pool needs no call."""
        ids = [candidate.id for candidate in candidates] if known.size else []
        return await self._fetch(known.collection.name, ids)

    async def _fetch(self, collection: str, ids: Sequence[str]) -> dict[str, Stored]:
        """Return those of some rows that a collection has."""
        has: dict[str, Stored] = {}
        for start in range(0, len(ids), SCANNED):
            has |= await self.store.fetch(collection, ids[start : start + SCANNED])
        return has

    def _check_examples(self, candidates: Iterable[Candidate]) -> None:
        """Raise Conflict if candidates have what the collection of the pool cannot hold."""
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
    sample: Sample
    examples: Examples | None
    """None for a collection that was made before there were examples."""
    metrics: Metrics
    found: dict[str, Stored] = field(default_factory=dict)
    """The candidates that were found, and the rows of examples, by id."""

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return self.sample.rows.index.dimension

    async def search(self, query: Float32, top_k: int, where: Filter | None = None) -> list[Hit]:
        """Ask the store for more, as long as the filter leaves out some of what it finds."""
        kept: list[Stored] = []
        with self.metrics.stage("search"):
            async with aclosing(self._search(self.collection.name, query, top_k, where)) as found:
                async for kept in found:
                    if len(kept) >= top_k:
                        break
        self._remember(kept)
        return _hits(query, kept)[:top_k]

    async def _search(
        self, collection: str, query: Float32, k: int, where: Filter | None
    ) -> AsyncGenerator[list[Stored]]:
        """Yield the best rows that a filter matches, more each time, until there are no more."""
        if query.shape != (self.dimension,) or not np.isfinite(query).all():
            raise ValueError("the query is not a finite vector of the pool's dimension")
        width = self.collection.width or WIDTH
        condition = where.condition if where else None
        while True:
            k = min(k, self.store.deepest)
            stored = await self.store.search(collection, query, k, max(width, k), condition)
            yield [s for s in stored if not where or where.matches(s.candidate.metadata)]
            if len(stored) < k or k == self.store.deepest:
                return
            k *= 4

    async def spread(self, query: Float32, where: Filter | None = None) -> Spread:
        """Return the scores, as the sample of the pool says."""
        return self.sample.spread(query, self.size, where)

    @property
    def has_examples(self) -> bool:
        """Whether any candidate has examples."""
        return self.examples is not None and self.examples.size > 0

    async def search_examples(
        self, said: Float32, top_k: int, where: Filter | None = None
    ) -> list[Hit]:
        """Ask the store for more, as long as it finds several examples of one candidate."""
        if self.examples is None:
            return []
        hits: list[Hit] = []
        collection = self.examples.sample.collection
        with self.metrics.stage("search"):
            async with aclosing(self._search(collection, said, 2 * top_k, where)) as found:
                async for rows in found:
                    hits = await self._hits_of(said, rows)
                    if len(hits) >= top_k:
                        break
        return hits[:top_k]

    async def _hits_of(self, said: Float32, rows: Sequence[Stored]) -> list[Hit]:
        """Return the candidates of rows of examples by their best row, best first."""
        self._remember(rows)
        await self._look_up(self.collection.name, [row.candidate.group or "" for row in rows])
        hits: dict[str, Hit] = {}
        for row, score, _ in _hits(said, rows):
            candidate = self.found[row.group].candidate if row.group in self.found else None
            if candidate and row.text in candidate.all_examples:
                hits.setdefault(candidate.id, Hit(candidate, score, Match(score, row.text)))
        return _best_first(hits.values())

    async def best_examples(self, said: Float32, ids: Sequence[str]) -> list[Match | None]:
        """Return the best example of each of k candidates, those not found from the store."""
        if self.examples is None:
            return [None] * len(ids)
        await self._look_up(self.collection.name, ids)
        candidates = [self.found[each].candidate for each in ids if each in self.found]
        await self._look_up(
            self.examples.sample.collection, [row.id for row in example_rows(candidates)]
        )
        return [self._best_example(said, each) for each in ids]

    def _best_example(self, said: Float32, id: str) -> Match | None:  # noqa: A002 - the field's name
        if id not in self.found:
            return None
        rows = example_rows([self.found[id].candidate])
        hits = _hits(said, [self.found[row.id] for row in rows if row.id in self.found])
        return Match(hits[0].score, hits[0].candidate.text) if hits else None

    async def example_spread(self, said: Float32, where: Filter | None = None) -> Spread:
        """Return the cosines, as the sample of the examples says."""
        assert self.examples  # noqa: S101 - the pool has examples
        return self.examples.sample.spread(said, self.examples.size, where)

    async def groups_of(self, texts: Iterable[str]) -> frozenset[str]:
        """Return the groups of the candidates with these texts, as `fold_text` gives them."""
        wanted = frozenset(texts)
        if not wanted or self.examples is None or not self.examples.has_groups:
            return frozenset()
        found = await self.store.search(
            self.collection.name,
            np.ones(self.dimension, np.float32),  # any vector will do: the condition leaves few
            _MOST_WORDINGS,
            _MOST_WORDINGS,
            having_texts(wanted),
        )
        candidates = [stored.candidate for stored in found]
        return frozenset(c.group for c in candidates if c.group and fold_text(c.text) in wanted)

    async def fetch(self, ids: Sequence[str]) -> list[Candidate | None]:
        """Return k candidates by their ids, as searches see them."""
        await self._look_up(self.collection.name, ids)
        return [self.found[each].candidate if each in self.found else None for each in ids]

    async def vectors(self, ids: Sequence[str]) -> Float32:
        """Return the vectors (k, d) of k candidates, those that were not found from the store."""
        await self._look_up(self.collection.name, ids, newest=True)
        for each in ids:
            if each not in self.found:
                raise CandidateNotFound(f"the pool has no candidate '{each}'")
        rows = np.array([self.found[each].vector for each in ids], np.float32)
        return rows.reshape(len(ids), self.dimension)

    async def scan(self) -> AsyncIterator[CandidateBatch]:
        """Yield all candidates with their vectors in batches. The first batch is empty."""
        yield _batch([], self.dimension)
        async for stored in self.store.scan(self.collection.name):
            batch = _batch(stored)
            rows = [row.id for row in example_rows(batch.candidates)]
            if self.examples is None or not rows:
                yield batch
                continue
            found = await self.store.fetch(self.examples.sample.collection, rows)
            if not found.keys() >= {*rows}:
                raise Conflict(f"pool '{self.name}' was edited while it was read; try again")
            yield batch._replace(examples=np.stack([found[each].vector for each in rows]))

    def _remember(self, stored: Iterable[Stored]) -> None:
        self.found.update({each.candidate.id: each for each in stored})

    async def _look_up(self, collection: str, ids: Iterable[str], *, newest: bool = False) -> None:
        """Fetch the rows that were not found yet."""
        missing = [each for each in dict.fromkeys(ids) if each not in self.found]
        if missing:
            fetched = await self.store.fetch(collection, missing, newest=newest)
            self._remember(fetched.values())


def _revise(revise: Revise, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that a function changes, as it changes them."""
    pairs = [(candidate, revise(candidate)) for candidate in candidates]
    return [revised for candidate, revised in pairs if revised != candidate]


def _batch(stored: Sequence[Stored], dimension: int = 0) -> CandidateBatch:
    if not stored:
        nothing = np.empty((0, dimension), np.float16)
        return CandidateBatch([], nothing, nothing)
    vectors = np.stack([one.vector for one in stored])
    return CandidateBatch([one.candidate for one in stored], vectors, vectors[:0])


def _hits(query: Float32, stored: Sequence[Stored]) -> list[Hit]:
    if not stored:
        return []
    batch = _batch(stored)
    scores = batch.vectors.astype(np.float64) @ query.astype(np.float64)
    hits = map(Hit, batch.candidates, scores.astype(np.float32).tolist())
    return _best_first(hits)


def _best_first(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.candidate.id))


def _vectors_by_text(stored: Mapping[str, Stored]) -> dict[str, Float16]:
    return {each.candidate.text: each.vector for each in stored.values()}


def _keep_learned(has: Mapping[str, Stored], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates with what the pool's candidates of their ids have learned."""
    before = {id: stored.candidate for id, stored in has.items()}  # noqa: A001 - the field's name
    return [each.keep_learned(before.get(each.id)) for each in candidates]


def _select_changed(has: Mapping[str, Stored], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that a pool lacks, or has otherwise."""
    return [c for c in candidates if c.id not in has or has[c.id].candidate != c]


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

"""`RemoteView`: a pool in a candidate store, as one request searches it."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Spread
from turnwise.models.texts import fold_text
from turnwise.service.errors import CandidateNotFound, Conflict
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.listing import Page, WordSearch
from turnwise.service.pools.memory.segment import Hit, Match
from turnwise.service.pools.redis.values import Collection
from turnwise.service.pools.stores.facets import having_texts
from turnwise.service.pools.stores.rows import example_rows, to_batch
from turnwise.service.pools.stores.sample import Sample, SampledExamples
from turnwise.service.pools.stores.store import SCANNED, CandidateStore, Stored
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import AFTER, PoolSettings

WIDTH = 256
"""Candidates that the index looks at in a search until its recall was measured."""
_MOST_WORDINGS = 100
"""Candidates among which `groups_of` looks for the groups of texts."""
_READS = 5
"""Calls of a store for one page of candidates: it has at most 5000 that do not match."""


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
    examples: SampledExamples | None
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
        return _score_rows(query, kept)[:top_k]

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
        size = self.sample.estimate_matches(self.size, where)
        return self.sample.rows.spread(query, size)

    async def lacks(self, having: Filter) -> bool:
        """Look for a match in the sample, and only then ask the store."""
        if self.size == 0 or self.sample.rows.match(having).any():
            return False
        return await self.store.count(self.collection.name, having.condition) == 0

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
                    hits = await self._make_hits(said, rows)
                    if len(hits) >= top_k:
                        break
        return hits[:top_k]

    async def _make_hits(self, said: Float32, rows: Sequence[Stored]) -> list[Hit]:
        """Return the candidates that have these examples, each by its best one, best first."""
        self._remember(rows)
        await self._look_up(self.collection.name, [row.candidate.group or "" for row in rows])
        hits: dict[str, Hit] = {}
        for hit in _score_rows(said, rows):
            row = hit.candidate
            candidate = self.found[row.group].candidate if row.group in self.found else None
            if candidate and row.text in candidate.all_examples:
                hits.setdefault(candidate.id, Hit(candidate, hit.score, Match(hit.score, row.text)))
        return _best_first(hits.values())

    async def best_examples(self, said: Float32, ids: Sequence[str]) -> list[Match | None]:
        """Return the best example of each of k candidates; fetch what was not found yet."""
        if self.examples is None:
            return [None] * len(ids)
        await self._look_up(self.collection.name, ids)
        candidates = [self.found[each].candidate for each in ids if each in self.found]
        await self._look_up(
            self.examples.sample.collection, [row.id for row in example_rows(candidates)]
        )
        return [self._best_example(said, each) for each in ids]

    def _best_example(self, said: Float32, id: str) -> Match | None:
        if id not in self.found:
            return None
        rows = example_rows([self.found[id].candidate])
        hits = _score_rows(said, [self.found[row.id] for row in rows if row.id in self.found])
        return Match(hits[0].score, hits[0].candidate.text) if hits else None

    async def example_spread(self, said: Float32, where: Filter | None = None) -> Spread:
        """Return the cosines, as the sample of the examples says."""
        assert self.examples  # the pool has examples
        sample = self.examples.sample
        size = sample.estimate_matches(self.examples.size, where)
        return sample.rows.moments.spread(said, max(2, size))

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

    async def search_followers(
        self,
        reply: str | None,
        text: str,  # noqa: ARG002 - a store does not find candidates by their texts
        query: Float32,
        top_k: int,
        where: Filter | None = None,
    ) -> list[Hit]:
        """Ask the store for the candidates whose metadata name the reply or its group."""
        if reply is None or self.examples is None or not self.examples.has_followers:
            return []
        [candidate] = await self.fetch([reply])
        group = candidate.group if candidate else None
        names = [reply, group] if group else [reply]
        following = Filter.checked({AFTER: {"in": names}})
        hits = await self.search(query, top_k, following & where if where else following)
        return [hit._replace(follows=reply) for hit in hits]

    async def fetch(self, ids: Sequence[str], *, newest: bool = False) -> list[Candidate | None]:
        """Return k candidates by their ids; by default as searches see them."""
        await self._look_up(self.collection.name, ids, newest=newest)
        return [self.found[each].candidate if each in self.found else None for each in ids]

    async def list_page(
        self, after: str, limit: int, where: Filter | None, words: WordSearch | None
    ) -> Page:
        """Return a page in the order of the store. Rare words may leave it short, or empty."""
        condition = where.condition if where else None
        count = limit + 1 if words is None else SCANNED  # the store does not search for words
        tests = [test for test in (where, words) if test]
        kept: list[Candidate] = []
        last_read = after
        for _ in range(_READS):
            read = await self.store.list_after(self.collection.name, last_read, count, condition)
            for candidate in read:
                if len(kept) == limit:  # the page is full, and this candidate begins the next one
                    return Page(kept, last_read, None)
                if all(test.accepts(candidate) for test in tests):
                    kept.append(candidate)
                last_read = candidate.id
            if len(read) < count:  # the store has no more
                return Page(kept, None, None)
        return Page(kept, last_read, None)

    async def vectors(self, ids: Sequence[str]) -> Float32:
        """Return the vectors (k, d) of k candidates; fetch those that were not found yet."""
        await self._look_up(self.collection.name, ids, newest=True)
        for each in ids:
            if each not in self.found:
                raise CandidateNotFound(f"the pool has no candidate '{each}'")
        rows = np.array([self.found[each].vector for each in ids], np.float32)
        return rows.reshape(len(ids), self.dimension)

    async def scan(self) -> AsyncIterator[CandidateBatch]:
        """Yield all candidates with their vectors in batches. The first batch is empty."""
        yield to_batch([], self.dimension)
        async for stored in self.store.scan(self.collection.name):
            batch = to_batch(stored)
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


def _score_rows(query: Float32, stored: Sequence[Stored]) -> list[Hit]:
    """Return rows with their scores, best first."""
    if not stored:
        return []
    batch = to_batch(stored)
    scores = batch.vectors.astype(np.float64) @ query.astype(np.float64)
    hits = map(Hit, batch.candidates, scores.astype(np.float32).tolist())
    return _best_first(hits)


def _best_first(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.candidate.id))

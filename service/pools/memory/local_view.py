"""`LocalView`: one version of a pool in memory, as one request searches it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Spread
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.listing import CandidateTest, Page, WordSearch
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.segment import Hit, Match
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import PoolSettings

T = TypeVar("T")

INLINE = 4000
"""Up to this size, a search takes less time than handing it to another thread."""


@dataclass(frozen=True, slots=True)
class LocalView:
    """One version of a pool in memory, which later edits do not change."""

    name: str
    version: int
    encoder_name: EncoderName
    settings: PoolSettings
    contents: Contents
    workers: Workers
    metrics: Metrics

    async def search(self, query: Float32, top_k: int, where: Filter | None = None) -> list[Hit]:
        """Search a large pool in another thread, and a small one here, which takes less time."""
        with self.metrics.stage("search"):
            await self._evaluate(where)
            search = partial(self.contents.search, query, top_k, where)
            return await self._run(search, quick=len(self.contents) <= INLINE)

    async def spread(self, query: Float32, where: Filter | None = None) -> Spread:
        """Return the scores; the first call computes moments, in the thread of searches."""
        await self._evaluate(where)
        spread = partial(self.contents.spread, query, where)
        return await self._run(spread, quick=self.contents.larger_segment.knows_moments)

    async def lacks(self, having: Filter) -> bool:
        """Return whether there are candidates, and a filter matches none of them."""
        await self._evaluate(having)
        return len(self.contents) > 0 and not self.contents.count_matches(having)

    @property
    def has_examples(self) -> bool:
        """Whether any candidate has examples."""
        return self.contents.example_count > 0

    async def search_examples(
        self, said: Float32, top_k: int, where: Filter | None = None
    ) -> list[Hit]:
        """Search many examples in another thread, and few here, as `search` does."""
        with self.metrics.stage("search"):
            await self._evaluate(where)
            search = partial(self.contents.search_examples, said, top_k, where)
            return await self._run(search, quick=self.contents.example_count <= INLINE)

    async def best_examples(self, said: Float32, ids: Sequence[str]) -> list[Match | None]:
        """Return the best example of each of k candidates."""
        return self.contents.best_examples(said, ids)

    async def example_spread(self, said: Float32, where: Filter | None = None) -> Spread:
        """Return the cosines; the first call computes moments, in the thread of searches."""
        await self._evaluate(where)
        spread = partial(self.contents.example_spread, said, where)
        return await self._run(spread, quick=self.contents.knows_example_moments)

    async def groups_of(self, texts: Collection[str]) -> frozenset[str]:
        """Return the groups of the candidates with these texts, as `fold_text` gives them."""
        return self.contents.groups_of(texts)

    async def search_followers(
        self, reply: str | None, text: str, query: Float32, top_k: int, where: Filter | None = None
    ) -> list[Hit]:
        """Score all followers; the first search by text folds texts, in the thread of searches."""
        by_text = reply is None and self.contents.has_followers
        is_quick = not by_text or len(self.contents) <= INLINE
        find = partial(self.contents.find_followers, reply, text)
        names, found = await self._run(find, quick=is_quick)
        followers = [each for each in found if where is None or where.accepts(each)]
        if not followers:
            return []
        vectors = self.contents.take([each.id for each in followers]).astype(np.float64)
        scores = vectors @ query.astype(np.float64)
        best = np.argsort(-scores, kind="stable")[:top_k].tolist()
        return [Hit(followers[each], float(scores[each]), follows=names[0]) for each in best]

    async def fetch(
        self,
        ids: Sequence[str],
        *,
        newest: bool = False,  # noqa: ARG002 - this version has no newer candidates
    ) -> list[Candidate | None]:
        """Return k candidates by their ids."""
        return [self.contents.get(each) for each in ids]

    async def list_page(
        self, after: str, limit: int, where: Filter | None, words: WordSearch | None
    ) -> Page:
        """Return a page, in the order of ids; the first one sorts them, in a thread of edits."""
        tests: list[CandidateTest] = [test for test in (where, words) if test]
        for test in tests:
            await self._evaluate(test)
        work = partial(self.contents.list_page, after, limit, tests)
        if self.contents.knows_order or len(self.contents) <= INLINE:
            return work()
        return await self.workers.edit(work)

    async def vectors(self, ids: Sequence[str]) -> Float32:
        """Return the vectors (k, d) of k candidates."""
        return self.contents.take(ids).astype(np.float32)

    async def scan(self) -> AsyncIterator[CandidateBatch]:
        """Yield all candidates at once; their vectors are not copied if they are in one array."""
        contents = self.contents
        yield await self.workers.build(
            lambda: CandidateBatch.of(
                contents.candidates(), contents.vectors(), contents.examples()
            )
        )

    async def _run(self, work: Callable[[], T], *, quick: bool) -> T:
        """Run quick work here, and other work in the thread of searches."""
        if quick:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.workers.search, work)

    async def _evaluate(self, test: CandidateTest | None) -> None:
        """Evaluate a new test in a thread; stop when no request waits for it any more."""
        if test and not self.contents.has_evaluated(test):
            look_ups = len(self.contents) * test.size
            await self.workers.take_in_turns(self.contents.evaluate(test), look_ups)

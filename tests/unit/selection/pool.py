"""A pool in arrays, a context of random vectors, and naive scores of one after the other."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.confidence import Moments, Spread
from turnwise.models.data import Utterance
from turnwise.models.texts import fold_text
from turnwise.service.pools import Candidate, Filter, Hit, Match
from turnwise.service.pools.listing import Page, WordSearch
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.selection.context import EncodedContext
from turnwise.service.wire.fields import EncoderName
from turnwise.service.wire.pools import PoolSettings

DIMENSION = 16


def random_units(count: int, seed: int) -> Float32:
    """(count, d) unit rows."""
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def make_context(utterances: int, seed: int = 1) -> EncodedContext:
    first = random_units(utterances, seed)
    second = random_units(utterances, seed + 1)
    said = [
        Utterance(("user", "bot")[index % 2], f"utterance {index}") for index in range(utterances)
    ]
    return EncodedContext(said, "bot", None, first, second, second[-1])


def score_naively(
    context: EncodedContext, vectors: Float32, last_rows: int | None = None
) -> Float64:
    """C3L eq. 3, pair by pair in float64; of `last_rows` newest utterances, or of all."""
    first = context.first.astype(np.float64)
    second = context.second.astype(np.float64)
    scores = np.zeros(len(vectors))
    for i, j in combinations(range(len(second)), 2):
        if last_rows is None or j >= len(second) - last_rows:
            mean = first[i] + second[j]
            scores += vectors.astype(np.float64) @ (mean / np.linalg.norm(mean))
    return scores


@dataclass
class ArrayPool:
    """A `PoolView` that compares all candidates."""

    candidates: Sequence[Candidate]
    after: Float32
    settings: PoolSettings = field(default_factory=PoolSettings)
    encoder_name: EncoderName = "default"
    name: str = "replies"
    version: int = 1
    examples: dict[str, Float32] = field(default_factory=dict)
    """The vectors (m, d) of each candidate's examples, by id."""
    searched: list[int] = field(default_factory=list)
    """The number of hits that each search asked for."""
    spreads: int = 0
    """How often the spread of the reply scores was computed."""

    @classmethod
    def of(cls, texts: Sequence[str], seed: int = 7) -> "ArrayPool":
        candidates = [Candidate.of(text, f"c{index}") for index, text in enumerate(texts)]
        return cls(candidates, random_units(len(texts), seed))

    async def search(self, query: Float32, top_k: int, where: Filter | None = None) -> list[Hit]:
        self.searched.append(top_k)
        scores = self.after.astype(np.float64) @ query.astype(np.float64)
        hits = [
            Hit(candidate, float(score))
            for candidate, score in zip(self.candidates, scores, strict=True)
            if where is None or where.matches(candidate.metadata)
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:top_k]

    async def spread(self, query: Float32, where: Filter | None = None) -> Spread:
        self.spreads += 1
        return Moments.of(self.after).spread(query, len(self.candidates))

    async def lacks(self, having: Filter) -> bool:
        return not any(map(having.accepts, self.candidates))

    @property
    def has_examples(self) -> bool:
        return bool(self.examples)

    async def search_examples(
        self, said: Float32, top_k: int, where: Filter | None = None
    ) -> list[Hit]:
        ids = [each.id for each in self.candidates if where is None or where.matches(each.metadata)]
        by_id = {each.id: each for each in self.candidates}
        matches = await self.best_examples(said, ids)
        hits = [
            Hit(by_id[each], match.score, match)
            for each, match in zip(ids, matches, strict=True)
            if match
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:top_k]

    async def best_examples(self, said: Float32, ids: Sequence[str]) -> list[Match | None]:
        return [self._best_example(said, each) for each in ids]

    def _best_example(self, said: Float32, id: str) -> Match | None:
        if id not in self.examples:
            return None
        cosines = self.examples[id].astype(np.float64) @ said.astype(np.float64)
        return Match(float(cosines.max()), f"example {int(cosines.argmax())} of {id}")

    async def example_spread(self, said: Float32, where: Filter | None = None) -> Spread:
        vectors = np.concatenate(list(self.examples.values()))
        return Moments.of(vectors).spread(said, len(vectors))

    async def groups_of(self, texts: Collection[str]) -> frozenset[str]:
        return frozenset(
            each.group for each in self.candidates if each.group and fold_text(each.text) in texts
        )

    async def search_followers(
        self, reply: str | None, text: str, query: Float32, top_k: int, where: Filter | None = None
    ) -> list[Hit]:
        names = [reply] if reply else [each.id for each in self.candidates if each.text == text]
        hits = await self.search(query, len(self.candidates), where)
        return [
            hit._replace(follows=name)
            for hit in hits
            for name in names
            if name in hit.candidate.follows
        ][:top_k]

    async def fetch(self, ids: Sequence[str], *, newest: bool = False) -> list[Candidate | None]:
        by_id = {each.id: each for each in self.candidates}
        return [by_id.get(each) for each in ids]

    async def list_page(
        self, after: str, limit: int, where: Filter | None, words: WordSearch | None
    ) -> Page:
        raise NotImplementedError

    async def vectors(self, ids: Sequence[str]) -> Float32:
        indices = {candidate.id: index for index, candidate in enumerate(self.candidates)}
        return self.after[[indices[each] for each in ids]]

    async def scan(self) -> AsyncIterator[CandidateBatch]:
        vectors = self.after.astype(np.float16)
        yield CandidateBatch(self.candidates, vectors, vectors[:0])

"""`Segment`: candidates with the indexes over their vectors and over those of their examples."""

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Self, TypeVar

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Moments, Spread
from turnwise.models.texts import fold_text
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.listing import CandidateTest
from turnwise.service.pools.memory.examples import ExampleIndex, Examples, Size
from turnwise.service.pools.memory.flat import Bitmap, Float16, Index, Indices
from turnwise.service.pools.memory.packed import Table, make_table, pack

T = TypeVar("T")
MakeIndex = Callable[[Float16], Index]

_KEPT_TESTS = 64
"""Tests whose results are kept with a segment: 8 KB each for 65,536 candidates."""
_STEP = 32
"""Candidates that a step of a test checks: 5 milliseconds for the largest filter."""
_RUN = 4096
"""Ids that are sorted at once, in a millisecond: other threads wait meanwhile."""


class Match(NamedTuple):
    """The best example of a candidate."""

    score: float
    """Its cosine with the utterance that was searched for."""
    text: str


class Hit(NamedTuple):
    """A candidate that a search found."""

    candidate: Candidate
    score: float
    match: Match | None = None
    """The example that led to it; None if its text did."""
    follows: str | None = None
    """The id or the group of the last reply, if the candidate follows it."""


class Lookups(NamedTuple):
    """What requests look up about the candidates of a segment, by their indices.

    They are made in the thread of edits: with millions of candidates that takes seconds, which no
    request should wait for.
    """

    by_id: Table
    wordings: Mapping[str, Sequence[int]]
    """The candidates with a group, by their texts as `fold_text` gives them."""
    followers: Mapping[str, Sequence[int]]
    """The candidates that follow a reply, by the ids or groups they name."""
    answers: int
    """Number of answers: the wordings of a group are one."""

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> Self:
        """Return the lookups of n candidates."""
        wordings = defaultdict[str, list[int]](list)
        followers = defaultdict[str, list[int]](list)
        groups = Counter[str]()

        def read_ids() -> Iterator[str]:  # and the rest: to unpack a candidate takes microseconds
            for index, candidate in enumerate(candidates):
                if candidate.group is not None:
                    wordings[fold_text(candidate.text)].append(index)
                    groups[candidate.group] += 1
                for reply in candidate.follows:
                    followers[reply].append(index)
                yield candidate.id

        by_id = make_table(read_ids(), lambda index: candidates[index].id)
        answers = len(candidates) - groups.total() + len(groups)
        return cls(by_id, dict(wordings), dict(followers), answers)


@dataclass(frozen=True)
class Segment:
    """Candidates, and an index of their vectors in the same order.

    Attributes:
        candidates: n candidates, which do not change.
        lookups: What is looked up about them.
        index: Over their vectors (n, d).
        example_index: Over the vectors of their examples; None if none has any.
    """

    candidates: Sequence[Candidate]
    lookups: Lookups
    index: Index
    example_index: ExampleIndex | None = None

    @classmethod
    def of(
        cls,
        candidates: Iterable[Candidate],
        vectors: Float16,
        examples: Examples | None,
        make_index: MakeIndex,
        make_example_index: MakeIndex | None = None,
    ) -> Self:
        """Return a segment of candidates with their vectors (n, d), and make its indexes.

        Args:
            candidates: n candidates.
            vectors: Their vectors (n, d).
            examples: Their examples.
            make_index: Makes the index over vectors.
            make_example_index: Makes the index over the vectors of examples, if another way.
        """
        packed = pack(candidates)
        index = make_index(vectors)
        lookups = Lookups.of(packed)
        if examples is None:
            return cls(packed, lookups, index)
        make = make_example_index or make_index
        return cls(packed, lookups, index, ExampleIndex(examples, make(examples.vectors)))

    @property
    def examples(self) -> Examples | None:
        """The examples of the candidates; None if none has any."""
        return self.example_index.examples if self.example_index else None

    @property
    def index_of_examples(self) -> Index | None:
        """The index over the vectors of the examples; None if no candidate has any."""
        return self.example_index.index if self.example_index else None

    @property
    def size(self) -> Size:
        """The number of the candidates and of their examples."""
        return Size(len(self.candidates), len(self.examples) if self.examples else 0)

    @property
    def is_exact(self) -> bool:
        """Whether no index is approximate."""
        return all(index.kind == "flat" for index in self.indexes)

    @property
    def indexes(self) -> list[Index]:
        """The index over vectors, and that over the vectors of examples if there are any."""
        return [self.index, self.example_index.index] if self.example_index else [self.index]

    @property
    def bytes(self) -> int:
        """Bytes of memory that the vectors and codes take."""
        return self.index.bytes + (self.example_index.bytes if self.example_index else 0)

    @cached_property
    def candidate_bytes(self) -> int:
        """Bytes of the candidates and their vectors; a large segment is counted once."""
        return count_bytes(self.candidates, self.index.dimension)

    @cached_property
    def example_rows(self) -> Table:
        """A row for each example text. As in `by_text`, its candidate may be dead."""
        texts = chain.from_iterable(candidate.all_examples for candidate in self.candidates)
        return make_table(texts, self._read_example)

    def _read_example(self, row: int) -> str:
        assert self.examples  # there are rows
        owner = int(self.examples.owners_of(np.array([row]))[0])
        return self.candidates[owner].all_examples[row - int(self.examples.offsets[owner])]

    @cached_property
    def by_text(self) -> Table:
        """The index of a candidate with each text. It may be dead: the vector is the same."""
        texts = (candidate.text for candidate in self.candidates)
        return make_table(texts, lambda index: self.candidates[index].text)

    @cached_property
    def order(self) -> Indices:
        """The indices of the candidates (n,) in the order of their ids."""
        ids = [candidate.id for candidate in self.candidates]
        runs = [
            sorted(range(start, min(start + _RUN, len(ids))), key=ids.__getitem__)
            for start in range(0, len(ids), _RUN)
        ]
        merged = heapq.merge(*runs, key=ids.__getitem__)
        return np.fromiter(merged, np.int64, len(ids))

    @property
    def knows_order(self) -> bool:
        """Whether `order` is known; a large segment takes a second."""
        return "order" in vars(self)

    def list_after(self, after: str, count: int, allowed: Bitmap | None) -> list[Candidate]:
        """Return the first candidates after an id, in the order of ids.

        Args:
            after: The id, which need not be there; empty for the beginning.
            count: Most candidates to return.
            allowed: A bit for each candidate: whether it may be returned; None for all.
        """
        start = bisect_right(self.order, after, key=lambda index: self.candidates[index].id)
        indices = self.order[start:]
        if allowed is not None:
            bits = np.unpackbits(allowed, count=len(self.candidates), bitorder="little")
            indices = indices[bits[indices] == 1]
        return [self.candidates[index] for index in indices[:count].tolist()]

    @cached_property
    def moments(self) -> Moments:
        """The moments of the vectors; computed once, in tens of milliseconds."""
        return Moments.of(self.index.vectors)

    @property
    def knows_moments(self) -> bool:
        """Whether `moments` have been computed."""
        return "moments" in vars(self)

    def spread(self, query: Float32, candidates: int) -> Spread:
        """Return the scores of a query over candidates that are like those of the segment.

        Args:
            query: (d,).
            candidates: Their number. The share of answers among them is taken to be that of the
                segment: wordings of one answer do not compete with each other.
        """
        answers = round(candidates * self.lookups.answers / len(self.candidates))
        return self.moments.spread(query, max(2, answers))

    def make_hits(self, rows: Indices, scores: Float32) -> list[Hit]:
        """Return the hits of some rows of the examples, each with its score."""
        assert self.examples  # there are rows
        hits: list[Hit] = []
        owners = self.examples.owners_of(rows)
        within = rows - self.examples.offsets[owners]
        for owner, number, score in zip(
            owners.tolist(), within.tolist(), scores.tolist(), strict=True
        ):
            candidate = self.candidates[owner]
            hits.append(Hit(candidate, score, Match(score, candidate.all_examples[number])))
        return hits

    @cached_property
    def _matching(self) -> dict[str, Bitmap]:
        return {}

    @cached_property
    def _evaluations(self) -> dict[str, Iterator[None]]:
        return {}

    def has_evaluated(self, test: CandidateTest) -> bool:
        """Return whether the candidates that pass a test are known."""
        return test.source in self._matching

    def match(self, test: CandidateTest) -> Bitmap:
        """Return a bit for each candidate: whether it passes a test.

        The results of the latest tests are kept; several threads may call this at once.
        """
        kept = self._matching.get(test.source)
        if kept is not None:
            return kept
        return self._keep(test, list(self._match_slices(test)))

    def evaluate(self, test: CandidateTest) -> Iterator[None]:
        """Return the steps after which the matches are known; all requests that wait share them.

        If a request stops taking steps, the next one that waits continues.
        """
        if self.has_evaluated(test):
            return iter(())
        steps = self._evaluations.setdefault(test.source, self._take_steps(test))
        _drop_oldest(self._evaluations)
        return steps

    def _take_steps(self, test: CandidateTest) -> Iterator[None]:
        parts = []
        for bits in self._match_slices(test):
            parts.append(bits)
            yield
        self._keep(test, parts)
        self._evaluations.pop(test.source, None)

    def _match_slices(self, test: CandidateTest) -> Iterator[Bitmap]:
        for start in range(0, len(self.candidates), _STEP):
            some = self.candidates[start : start + _STEP]
            matches = (test.accepts(candidate) for candidate in some)
            bits = np.fromiter(matches, np.bool_, len(some))
            yield np.packbits(bits, bitorder="little")

    def _keep(self, test: CandidateTest, parts: list[Bitmap]) -> Bitmap:
        matching = np.concatenate([np.empty(0, np.uint8), *parts])
        self._matching[test.source] = matching
        _drop_oldest(self._matching)
        return matching


def _drop_oldest(tests: dict[str, T]) -> None:
    """Drop the oldest tests if there are too many; other threads may do so at the same time."""
    for source in list(tests)[:-_KEPT_TESTS]:
        tests.pop(source, None)


def count_bytes(candidates: Iterable[Candidate], dimension: int) -> int:
    """Return the bytes of candidates, with a vector of float16 for each text and each example."""
    return sum(each.bytes + 2 * dimension * (1 + each.example_count) for each in candidates)

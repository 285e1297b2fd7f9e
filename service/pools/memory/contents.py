"""The candidates of one version of a pool, and edits, which make the next version of them.

Contents are immutable: a large base and a small overlay of later candidates. A bitmap marks the
candidates of the base that were not replaced or removed since. Every edit copies the overlay, which
is merged into a new base before the copy costs much.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Moments, Spread
from turnwise.models.texts import fold_text
from turnwise.service.errors import CandidateNotFound
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.memory.flat import (
    Bitmap,
    FlatIndex,
    Float16,
    Index,
    Indices,
)

T = TypeVar("T")
MakeFlat = Callable[[Float16], FlatIndex]

_MIN_OVERLAY = 1000
_OVERLAY_SHARE = 10
MAX_UNMERGED = 20_000
"""Limit for a pool of any size, since a search scans the overlay and an edit copies it."""
_ENTRY = 100
"""Bytes of a candidate's entries in the tuple of a base and in its dictionary by id."""
_LOOKUPS = 500
"""Bytes of a candidate in dictionaries: by id, by text, and while edits are joined."""
_FILTERS = 64
"""Filters whose matches are kept with a segment: 8 KB each for 65,536 candidates."""
_STEP = 128
"""Candidates that a step of a filter checks, in 20 milliseconds for one of the most conditions."""


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


@dataclass(frozen=True, slots=True)
class Edit:
    """The change of one version: it removes ids, then adds or replaces candidates.

    Attributes:
        candidates: n candidates with distinct ids; `removed` has none of them.
        vectors: Their vectors (n, d).
        removed: Ids; those that the pool lacks are ignored.
    """

    candidates: Sequence[Candidate]
    vectors: Float16
    removed: Sequence[str] = ()


def join_edits(edits: Sequence[Edit]) -> Edit:
    """Return one edit that has the effect of several in their order."""
    newest: dict[str, tuple[int, int] | None] = {}  # edit and index of each id; None if removed
    for number, edit in enumerate(edits):
        newest |= dict.fromkeys(edit.removed)
        newest |= {candidate.id: (number, index) for index, candidate in enumerate(edit.candidates)}
    kept = sorted(found for found in newest.values() if found is not None)
    indices: list[list[int]] = [[] for _ in edits]
    for number, index in kept:
        indices[number].append(index)
    vectors = [edit.vectors for edit in edits]
    return Edit(
        candidates=[edits[number].candidates[index] for number, index in kept],
        vectors=_gather(list(zip(vectors, indices, strict=True))),
        removed=[id for id, found in newest.items() if found is None],  # noqa: A001 - the field's name
    )


@dataclass(frozen=True)
class Segment:
    """Candidates, and an index of their vectors in the same order."""

    candidates: tuple[Candidate, ...]
    index: Index
    by_id: dict[str, int] = field(init=False)
    """The index of each id."""

    def __post_init__(self) -> None:
        """Build the dictionary by id now, in the edit thread, not in the first request."""
        by_id = {candidate.id: index for index, candidate in enumerate(self.candidates)}
        object.__setattr__(self, "by_id", by_id)

    @cached_property
    def candidate_bytes(self) -> int:
        """Bytes of the candidates without their vectors; a large segment is counted once."""
        return _count_bytes(self.candidates)

    @cached_property
    def by_text(self) -> dict[str, int]:
        """The index of each text; the candidate need not be alive, for the vector is the same."""
        return {candidate.text: index for index, candidate in enumerate(self.candidates)}

    @cached_property
    def wordings(self) -> dict[str, list[Candidate]]:
        """The candidates that have a group, by their texts as `fold_text` gives them."""
        wordings = defaultdict[str, list[Candidate]](list)
        for candidate in self.candidates:
            if candidate.group is not None:
                wordings[fold_text(candidate.text)].append(candidate)
        return dict(wordings)

    @property
    def has_wordings(self) -> bool:
        """Whether `wordings` have been collected."""
        return "wordings" in vars(self)

    @cached_property
    def moments(self) -> Moments:
        """The moments of the vectors; computed once, in tens of milliseconds."""
        return Moments.of(self.index.vectors)

    @property
    def has_moments(self) -> bool:
        """Whether `moments` have been computed."""
        return "moments" in vars(self)

    @cached_property
    def _matching(self) -> dict[str, Bitmap]:
        return {}

    @cached_property
    def _evaluations(self) -> dict[str, Iterator[None]]:
        return {}

    def has_evaluated(self, where: Filter) -> bool:
        """Return whether the candidates that a filter matches are known."""
        return where.source in self._matching

    def match(self, where: Filter) -> Bitmap:
        """Return a bit for each candidate: whether a filter matches it.

        The latest filters are kept; several threads may call this at once.
        """
        kept = self._matching.get(where.source)
        if kept is not None:
            return kept
        return self._keep(where, list(self._match_slices(where)))

    def evaluate(self, where: Filter) -> Iterator[None]:
        """Return the steps after which the matches are known; all requests that wait share them.

        If a request stops taking steps, the next one that waits continues.
        """
        if self.has_evaluated(where):
            return iter(())
        steps = self._evaluations.setdefault(where.source, self._take_steps(where))
        _drop_oldest(self._evaluations)
        return steps

    def _take_steps(self, where: Filter) -> Iterator[None]:
        parts = []
        for bits in self._match_slices(where):
            parts.append(bits)
            yield
        self._keep(where, parts)
        self._evaluations.pop(where.source, None)

    def _match_slices(self, where: Filter) -> Iterator[Bitmap]:
        for start in range(0, len(self.candidates), _STEP):
            some = self.candidates[start : start + _STEP]
            matches = (where.matches(candidate.metadata) for candidate in some)
            bits = np.fromiter(matches, np.bool_, len(some))
            yield np.packbits(bits, bitorder="little")

    def _keep(self, where: Filter, parts: list[Bitmap]) -> Bitmap:
        matching = np.concatenate([np.empty(0, np.uint8), *parts])
        self._matching[where.source] = matching
        _drop_oldest(self._matching)
        return matching


@dataclass(frozen=True, slots=True)
class _Location:
    """A candidate's segment, and its index there."""

    segment: Segment
    index: int


def _drop_oldest(filters: dict[str, T]) -> None:
    """Drop the oldest filters if there are too many; other threads may do so at the same time."""
    for source in list(filters)[:-_FILTERS]:
        filters.pop(source, None)


@dataclass(frozen=True)
class Contents:
    """The candidates of one version; see the top of the module.

    Attributes:
        base: The candidates at the last merge.
        overlay: The candidates that were added or replaced since.
        alive: A bit for each candidate of the base; None if all are alive.
        dead: Number of candidates of the base that are not alive.
    """

    base: Segment
    overlay: Segment
    alive: Bitmap | None = None
    dead: int = 0

    @classmethod
    def empty(cls, dimension: int) -> "Contents":
        """Return the contents of a new pool, for vectors of length d."""
        nothing = Segment((), FlatIndex(np.empty((0, dimension), np.float16)))
        return cls(nothing, nothing)

    def __len__(self) -> int:
        return len(self.base.candidates) - self.dead + len(self.overlay.candidates)

    def __contains__(self, id: object) -> bool:  # noqa: A002 - the field's name
        return isinstance(id, str) and self._locate(id) is not None

    @property
    def unmerged(self) -> int:
        """Number of candidates in the overlay, and of dead ones in the base."""
        return self.dead + len(self.overlay.candidates)

    @property
    def is_due(self) -> bool:
        """Whether it is time to merge the overlay into a new base."""
        return self.unmerged > _merge_limit(len(self.base.candidates))

    @property
    def bytes(self) -> int:
        """Bytes of memory that the vectors and codes take."""
        return self.base.index.bytes + self.overlay.index.bytes

    @property
    def candidate_bytes(self) -> int:
        """Bytes of the candidates: ids, texts, metadata and vectors."""
        dead = (self.base.candidates[index] for index in self._indices(alive=False).tolist())
        without_vectors = self.base.candidate_bytes + self.overlay.candidate_bytes
        return without_vectors - _count_bytes(dead) + len(self) * self._vector_bytes

    def growth(self, candidates: Sequence[Candidate], removed: Sequence[str]) -> int:
        """Return by how many `candidate_bytes` an edit makes the pool larger."""
        ids = {*(candidate.id for candidate in candidates), *removed}
        before = [candidate for candidate in map(self.get, ids) if candidate]
        vectors = (len(candidates) - len(before)) * self._vector_bytes
        return _count_bytes(candidates) - _count_bytes(before) + vectors

    def get(self, id: str) -> Candidate | None:  # noqa: A002 - the field's name
        """Return the candidate of an id, or None."""
        location = self._locate(id)
        if location is None:
            return None
        return location.segment.candidates[location.index]

    def groups_of(self, texts: Collection[str]) -> frozenset[str]:
        """Return the groups of the candidates with these texts, as `fold_text` gives them."""
        wordings = [
            candidate
            for segment in (self.base, self.overlay)
            for text in texts
            for candidate in segment.wordings.get(text, ())
        ]
        alive = [each for each in wordings if self.get(each.id) is each]
        return frozenset(each.group for each in alive if each.group is not None)

    @property
    def has_wordings(self) -> bool:
        """Whether `groups_of` takes microseconds; its first call takes up to a second."""
        return self.base.has_wordings and self.overlay.has_wordings

    def candidates(self) -> list[Candidate]:
        """Return all candidates, in the order of `vectors()`."""
        kept = [self.base.candidates[index] for index in self._indices(alive=True).tolist()]
        return [*kept, *self.overlay.candidates]

    def vectors(self) -> Float16:
        """Return the vectors (n, d) of all candidates, without a copy if they are in one array."""
        base = self.base.index.vectors
        overlay = self.overlay.index.vectors
        if not self.unmerged:
            return base
        if not len(base):
            return overlay
        return _gather([(base, self._indices(alive=True)), (overlay, range(len(overlay)))])

    def take(self, ids: Sequence[str]) -> Float16:
        """Return the vectors (k, d) of k candidates.

        Raises:
            CandidateNotFound: The pool lacks one of the ids.
        """
        taken = np.empty((len(ids), self.base.index.dimension), np.float16)
        for row, id in enumerate(ids):  # noqa: A001 - the field's name
            location = self._locate(id)
            if location is None:
                raise CandidateNotFound(f"the pool has no candidate '{id}'")
            taken[row] = location.segment.index.vectors[location.index]
        return taken

    def find_vectors(self, texts: Iterable[str]) -> dict[str, Float16]:
        """Return the vectors (d,) of those texts that the pool has, or had until lately."""
        vectors: dict[str, Float16] = {}
        for text in texts:
            for segment in (self.base, self.overlay):
                index = segment.by_text.get(text)
                if index is not None:  # a view would keep the whole array in memory
                    vectors[text] = segment.index.vectors[index].copy()
        return vectors

    def has_evaluated(self, where: Filter) -> bool:
        """Return whether the candidates that a filter matches are known."""
        return self.base.has_evaluated(where) and self.overlay.has_evaluated(where)

    def evaluate(self, where: Filter) -> Iterator[None]:
        """Evaluate a filter, and yield after each step; all steps of a large pool take seconds."""
        for segment in (self.base, self.overlay):
            for _ in segment.evaluate(where):  # `yield from` would close steps that others share
                yield

    def search(self, query: Float32, k: int, where: Filter | None = None) -> list[Hit]:
        """Return the k candidates with the largest inner products, best first, ties by id.

        Any of those that tie with the last one may be among them: finding all ties would slow down
        every search.

        Args:
            query: (d,).
            k: At least 1.
            where: Leaves out the candidates that it does not match.

        Raises:
            ValueError: The query is not a finite vector of d numbers.
        """
        hits: list[Hit] = []
        for segment, allowed in self._select(where):
            indices, scores = segment.index.search(query, k, allowed)
            candidates = [segment.candidates[index] for index in indices.tolist()]
            hits += map(Hit, candidates, scores.tolist())
        return sorted(hits, key=lambda hit: (-hit.score, hit.candidate.id))[:k]

    @property
    def larger(self) -> Segment:
        """The larger of the two segments, whose moments stand for those of all candidates."""
        return max(self.base, self.overlay, key=lambda segment: len(segment.candidates))

    def spread(self, query: Float32, where: Filter | None = None) -> Spread:
        """Return the mean and deviation of a query's scores, and how many candidates there are.

        The moments are those of all candidates, also where a filter leaves only some of them.
        """
        candidates = len(self)
        if where:
            allowed = (bits for _, bits in self._select(where) if bits is not None)
            candidates = sum(int(np.bitwise_count(bits).sum()) for bits in allowed)
        return self.larger.moments.spread(query, candidates)

    def _select(self, where: Filter | None) -> Iterator[tuple[Segment, Bitmap | None]]:
        """Yield the segments, each with a bit for each candidate: whether a search may return it.

        None stands for all candidates of a segment.
        """
        for segment, alive in ((self.base, self.alive), (self.overlay, None)):
            if not segment.candidates:
                continue
            allowed = alive
            if where:
                matching = segment.match(where)
                allowed = matching if alive is None else matching & alive
            yield segment, allowed

    def after(self, edits: Sequence[Edit], make_flat: MakeFlat) -> "Contents":
        """Return the contents after edits, which are applied in order."""
        first, *others = edits  # the first of a whole log holds most: it becomes the base uncopied
        contents = self
        for edit in [first, join_edits(others)] if others else [first]:
            contents = contents._apply(edit, make_flat)
            if contents.base.index.kind == "flat" and contents.is_due:
                contents = contents.merge(make_flat)
        return contents

    @property
    def bytes_merged(self) -> int:
        """Bytes of memory that `merge` takes, without the index."""
        copied = self._vector_bytes if self.unmerged and self.base.candidates else 0
        return len(self) * (copied + _ENTRY)

    def bytes_after(self, counts: Sequence[int]) -> int:
        """Return the bytes of memory that `after` and making its edits take at most.

        The objects of the candidates are not counted.

        Args:
            counts: Number of candidates of each edit.
        """
        vector = self._vector_bytes
        base = len(self.base.candidates)
        new = sum(counts)
        needed = new * (vector + _LOOKUPS)
        needed += len(self.overlay.candidates) * (vector + _ENTRY)  # the next overlay
        if not base:  # the first edit becomes the base
            base = counts[0]
            new -= counts[0]
        if self.base.index.kind == "flat" and self.unmerged + 2 * new > _merge_limit(base):
            needed += (base + new) * (vector + _ENTRY)  # the merged base
        return needed

    def merge(self, make_index: Callable[[Float16], Index]) -> "Contents":
        """Return the same candidates in one base, with an index made from their vectors."""
        nothing = Contents.empty(self.base.index.dimension)
        return replace(nothing, base=Segment(tuple(self.candidates()), make_index(self.vectors())))

    def with_base_index(self, index: Index) -> "Contents":
        """Return the same candidates with another index of the vectors of the base."""
        return replace(self, base=Segment(self.base.candidates, index))

    def _apply(self, edit: Edit, make_flat: MakeFlat) -> "Contents":
        touched = {candidate.id for candidate in edit.candidates} | set(edit.removed)
        before = self.overlay.candidates
        kept = [index for index, candidate in enumerate(before) if candidate.id not in touched]
        vectors = edit.vectors
        if kept:
            earlier = self.overlay.index.vectors
            vectors = _gather([(earlier, kept), (vectors, range(len(vectors)))])
        candidates = [*(before[index] for index in kept), *edit.candidates]
        overlay = Segment(tuple(candidates), make_flat(vectors))
        replaced = [index for index in map(self._find_in_base, touched) if index is not None]
        return replace(self._remove_from_base(replaced), overlay=overlay)

    def _remove_from_base(self, removed: list[int]) -> "Contents":
        if not removed:
            return self
        size = math.ceil(len(self.base.candidates) / 8)
        alive = np.full(size, 255, np.uint8) if self.alive is None else self.alive.copy()
        indices = np.array(removed)
        np.bitwise_and.at(alive, indices // 8, ~(1 << (indices % 8)).astype(np.uint8))
        return replace(self, alive=alive, dead=self.dead + len(removed))

    def _locate(self, id: str) -> _Location | None:  # noqa: A002 - the field's name
        index = self.overlay.by_id.get(id)
        if index is not None:
            return _Location(self.overlay, index)
        index = self._find_in_base(id)
        if index is not None:
            return _Location(self.base, index)
        return None

    def _find_in_base(self, id: str) -> int | None:  # noqa: A002 - the field's name
        """Return the index of an id in the base; None if it is not there or not alive."""
        index = self.base.by_id.get(id)
        if index is None or self.alive is None:
            return index
        byte, bit = divmod(index, 8)
        return index if self.alive[byte] >> bit & 1 else None

    @property
    def _vector_bytes(self) -> int:
        """Bytes of one vector, in float16."""
        return 2 * self.base.index.dimension

    def _indices(self, *, alive: bool) -> Indices:
        """Return the indices of the candidates of the base that are alive, or of the others."""
        size = len(self.base.candidates)
        if self.alive is None:
            return np.arange(size if alive else 0)
        bits = np.unpackbits(self.alive, count=size, bitorder="little")
        return np.flatnonzero(bits == alive)


def _count_bytes(candidates: Iterable[Candidate]) -> int:
    return sum(candidate.bytes for candidate in candidates)


def _merge_limit(base: int) -> int:
    """Return how many candidates may stay unmerged with a base of this size."""
    return max(_MIN_OVERLAY, min(base // _OVERLAY_SHARE, MAX_UNMERGED))


def _gather(parts: Sequence[tuple[Float16, Sequence[int] | Indices]]) -> Float16:
    """Return some vectors of several arrays in one array; each vector is copied once."""
    size = sum(len(indices) for _, indices in parts)
    first, _ = parts[0]
    gathered = np.empty((size, first.shape[1]), np.float16)
    start = 0
    for vectors, indices in parts:
        end = start + len(indices)
        np.take(
            vectors,
            np.asarray(indices, np.int64),
            axis=0,
            out=gathered[start:end],
            mode="clip",  # with "raise", NumPy would make a buffer
        )
        start = end
    return gathered

"""The candidates of one version of a pool, and edits, which make the next version of them.

Contents are immutable: a large base and a small overlay of later candidates. A bitmap marks the
candidates of the base that were not replaced or removed since. Every edit copies the overlay, which
is merged into a new base before the copy costs much.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Moments, Spread
from turnwise.service.errors import CandidateNotFound
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.memory.flat import Bitmap, FlatIndex, Float16, Index, Places

T = TypeVar("T")
MakeFlat = Callable[[Float16], FlatIndex]

_MIN_OVERLAY = 1000
_OVERLAY_SHARE = 10
MAX_LOOSE = 20_000
"""Limit for a pool of any size, since a search scans the overlay and an edit copies it."""
_PLACE = 100
"""Bytes of a candidate's place in a base: in its tuple, and in its dictionary by id."""
_LOOKUPS = 500
"""Bytes of a candidate in dictionaries: by id, by text, and while edits are joined."""
_FILTERS = 64
"""Filters whose candidates are kept with a segment: 8 KB each for 65,536 candidates."""
_STEP = 128
"""Candidates that a step of a filter checks, in 20 milliseconds for one of the most conditions."""


class Hit(NamedTuple):
    """A candidate that a search found."""

    candidate: Candidate
    score: float


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


def joined(edits: Sequence[Edit]) -> Edit:
    """Return one edit that has the effect of several in their order."""
    last: dict[str, tuple[int, int] | None] = {}
    for number, edit in enumerate(edits):
        last |= dict.fromkeys(edit.removed)
        last |= {candidate.id: (number, row) for row, candidate in enumerate(edit.candidates)}
    kept = sorted(place for place in last.values() if place is not None)
    rows: list[list[int]] = [[] for _ in edits]
    for number, row in kept:
        rows[number].append(row)
    return Edit(
        candidates=[edits[number].candidates[row] for number, row in kept],
        vectors=_gathered([(edit.vectors, of) for edit, of in zip(edits, rows, strict=True)]),
        removed=[id for id, place in last.items() if place is None],  # noqa: A001 - the field's name
    )


@dataclass(frozen=True)
class Segment:
    """Candidates, and an index of their vectors at the same places."""

    candidates: tuple[Candidate, ...]
    index: Index

    def __post_init__(self) -> None:
        """Build the lookup by id now, in the edit thread, not in the first request."""
        _ = self.by_id

    @cached_property
    def candidate_bytes(self) -> int:
        """Bytes of the candidates without their vectors; a large segment is counted once."""
        return _bytes(self.candidates)

    @cached_property
    def by_id(self) -> dict[str, int]:
        """The place of each id."""
        return {candidate.id: place for place, candidate in enumerate(self.candidates)}

    @cached_property
    def by_text(self) -> dict[str, int]:
        """A place of each text, whether or not that candidate is alive: the vector is the same."""
        return {candidate.text: place for place, candidate in enumerate(self.candidates)}

    @cached_property
    def moments(self) -> Moments:
        """Of the vectors; computed once, in tens of milliseconds."""
        return Moments.of(self.index.vectors)

    @property
    def knows_moments(self) -> bool:
        """Whether `moments` are there without any work."""
        return "moments" in vars(self)

    @cached_property
    def _matching(self) -> dict[str, Bitmap]:
        return {}

    @cached_property
    def _evaluations(self) -> dict[str, Iterator[None]]:
        return {}

    def knows(self, where: Filter) -> bool:
        """Return whether it is known which candidates a filter matches."""
        return where.source in self._matching

    def matching(self, where: Filter) -> Bitmap:
        """Return a bit for each place: whether a filter matches its candidate.

        The latest filters are kept; several threads may call this at once.
        """
        if (kept := self._matching.get(where.source)) is not None:
            return kept
        return self._keep(where, list(self._steps(where)))

    def evaluation(self, where: Filter) -> Iterator[None]:
        """Return the steps after which a filter is known; all who wait for it share them.

        If nobody takes the rest of them, the next one to wait goes on from there.
        """
        if self.knows(where):
            return iter(())
        steps = self._evaluations.setdefault(where.source, self._evaluate(where))
        _limit(self._evaluations)
        return steps

    def _evaluate(self, where: Filter) -> Iterator[None]:
        found = []
        for bits in self._steps(where):
            found.append(bits)
            yield
        self._keep(where, found)
        self._evaluations.pop(where.source, None)

    def _steps(self, where: Filter) -> Iterator[Bitmap]:
        for start in range(0, len(self.candidates), _STEP):
            some = self.candidates[start : start + _STEP]
            matches = (where.matches(candidate.metadata) for candidate in some)
            bits = np.fromiter(matches, np.bool_, len(some))
            yield np.packbits(bits, bitorder="little")

    def _keep(self, where: Filter, found: list[Bitmap]) -> Bitmap:
        matching = np.concatenate([np.empty(0, np.uint8), *found])
        self._matching[where.source] = matching
        _limit(self._matching)
        return matching


def _limit(filters: dict[str, T]) -> None:
    """Drop the oldest filters if there are too many; other threads may do so at the same time."""
    for source in list(filters)[:-_FILTERS]:
        filters.pop(source, None)


@dataclass(frozen=True)
class Contents:
    """The candidates of one version; see the top of the module.

    Attributes:
        base: The candidates at the last merge.
        overlay: The candidates that were added or replaced since.
        alive: A bit for each place of the base; None if all are alive.
        dead: Number of places of the base that are not alive.
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
    def loose(self) -> int:
        """Number of candidates in the overlay and of dead ones in the base."""
        return self.dead + len(self.overlay.candidates)

    @property
    def is_loose(self) -> bool:
        """Whether it is time to merge the overlay into a new base."""
        return self.loose > _most_loose(len(self.base.candidates))

    @property
    def bytes(self) -> int:
        """Bytes of memory that the vectors and codes take."""
        return self.base.index.bytes + self.overlay.index.bytes

    @property
    def candidate_bytes(self) -> int:
        """Bytes of the candidates: ids, texts, metadata and vectors."""
        dead = map(self.base.candidates.__getitem__, self._places(alive=False).tolist())
        without_vectors = self.base.candidate_bytes + self.overlay.candidate_bytes
        return without_vectors - _bytes(dead) + len(self) * self._vector_bytes

    def growth(self, candidates: Sequence[Candidate], removed: Sequence[str]) -> int:
        """Return by how many `candidate_bytes` an edit makes the pool larger."""
        ids = {*(candidate.id for candidate in candidates), *removed}
        before = [candidate for id in ids if (candidate := self.get(id))]  # noqa: A001
        vectors = (len(candidates) - len(before)) * self._vector_bytes
        return _bytes(candidates) - _bytes(before) + vectors

    def get(self, id: str) -> Candidate | None:  # noqa: A002 - the field's name
        """Return the candidate of an id, or None."""
        found = self._locate(id)
        return found and found[0].candidates[found[1]]

    def candidates(self) -> list[Candidate]:
        """Return all candidates, in the order of `vectors()`."""
        kept = map(self.base.candidates.__getitem__, self._places(alive=True).tolist())
        return [*kept, *self.overlay.candidates]

    def vectors(self) -> Float16:
        """Return the vectors (n, d) of all candidates, without a copy if they are in one array."""
        base, overlay = self.base.index.vectors, self.overlay.index.vectors
        if not self.loose:
            return base
        if not len(base):
            return overlay
        return _gathered([(base, self._places(alive=True)), (overlay, range(len(overlay)))])

    def take(self, ids: Sequence[str]) -> Float16:
        """Return the vectors (k, d) of k candidates.

        Raises:
            CandidateNotFound: The pool lacks one of the ids.
        """
        located = list(map(self._locate, ids))
        if None in located:
            raise CandidateNotFound(f"the pool has no candidate '{ids[located.index(None)]}'")
        taken = np.empty((len(ids), self.base.index.dimension), np.float16)
        for segment in (self.base, self.overlay):
            of_segment = [row for row, found in enumerate(located) if found and found[0] is segment]
            places = [found[1] for found in located if found and found[0] is segment]
            taken[of_segment] = segment.index.vectors[np.array(places, np.int64)]
        return taken

    def find_vectors(self, texts: Iterable[str]) -> dict[str, Float16]:
        """Return the vectors (d,) of those texts that the pool has, or had until lately."""
        return {
            text: segment.index.vectors[place].copy()  # a view would keep the whole array in memory
            for text in texts
            for segment in (self.base, self.overlay)
            if (place := segment.by_text.get(text)) is not None
        }

    def knows(self, where: Filter) -> bool:
        """Return whether it is known which candidates a filter matches."""
        return self.base.knows(where) and self.overlay.knows(where)

    def evaluation(self, where: Filter) -> Iterator[None]:
        """Yield after each step of finding out which candidates a filter matches.

        Of a large pool, all steps take seconds.
        """
        for segment in (self.base, self.overlay):
            for _ in segment.evaluation(where):
                yield

    def search(self, query: Float32, k: int, where: Filter | None = None) -> list[Hit]:
        """Return the k candidates with the largest inner products, best first, ties by id.

        Any of those that tie for the last place may be among them: finding all ties would slow down
        every search.

        Args:
            query: (d,).
            k: At least 1.
            where: Leaves out the candidates that it does not match.

        Raises:
            ValueError: The query is not a finite vector of d numbers.
        """
        hits = []
        for segment, allowed in self._searched(where):
            places, scores = segment.index.search(query, k, allowed)
            hits += [
                Hit(segment.candidates[place], score)
                for place, score in zip(places.tolist(), scores.tolist(), strict=True)
            ]
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
            found = (bits for _, bits in self._searched(where) if bits is not None)
            candidates = sum(int(np.bitwise_count(bits).sum()) for bits in found)
        return self.larger.moments.spread(query, candidates)

    def _searched(self, where: Filter | None) -> Iterator[tuple[Segment, Bitmap | None]]:
        """Yield the segments, each with a bit for each place that a search may return."""
        for segment, alive in ((self.base, self.alive), (self.overlay, None)):
            if not segment.candidates:
                continue
            allowed = alive
            if where:
                matching = segment.matching(where)
                allowed = matching if alive is None else matching & alive
            yield segment, allowed

    def after(self, edits: Sequence[Edit], make_flat: MakeFlat) -> "Contents":
        """Return the contents after edits, which are applied in order."""
        first, *others = edits  # the first of a whole log holds most: it becomes the base uncopied
        contents = self
        for edit in (first, joined(others)) if others else (first,):
            contents = contents._edited(edit, make_flat)
            if contents.base.index.kind == "flat" and contents.is_loose:
                contents = contents.merged(make_flat)
        return contents

    @property
    def bytes_merged(self) -> int:
        """Bytes of memory that `merged` takes, without the index."""
        copied = self._vector_bytes if self.loose and self.base.candidates else 0
        return len(self) * (copied + _PLACE)

    def bytes_after(self, counts: Sequence[int]) -> int:
        """Return the bytes of memory that `after` and making its edits take at most.

        The objects of the candidates are not counted.

        Args:
            counts: Number of candidates of each edit.
        """
        vector = self._vector_bytes
        base, new = len(self.base.candidates), sum(counts)
        needed = new * (vector + _LOOKUPS)
        needed += len(self.overlay.candidates) * (vector + _PLACE)  # the next overlay
        if not base:  # the first edit becomes the base
            base, new = counts[0], new - counts[0]
        if self.base.index.kind == "flat" and self.loose + 2 * new > _most_loose(base):
            needed += (base + new) * (vector + _PLACE)  # the merged base
        return needed

    def merged(self, make_index: Callable[[Float16], Index]) -> "Contents":
        """Return the same candidates in one base, with an index made from their vectors."""
        nothing = Contents.empty(self.base.index.dimension)
        return replace(nothing, base=Segment(tuple(self.candidates()), make_index(self.vectors())))

    def with_base_index(self, index: Index) -> "Contents":
        """Return the same candidates with another index of the vectors of the base."""
        return replace(self, base=Segment(self.base.candidates, index))

    def _edited(self, edit: Edit, make_flat: MakeFlat) -> "Contents":
        touched = {candidate.id for candidate in edit.candidates} | set(edit.removed)
        kept = [n for n, c in enumerate(self.overlay.candidates) if c.id not in touched]
        vectors = edit.vectors
        if kept:
            before = self.overlay.index.vectors
            vectors = _gathered([(before, kept), (vectors, range(len(vectors)))])
        candidates = [*(self.overlay.candidates[n] for n in kept), *edit.candidates]
        overlay = Segment(tuple(candidates), make_flat(vectors))
        dying = [place for id in touched if (place := self._alive_in_base(id)) is not None]  # noqa: A001
        return replace(self._without(dying), overlay=overlay)

    def _without(self, dying: list[int]) -> "Contents":
        if not dying:
            return self
        size = -(-len(self.base.candidates) // 8)
        alive = np.full(size, 255, np.uint8) if self.alive is None else self.alive.copy()
        places = np.array(dying)
        np.bitwise_and.at(alive, places // 8, ~(1 << (places % 8)).astype(np.uint8))
        return replace(self, alive=alive, dead=self.dead + len(dying))

    def _locate(self, id: str) -> tuple[Segment, int] | None:  # noqa: A002 - the field's name
        if (place := self.overlay.by_id.get(id)) is not None:
            return self.overlay, place
        if (place := self._alive_in_base(id)) is not None:
            return self.base, place
        return None

    def _alive_in_base(self, id: str) -> int | None:  # noqa: A002 - the field's name
        place = self.base.by_id.get(id)
        if place is None or self.alive is None or self.alive[place // 8] >> (place % 8) & 1:
            return place
        return None

    @property
    def _vector_bytes(self) -> int:
        """Bytes of one vector, in float16."""
        return 2 * self.base.index.dimension

    def _places(self, *, alive: bool) -> Places:
        """Return the places of the base that are alive, or those that are not."""
        size = len(self.base.candidates)
        if self.alive is None:
            return np.arange(size if alive else 0)
        bits = np.unpackbits(self.alive, count=size, bitorder="little")
        return np.flatnonzero(bits == alive)


def _bytes(candidates: Iterable[Candidate]) -> int:
    return sum(candidate.bytes for candidate in candidates)


def _most_loose(base: int) -> int:
    return max(_MIN_OVERLAY, min(base // _OVERLAY_SHARE, MAX_LOOSE))


def _gathered(parts: Sequence[tuple[Float16, Sequence[int] | Places]]) -> Float16:
    """Return some rows of several arrays in one array, each copied once."""
    gathered = np.empty((sum(len(rows) for _, rows in parts), parts[0][0].shape[1]), np.float16)
    start = 0
    for vectors, rows in parts:
        end = start + len(rows)
        places = np.asarray(rows, np.int64)
        np.take(vectors, places, 0, gathered[start:end], mode="clip")  # no buffer
        start = end
    return gathered

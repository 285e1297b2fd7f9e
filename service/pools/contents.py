"""The candidates of one version of a pool, and edits, which make the next version of them.

Contents are immutable: a large base and a small overlay of later candidates. A bitmap marks the
candidates of the base that were not replaced or removed since. Every edit copies the overlay, which
is merged into a new base before the copy costs much.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.service.errors import CandidateNotFound
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.index import Bitmap, FlatIndex, Float16, Index, Places

MakeFlat = Callable[[Float16], FlatIndex]

_MIN_OVERLAY = 1000
_OVERLAY_SHARE = 10
_MAX_LOOSE = 20_000
"""Limit for a pool of any size, since a search scans the overlay and an edit copies it."""


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
        vectors=np.concatenate([edit.vectors[of] for edit, of in zip(edits, rows, strict=True)]),
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
    def by_id(self) -> dict[str, int]:
        """The place of each id."""
        return {candidate.id: place for place, candidate in enumerate(self.candidates)}

    @cached_property
    def by_text(self) -> dict[str, int]:
        """A place of each text, whether or not that candidate is alive: the vector is the same."""
        return {candidate.text: place for place, candidate in enumerate(self.candidates)}


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
        share = len(self.base.candidates) // _OVERLAY_SHARE
        return self.loose > max(_MIN_OVERLAY, min(share, _MAX_LOOSE))

    @property
    def bytes(self) -> int:
        """Bytes of memory that the vectors and codes take."""
        return self.base.index.bytes + self.overlay.index.bytes

    def get(self, id: str) -> Candidate | None:  # noqa: A002 - the field's name
        """Return the candidate of an id, or None."""
        found = self._locate(id)
        return found and found[0].candidates[found[1]]

    def candidates(self) -> list[Candidate]:
        """Return all candidates, in the order of `vectors()`."""
        kept = map(self.base.candidates.__getitem__, self._alive_places().tolist())
        return [*kept, *self.overlay.candidates]

    def vectors(self) -> Float16:
        """Return the vectors (n, d) of all candidates, without a copy if they are in one array."""
        base, overlay = self.base.index.vectors, self.overlay.index.vectors
        if not self.loose:
            return base
        if not len(base):
            return overlay
        vectors = np.empty((len(self), base.shape[1]), np.float16)
        kept = len(self) - len(overlay)
        np.take(base, self._alive_places(), 0, vectors[:kept], mode="clip")  # no buffer
        vectors[kept:] = overlay
        return vectors

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

    def encoded(self, texts: Iterable[str]) -> dict[str, Float16]:
        """Return the vectors (d,) of those texts that the pool has, or had until lately."""
        return {
            text: segment.index.vectors[place].copy()  # a view would keep the whole array in memory
            for text in texts
            for segment in (self.base, self.overlay)
            if (place := segment.by_text.get(text)) is not None
        }

    def search(self, query: Float32, k: int) -> list[Hit]:
        """Return the k candidates with the largest inner products, best first, ties by id.

        Raises:
            ValueError: The query is not a finite vector of d numbers.
        """
        hits = []
        for segment, alive in ((self.base, self.alive), (self.overlay, None)):
            places, scores = segment.index.search(query, k, alive)
            hits += [
                Hit(segment.candidates[place], score)
                for place, score in zip(places.tolist(), scores.tolist(), strict=True)
            ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.candidate.id))[:k]

    def after(self, edits: Sequence[Edit], make_flat: MakeFlat) -> "Contents":
        """Return the contents after edits, which are applied in order."""
        edit = edits[0] if len(edits) == 1 else joined(edits)
        edited = self._edited(edit, make_flat)
        if edited.base.index.kind == "flat" and edited.is_loose:
            return edited.merged(make_flat)
        return edited

    def merged(self, make_index: Callable[[Float16], Index]) -> "Contents":
        """Return the same candidates in one base, with an index made from their vectors."""
        nothing = Contents.empty(self.base.index.dimension)
        return replace(nothing, base=Segment(tuple(self.candidates()), make_index(self.vectors())))

    def _edited(self, edit: Edit, make_flat: MakeFlat) -> "Contents":
        touched = {candidate.id for candidate in edit.candidates} | set(edit.removed)
        kept = [n for n, c in enumerate(self.overlay.candidates) if c.id not in touched]
        vectors = edit.vectors
        if kept:
            vectors = np.concatenate([self.overlay.index.vectors[kept], vectors])
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

    def _alive_places(self) -> Places:
        size = len(self.base.candidates)
        if self.alive is None:
            return np.arange(size)
        return np.flatnonzero(np.unpackbits(self.alive, count=size, bitorder="little"))

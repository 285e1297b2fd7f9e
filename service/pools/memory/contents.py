"""`Contents`: the candidates of one version of a pool. Edits make the next version of them.

Contents are immutable: a large base and a small overlay of later candidates. A bitmap marks the
candidates of the base that were not replaced or removed since. Every edit copies the overlay, which
is merged into a new base before the copy costs much.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Spread
from turnwise.models.texts import fold_text
from turnwise.service.errors import CandidateNotFound
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Filter
from turnwise.service.pools.listing import CandidateTest, Page
from turnwise.service.pools.memory.edits import Edit, join_edits
from turnwise.service.pools.memory.examples import ExampleIndex, Examples, Size, gather_examples
from turnwise.service.pools.memory.flat import (
    Bitmap,
    FlatIndex,
    Float16,
    Index,
    Indices,
    find_set_bits,
    gather,
)
from turnwise.service.pools.memory.packed import count_copied, pack
from turnwise.service.pools.memory.segment import Hit, MakeIndex, Match, Segment, count_bytes
from turnwise.service.pools.memory.vectors import count_memory

MakeFlat = Callable[[Float16], FlatIndex]

_MIN_OVERLAY = 1000
_OVERLAY_SHARE = 10
MAX_UNMERGED = 20_000
"""Limit for a pool of any size, since a search scans the overlay and an edit copies it."""
_ENTRY_BYTES = 40
"""Bytes of a candidate in a base and in its table of ids, or of an example in the table of
texts."""
_LOOKUP_BYTES = 400
"""Bytes of a candidate in the table by text, and in dictionaries while edits are joined."""
_ROW_BYTES = 24
"""Bytes of an example's row numbers while its vector is copied."""


@dataclass(frozen=True, slots=True)
class _Location:
    """A candidate's segment, and its index there."""

    segment: Segment
    index: int


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
        nothing = Segment.of((), np.empty((0, dimension), np.float16), None, FlatIndex)
        return cls(nothing, nothing)

    def __len__(self) -> int:
        return len(self.base.candidates) - self.dead + len(self.overlay.candidates)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._locate(id) is not None

    @property
    def unmerged(self) -> int:
        """Number of candidates in the overlay, and of dead ones in the base."""
        return self.dead + len(self.overlay.candidates)

    @property
    def is_due(self) -> bool:
        """Whether it is time to merge the overlay into a new base."""
        unmerged = self.dead + self.overlay.size.vectors
        return unmerged > _merge_limit(self.base.size.vectors)

    @cached_property
    def example_count(self) -> int:
        """Number of the examples of all candidates."""
        count = len(self.overlay.examples) if self.overlay.examples else 0
        if self.base.examples:
            count += int(self.base.examples.count(self._base_indices(alive=True)).sum())
        return count

    @property
    def bytes(self) -> int:
        """Bytes of memory that the vectors and codes take."""
        return self.base.bytes + self.overlay.bytes

    @property
    def candidate_bytes(self) -> int:
        """Bytes of the candidates: texts, ids, metadata, and a vector for each text or example."""
        dead = (self.base.candidates[index] for index in self._base_indices(alive=False).tolist())
        all_bytes = self.base.candidate_bytes + self.overlay.candidate_bytes
        return all_bytes - count_bytes(dead, self.base.index.dimension)

    def size_after(self, candidates: Sequence[Candidate], removed: Sequence[str]) -> int:
        """Return the number of candidates after an edit that removes ids that are here."""
        added = sum(candidate.id not in self for candidate in candidates)
        return len(self) + added - len(removed)

    def growth(self, candidates: Sequence[Candidate], removed: Sequence[str]) -> int:
        """Return by how many `candidate_bytes` an edit makes the pool larger."""
        ids = {*(candidate.id for candidate in candidates), *removed}
        before = [candidate for candidate in map(self.get, ids) if candidate]
        dimension = self.base.index.dimension
        return count_bytes(candidates, dimension) - count_bytes(before, dimension)

    def get(self, id: str) -> Candidate | None:
        """Return the candidate of an id, or None."""
        location = self._locate(id)
        if location is None:
            return None
        return location.segment.candidates[location.index]

    def groups_of(self, texts: Collection[str]) -> frozenset[str]:
        """Return the groups of the candidates with these texts, as `fold_text` gives them."""
        wordings = self._find_alive(lambda segment: segment.lookups.wordings, texts)
        return frozenset(each.group for each in wordings if each.group is not None)

    def find_followers(self, reply: str | None, text: str) -> tuple[list[str], list[Candidate]]:
        """Return the names of a reply, its id and its group, and the candidates that follow it.

        Args:
            reply: The id of the reply; None to find it by its text.
            text: Its text, which is compared by `fold_text`.
        """
        names = self._name_reply(reply, text)
        followers = self._find_alive(lambda segment: segment.lookups.followers, names)
        distinct = {candidate.id: candidate for candidate in followers}
        return names, list(distinct.values())

    def _find_alive(
        self, table_of: Callable[[Segment], Mapping[str, Sequence[int]]], names: Collection[str]
    ) -> Iterator[Candidate]:
        """Yield the candidates that a table of the segments has for some names."""
        for segment in (self.base, self.overlay):
            table = table_of(segment)
            for index in chain.from_iterable(table.get(name, ()) for name in names):
                if segment is self.overlay or self._is_alive(index):
                    yield segment.candidates[index]

    def _name_reply(self, reply: str | None, text: str) -> list[str]:
        if not self.has_followers:
            return []
        if reply is None:
            folded = fold_text(text)
            return [*self._followed_texts.get(folded, ()), *sorted(self.groups_of([folded]))]
        candidate = self.get(reply)
        group = candidate.group if candidate else None
        return [reply, group] if group else [reply]

    @cached_property
    def _followed_texts(self) -> dict[str, list[str]]:
        """The ids of the candidates that others follow, by their folded texts."""
        ids = defaultdict[str, list[str]](list)
        for name in {*self.base.lookups.followers, *self.overlay.lookups.followers}:
            if candidate := self.get(name):
                ids[fold_text(candidate.text)].append(name)
        return dict(ids)

    @property
    def has_followers(self) -> bool:
        """Whether any candidate follows a reply."""
        return bool(self.base.lookups.followers or self.overlay.lookups.followers)

    def candidates(self) -> Sequence[Candidate]:
        """Return all candidates, in the order of `vectors()`, without a copy if it can be."""
        if not self.unmerged:
            return self.base.candidates
        if not self.base.candidates:
            return self.overlay.candidates
        kept = (self.base.candidates[index] for index in self._base_indices(alive=True).tolist())
        return pack(chain(kept, self.overlay.candidates))

    def vectors(self) -> Float16:
        """Return the vectors (n, d) of all candidates, without a copy if they are in one array."""
        base = self.base.index.vectors
        overlay = self.overlay.index.vectors
        if not self.unmerged:
            return base
        if not len(base):
            return overlay
        return gather([(base, self._base_indices(alive=True)), (overlay, range(len(overlay)))])

    def examples(self) -> Examples | None:
        """Return the examples of all candidates, in the order of `candidates()`; None if none."""
        base = self.base.examples
        overlay = self.overlay.examples
        if not self.unmerged:
            return base
        if not self.base.candidates:
            return overlay
        all_indices = range(len(self.overlay.candidates))
        return gather_examples([(base, self._base_indices(alive=True)), (overlay, all_indices)])

    def take_examples(self, ids: Iterable[str]) -> Examples | None:
        """Return the examples of some candidates that the pool has; None if they have none."""
        locations = [location for location in map(self._locate, ids) if location]
        return gather_examples([(each.segment.examples, [each.index]) for each in locations])

    def take(self, ids: Sequence[str]) -> Float16:
        """Return the vectors (k, d) of k candidates.

        Raises:
            CandidateNotFound: The pool lacks one of the ids.
        """
        taken = np.empty((len(ids), self.base.index.dimension), np.float16)
        for row, id in enumerate(ids):
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

    def find_example_vectors(self, texts: Iterable[str]) -> dict[str, Float16]:
        """Return the vectors (d,) of those texts that are examples in the pool, or were lately."""
        segments = [each for each in (self.base, self.overlay) if each.examples]
        vectors: dict[str, Float16] = {}
        for text in texts:
            for segment in segments:
                row = segment.example_rows.get(text)
                if row is not None and segment.examples:
                    vectors[text] = segment.examples.vectors[row].copy()
        return vectors

    def has_evaluated(self, test: CandidateTest) -> bool:
        """Return whether the candidates that pass a test, such as a filter, are known."""
        return self.base.has_evaluated(test) and self.overlay.has_evaluated(test)

    def evaluate(self, test: CandidateTest) -> Iterator[None]:
        """Test all candidates, and yield after each step; a large pool takes seconds."""
        for segment in (self.base, self.overlay):
            for _ in segment.evaluate(test):  # `yield from` would close steps that others share
                yield

    @property
    def knows_order(self) -> bool:
        """Whether `list_page` takes milliseconds; its first call takes up to seconds."""
        return self.base.knows_order and self.overlay.knows_order

    def list_page(self, after: str, limit: int, tests: Sequence[CandidateTest]) -> Page:
        """Return the candidates after an id that pass all tests, in the order of ids.

        Args:
            after: The id; empty for the first page.
            limit: Most candidates of the page.
            tests: The tests, which have been evaluated.
        """
        found: list[Candidate] = []
        matching = 0
        for segment, allowed in self._select(*tests):
            found += segment.list_after(after, limit + 1, allowed)
            size = len(segment.candidates)
            matching += size if allowed is None else len(find_set_bits(allowed, size))
        found.sort(key=lambda candidate: candidate.id)
        page = found[:limit]
        return Page(page, page[-1].id if len(found) > limit else None, matching)

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

    def search_examples(self, said: Float32, k: int, where: Filter | None = None) -> list[Hit]:
        """Return the k candidates with the best examples, best first, ties by id; as `search`.

        Args:
            said: (d,).
            k: At least 1.
            where: Leaves out the candidates that it does not match.

        Raises:
            ValueError: `said` is not a finite vector of d numbers.
        """
        hits: list[Hit] = []
        for segment, allowed in self._select(where):
            if segment.example_index:
                allowed_rows = self._alive_examples if segment is self.base else None
                if where and allowed is not None:
                    allowed_rows = segment.example_index.examples.select_rows(allowed)
                rows, scores = segment.example_index.search(said, k, allowed_rows)
                hits += segment.make_hits(rows, scores)
        return sorted(hits, key=lambda hit: (-hit.score, hit.candidate.id))[:k]

    @cached_property
    def _alive_examples(self) -> Bitmap | None:
        """A bit for each example of the base: whether its candidate is alive; None if all are."""
        if self.alive is None or self.base.examples is None:
            return None
        return self.base.examples.select_rows(self.alive)

    def best_examples(self, said: Float32, ids: Sequence[str]) -> list[Match | None]:
        """Return the best example of each of k candidates; None if it has none, or is not there.

        Args:
            said: (d,).
            ids: Their ids.
        """
        matches: dict[str, Match | None] = {}
        locations = [location for location in map(self._locate, ids) if location]
        for segment in (self.base, self.overlay):
            indices = [
                each.index
                for each in locations
                if each.segment is segment and segment.candidates[each.index].example_count
            ]
            if segment.example_index and indices:
                found = segment.example_index.find_best(said, np.array(indices))
                matches |= {hit.candidate.id: hit.match for hit in segment.make_hits(*found)}
        return [matches.get(each) for each in ids]

    @property
    def larger_segment(self) -> Segment:
        """The larger of the two segments; its moments are used for all candidates."""
        return max(self.base, self.overlay, key=lambda segment: len(segment.candidates))

    def spread(self, query: Float32, where: Filter | None = None) -> Spread:
        """Return the mean and deviation of a query's scores, and how many answers there are.

        The moments cover all candidates, even if a filter leaves only some of them.
        """
        candidates = len(self)
        if where:
            candidates = self.count_matches(where)
        return self.larger_segment.spread(query, candidates)

    def count_matches(self, where: Filter) -> int:
        """Return the number of candidates that a filter matches."""
        allowed = (bits for _, bits in self._select(where) if bits is not None)
        return sum(int(np.bitwise_count(bits).sum()) for bits in allowed)

    @property
    def knows_example_moments(self) -> bool:
        """Whether `example_spread` takes microseconds; its first call takes milliseconds."""
        return self._larger_example_index.knows_moments

    def example_spread(self, said: Float32, where: Filter | None = None) -> Spread:
        """Return the mean and deviation of the cosines with all examples, as `spread` does.

        Raises:
            ValueError: The pool has no examples.
        """
        count = self.example_count
        if where:
            count = sum(
                int(segment.examples.count(find_set_bits(bits, len(segment.candidates))).sum())
                for segment, bits in self._select(where)
                if segment.examples and bits is not None
            )
        return self._larger_example_index.moments.spread(said, count)

    @property
    def _larger_example_index(self) -> ExampleIndex:
        """The larger of the indexes of examples."""
        indexes = [each.example_index for each in (self.base, self.overlay) if each.example_index]
        return max(indexes, key=lambda each: len(each.examples))

    def _select(self, *tests: CandidateTest | None) -> Iterator[tuple[Segment, Bitmap | None]]:
        """Yield the segments, each with a bit for each candidate: whether it is alive and passes.

        None means all candidates of a segment.
        """
        for segment, alive in ((self.base, self.alive), (self.overlay, None)):
            if not segment.candidates:
                continue
            allowed = alive
            for test in filter(None, tests):
                matching = segment.match(test)
                allowed = matching if allowed is None else matching & allowed
            yield segment, allowed

    def after(self, edits: Sequence[Edit], make_flat: MakeFlat) -> "Contents":
        """Return the contents after edits, which are applied in order."""
        first, *others = edits  # the first of a whole log becomes the base, without a copy
        joined = [first, join_edits(others)] if others else [first]
        contents = self
        for edit in joined:
            contents = contents._apply(edit, make_flat)
            if contents.base.is_exact and contents.is_due:
                contents = contents.merge(make_flat)
        return contents

    @property
    def merge_bytes(self) -> int:
        """Bytes of memory that `merge` takes, without the index."""
        if self.unmerged and self.base.candidates:
            texts = count_copied(self.base.candidates) + count_copied(self.overlay.candidates)
            return self._copy_bytes(Size(len(self), self.example_count)) + texts
        return len(self) * _ENTRY_BYTES

    def edit_bytes(self, sizes: Sequence[Size]) -> int:
        """Return the bytes of memory that `after` and making its edits take at most.

        The objects of the candidates are not counted.

        Args:
            sizes: The sizes of the edits.
        """
        edits = Size.total(sizes)
        joined = Size.total(sizes[1:])  # `after` joins all edits but the first
        tables = edits.candidates * _LOOKUP_BYTES + edits.examples * _ENTRY_BYTES
        made_edits = sum(map(self._copy_bytes, sizes))
        joined_edit = self._vector_bytes(joined)
        copied_overlay = self._copy_bytes(self.overlay.size)
        if self.base.candidates:
            merge = self._edit_merge_bytes(self.base.size, edits)
        else:  # the first edit becomes the base
            merge = self._edit_merge_bytes(sizes[0], joined)
        return tables + made_edits + joined_edit + copied_overlay + merge

    def _edit_merge_bytes(self, base: Size, added: Size) -> int:
        """Return the bytes that `after` takes to merge; 0 if it is sure not to merge.

        Args:
            base: The size of the base.
            added: The size of what edits add to it.
        """
        # Each new vector may replace one of the base, which then counts as dead.
        unmerged = self.dead + self.overlay.size.vectors + 2 * added.vectors
        if not self.base.is_exact or unmerged <= _merge_limit(base.vectors):
            return 0
        copied = self._copy_bytes(base) + self._copy_bytes(added)
        return copied + count_copied(self.base.candidates)

    def merge(
        self, make_index: MakeIndex, make_example_index: MakeIndex | None = None
    ) -> "Contents":
        """Return the same candidates in one base, with indexes made as `Segment.of` says."""
        nothing = Contents.empty(self.base.index.dimension)
        base = Segment.of(
            self.candidates(), self.vectors(), self.examples(), make_index, make_example_index
        )
        return replace(nothing, base=base)

    def with_base_indexes(self, index: Index, example_index: Index | None) -> "Contents":
        """Return the same candidates with other indexes of the vectors of the base."""
        examples = self.base.examples
        with_examples = (
            ExampleIndex(examples, example_index) if examples and example_index else None
        )
        return replace(self, base=replace(self.base, index=index, example_index=with_examples))

    def _apply(self, edit: Edit, make_flat: MakeFlat) -> "Contents":
        if not len(self):
            overlay = Segment.of(edit.candidates, edit.vectors, edit.examples, make_flat)
            return replace(self, overlay=overlay)
        touched = {candidate.id for candidate in edit.candidates} | set(edit.removed)
        before = self.overlay.candidates
        kept = [index for index, candidate in enumerate(before) if candidate.id not in touched]
        vectors = edit.vectors
        examples = edit.examples
        if kept:
            earlier = self.overlay
            all_indices = range(len(vectors))
            vectors = gather([(earlier.index.vectors, kept), (vectors, all_indices)])
            examples = gather_examples([(earlier.examples, kept), (examples, all_indices)])
        candidates = chain((before[index] for index in kept), edit.candidates)
        overlay = Segment.of(candidates, vectors, examples, make_flat)
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

    def _locate(self, id: str) -> _Location | None:
        index = self.overlay.lookups.by_id.get(id)
        if index is not None:
            return _Location(self.overlay, index)
        index = self._find_in_base(id)
        if index is not None:
            return _Location(self.base, index)
        return None

    def _find_in_base(self, id: str) -> int | None:
        """Return the index of an id in the base; None if it is not there or not alive."""
        index = self.base.lookups.by_id.get(id)
        return index if index is not None and self._is_alive(index) else None

    def _is_alive(self, index: int) -> bool:
        """Return whether a candidate of the base is alive."""
        if self.alive is None:
            return True
        byte, bit = divmod(index, 8)
        return bool(self.alive[byte] >> bit & 1)

    def _copy_bytes(self, size: Size) -> int:
        """Return the bytes of a segment into which the vectors are copied, without its indexes."""
        return (
            self._vector_bytes(size) + size.candidates * _ENTRY_BYTES + size.examples * _ROW_BYTES
        )

    def _vector_bytes(self, size: Size) -> int:
        """Return the bytes of memory that the vectors of a segment take."""
        dimension = self.base.index.dimension
        return sum(count_memory(count, dimension) for count in size)

    def _base_indices(self, *, alive: bool) -> Indices:
        """Return the indices of the candidates of the base that are alive, or of the others."""
        size = len(self.base.candidates)
        if self.alive is None:
            return np.arange(size if alive else 0)
        return find_set_bits(self.alive if alive else ~self.alive, size)


def _merge_limit(base: int) -> int:
    """Return how many vectors may stay unmerged, by the number in the base."""
    return max(_MIN_OVERLAY, min(base // _OVERLAY_SHARE, MAX_UNMERGED))

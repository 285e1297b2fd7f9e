"""Edits: what changes from one version of a pool to the next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.memory.examples import Examples, Size, gather_examples
from turnwise.service.pools.memory.flat import Float16, gather
from turnwise.service.pools.memory.packed import pack


@dataclass(frozen=True, slots=True)
class Edit:
    """The change of one version: it removes ids, then adds or replaces candidates.

    Attributes:
        candidates: n candidates with distinct ids, none of them in `removed`.
        vectors: Their vectors (n, d).
        removed: Ids; those that the pool lacks are ignored.
        examples: Their examples; None if none has any.
    """

    candidates: Sequence[Candidate]
    vectors: Float16
    removed: Sequence[str] = ()
    examples: Examples | None = None

    @property
    def size(self) -> Size:
        """The numbers of candidates and examples that the edit adds or replaces."""
        return Size(len(self.candidates), len(self.examples) if self.examples else 0)


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
    examples = [edit.examples for edit in edits]
    return Edit(
        candidates=pack(edits[number].candidates[index] for number, index in kept),
        vectors=gather(list(zip(vectors, indices, strict=True))),
        removed=[id for id, found in newest.items() if found is None],
        examples=gather_examples(list(zip(examples, indices, strict=True))),
    )


def split_edit(edit: Edit, most: int) -> Iterator[Edit]:
    """Yield an edit's candidates with their examples, in parts of at most `most` vectors."""
    total = np.arange(len(edit.candidates) + 1)
    if edit.examples:
        total += edit.examples.offsets
    start = 0
    while start < len(edit.candidates):
        end = int(np.searchsorted(total, total[start] + most, side="right")) - 1
        end = max(end, start + 1)
        examples = edit.examples.select(start, end) if edit.examples else None
        yield Edit(edit.candidates[start:end], edit.vectors[start:end], (), examples)
        start = end

"""What one version of a pool changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.index import Float16


@dataclass(frozen=True, slots=True)
class Edit:
    """What one version changes: the removed ids go, the candidates come or are replaced.

    Attributes:
        candidates: n of distinct ids, none of which is removed.
        vectors: (n, d), theirs.
        removed: Ids; what is not there need not go.
    """

    candidates: Sequence[Candidate]
    vectors: Float16
    removed: Sequence[str] = ()


def joined(edits: Sequence[Edit]) -> Edit:
    """Return one edit that does what some do one after the other."""
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
        removed=[id for id, place in last.items() if place is None],  # noqa: A001 - what it is
    )

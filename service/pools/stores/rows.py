"""Rows of a candidate store: those of candidates, and those of their examples.

Each collection has a second one, `<collection>_examples`, with a row for each example. Such a row
is a candidate, too, so an engine needs no other methods for it: its text is the example, its
metadata are those of the candidate, for filters, and its group is the id of the candidate.

Examples are written before their candidates, and removed after them, so a candidate in a store has
all its examples, even if an edit was interrupted. The row of a candidate names them. A row of an
example that it does not name is left over from such an edit, and searches ignore it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from turnwise.service.pools.candidate import Candidate, Learned
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.stores.store import SCANNED, CandidateStore, Stored
from turnwise.service.pools.view import CandidateBatch


def to_row(candidate: Candidate) -> dict[str, Any]:
    """Return the fields of a candidate as every engine keeps them, without its vector."""
    return {
        "id": candidate.id,
        "text": candidate.text,
        "metadata": json.dumps(candidate.metadata),
        "examples": list(candidate.examples),
        "learned": [json.dumps(each) for each in candidate.learned],
        "group": candidate.group or "",
        "body": candidate.body or "",
    }


def from_row(row: Mapping[str, Any]) -> Candidate:
    """Return the candidate of a row; a row of an earlier release lacks some fields."""
    return Candidate.of(
        row["text"],
        row["id"],
        json.loads(row["metadata"]),
        examples=row.get("examples", ()),
        group=row.get("group") or None,
        learned=(Learned(*json.loads(each)) for each in row.get("learned", ())),
        body=row.get("body") or None,
    )


def name_examples(collection: str) -> str:
    """Return the name of the collection of the examples of another collection."""
    return f"{collection}_examples"


def example_row(candidate: Candidate, example: str) -> Candidate:
    """Return the row of an example of a candidate."""
    named = json.dumps([candidate.id, example])
    id = hashlib.sha256(named.encode()).hexdigest()
    return Candidate(id, example, candidate.metadata_json, group=candidate.id)


def example_rows(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the row of each example of some candidates, as `CandidateBatch` orders them."""
    return [example_row(each, example) for each in candidates for example in each.all_examples]


def to_batch(stored: Sequence[Stored], dimension: int = 0) -> CandidateBatch:
    """Return candidates with the vectors of their texts; without any, these are (0, d)."""
    if not stored:
        nothing = np.empty((0, dimension), np.float16)
        return CandidateBatch([], nothing, nothing)
    vectors = np.stack([one.vector for one in stored])
    return CandidateBatch([one.candidate for one in stored], vectors, vectors[:0])


async def fetch_rows(
    store: CandidateStore, collection: str, ids: Sequence[str]
) -> dict[str, Stored]:
    """Return those of any number of rows that a collection has, by id."""
    has: dict[str, Stored] = {}
    for start in range(0, len(ids), SCANNED):
        has |= await store.fetch(collection, ids[start : start + SCANNED])
    return has


async def write(store: CandidateStore, collection: str, batch: CandidateBatch) -> None:
    """Add or replace any number of candidates with their examples."""
    rows = example_rows(batch.candidates)
    distinct = {row.id: index for index, row in enumerate(rows)}
    indices = list(distinct.values())
    examples = [rows[index] for index in indices]
    await _write(store, name_examples(collection), examples, batch.examples[indices])
    await _write(store, collection, batch.candidates, batch.vectors)


async def _write(
    store: CandidateStore, collection: str, rows: Sequence[Candidate], vectors: Float16
) -> None:
    for start in range(0, len(rows), SCANNED):
        some = slice(start, start + SCANNED)
        await store.upsert(collection, rows[some], vectors[some])


async def remove(store: CandidateStore, collection: str, candidates: Sequence[Candidate]) -> None:
    """Remove candidates with their examples."""
    await store.remove(collection, [candidate.id for candidate in candidates])
    examples = [row.id for row in example_rows(candidates)]
    await store.remove(name_examples(collection), examples)

"""Candidates as bytes: compressed JSON, and float16 vectors. Never a pickle."""

import json
import zlib
from collections.abc import Sequence

import numpy as np

from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.index import Float16


def dumped(candidates: Sequence[Candidate]) -> bytes:
    """Return candidates as compressed JSON."""
    rows = [[candidate.id, candidate.text, candidate.metadata] for candidate in candidates]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)


def loaded(
    candidates: bytes, vectors: bytes | None, dimension: int
) -> tuple[list[Candidate], Float16 | None]:
    """Return n candidates, and their vectors (n, d); None where there are none that fit them."""
    found = [Candidate(*row) for row in json.loads(zlib.decompress(candidates))]
    if vectors is None or len(vectors) != 2 * dimension * len(found):
        return found, None
    return found, np.frombuffer(vectors, np.float16).reshape(len(found), dimension)

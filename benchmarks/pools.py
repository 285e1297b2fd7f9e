"""Generates utterances and pools for benchmarks, in any number.

All utterances differ, so that no cache holds them. The vectors of a pool are mixtures of those of
the example replies, with noise, so that nobody has to encode millions of texts. Queries are running
queries of utterances that the pool does not contain.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, count, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import ROOT
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Relation, Role
from turnwise.models.scores import rows, running_query
from turnwise.service.pools import Candidate
from turnwise.service.pools.files.parts import FORMAT, EncodedBy, Part, PartsFolder, PartsManifest
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.settings import Settings

Float16 = NDArray[np.float16]

REPLIES = ROOT / "examples" / "replies.jsonl"
SEEDS = count()
"""Seeds of utterances: no two measurements share a text, which a cache would hold."""

_BLOCK = 4000
_NOISE = 0.5


def plain_encoder() -> UtteranceEncoder:
    """Return the model of the settings in float32, as torch computes it on a CPU."""
    return UtteranceEncoder(Settings().model, device="cpu")


@cache
def replies(path: Path = REPLIES) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


def mixed(seeds: Float32, size: int) -> Iterator[tuple[NDArray[np.int64], Float32]]:
    """Yield blocks: the index of each vector's main seed (n,), and unit vectors (n, d)."""
    rng = np.random.default_rng(0)
    for start in range(0, size, _BLOCK):
        n = min(_BLOCK, size - start)
        one, other = rng.integers(len(seeds), size=(2, n))
        share = rng.uniform(0.2, 0.6, (n, 1)).astype(np.float32)
        noise = rng.standard_normal((n, seeds.shape[1]), np.float32)
        vectors = (1 - share) * seeds[one] + share * seeds[other]
        vectors += noise * np.float32(_NOISE / seeds.shape[1] ** 0.5)
        yield one, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def pool_like(seeds: Float32, size: int) -> Float32:
    """Return the unit vectors (size, d) of a pool."""
    return np.concatenate([vectors for _, vectors in mixed(seeds, size)])


def queries_like(encoder: UtteranceEncoder, number: int = 64) -> Float32:
    """Return running queries (number, d) of contexts of four utterances."""
    said = list(chain.from_iterable(islice(sayings(next(SEEDS)), 4) for _ in range(number)))
    first, second = context_vectors(encoder, said)
    contexts = [slice(start, start + 4) for start in range(0, len(said), 4)]
    return np.stack([running_query(rows(first[c], second[c])) for c in contexts])


def context_vectors(encoder: UtteranceEncoder, said: Sequence[str]) -> tuple[Float32, Float32]:
    """Return [B1] and [B2] vectors (n, d) of utterances of a user and a bot in turn."""
    sides = [Relation.OTHER if turn % 2 == 0 else Relation.SAME for turn in range(len(said))]
    return encoder.encode(said, Role.FIRST, sides), encoder.encode(said, Role.SECOND, sides)


def write_parts(size: int, folder: Path, *, numbered: bool = False) -> None:
    """Write a generated pool for `turnwise pool import`; a candidate has its main reply's text.

    Args:
        size: Number of candidates.
        folder: Folder for the parts.
        numbered: Whether the metadata of each candidate have its number.
    """
    encoder = plain_encoder()
    out = PartsFolder(str(folder))
    texts = replies()
    parts = tuple(
        Part(start=start, stop=min(start + _BLOCK, size), digest="generated")
        for start in range(0, size, _BLOCK)
    )
    facts = EncodedBy.of(encoder)
    manifest = PartsManifest(format=FORMAT, size=size, encoded_by=facts, parts=parts)
    out.begin(manifest)
    blocks = mixed(encoder.encode(texts, Role.AFTER), size)
    for part, (seeds, vectors) in zip(parts, blocks, strict=True):
        candidates = [
            Candidate.of(
                f"{texts[seed]} ({number})", str(number), {"number": number} if numbered else None
            )
            for number, seed in enumerate(seeds.tolist(), part.start)
        ]
        out.write(facts, part, CandidateBatch.of(candidates, vectors.astype(np.float16), None))


_WHO = ["I", "my wife", "our group", "a colleague", "my parents", "the two of us"]
_WANTS = ["would like to move", "had to cancel", "cannot find", "wants to pay for", "forgot about"]
_WHAT = [
    "the double room",
    "the table by the window",
    "the parcel",
    "the early flight",
    "the visit",
]
_WHEN = ["next Friday", "on the third of May", "tomorrow night", "this weekend", "in two weeks"]
_ASKS = ["is that possible", "could you help with that", "what does it cost", "whom do I ask"]


def sayings(seed: int = 0) -> Iterator[str]:
    """Yield utterances of 8 to 16 words; two seeds never share one."""
    for number in count():
        pick = [words[(number * step + seed) % len(words)] for words, step in _PARTS]
        who, wants, what, when, asks = pick
        yield f"{who} {wants} {what} {when}, case {seed} {number}, {asks}?"


_PARTS = [(_WHO, 1), (_WANTS, 3), (_WHAT, 7), (_WHEN, 11), (_ASKS, 13)]

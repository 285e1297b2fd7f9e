"""Encodes candidates and their examples, in the bulk lane of the encoder queue."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs, said_inputs
from turnwise.models.scores import rows, running_query
from turnwise.service.encoder.batcher import Priority
from turnwise.service.pools.candidate import (
    Candidate,
    FindCandidate,
    keep_learned,
    list_examples,
)
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.memory.vectors import empty_vectors
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.view import CandidateBatch

if TYPE_CHECKING:
    from turnwise.service.encoder.cache import CachedEncoder

EncodingProgress = Callable[[int, int], None]
Kind = Literal["candidates", "examples"]
"""The texts of a pool that vectors are of."""
Encode = Callable[[Sequence[str]], Awaitable[Float32]]
"""Returns (n, d) unit rows of n texts."""

_SLICE = 256
"""Texts that are given to the queue at once."""
_CONTEXTS = 128
"""Number of contexts that `draw_contexts` draws."""
_UTTERANCES = 4
"""Number of utterances of such a context."""


class PoolEncoder(Protocol):
    """An encoder of a pool's candidates."""

    @property
    def name(self) -> str:
        """Name of the model."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model; vectors of equal fingerprints can be compared."""

    @property
    def dimension(self) -> int:
        """Length d of a vector."""

    async def candidates(self, texts: Sequence[str]) -> Float32:
        """Return (n, d) unit rows of n candidates."""

    async def examples(self, texts: Sequence[str]) -> Float32:
        """Return (n, d) unit rows of n utterances of another speaker than the responder.

        Raises:
            InvalidRequest: Pools of this encoder take no examples.
        """

    async def queries(self, contexts: Sequence[Sequence[str]]) -> Float32:
        """Return the queries (m, d) of m contexts that `draw_contexts` drew."""


class RunningQueries:
    """The `PoolEncoder` of pools that are searched with a session's running query."""

    def __init__(self, encoder: "CachedEncoder") -> None:
        self._encoder = encoder
        self.name = encoder.name
        self.fingerprint = encoder.fingerprint
        self.dimension = encoder.dimension

    async def candidates(self, texts: Sequence[str]) -> Float32:
        """Return the texts encoded in the role [AFTER]."""
        return await self._encoder.encode(candidate_inputs(texts), Priority.BULK)

    async def examples(self, texts: Sequence[str]) -> Float32:
        """Return the texts in the space of examples, as a turn's newest utterance is."""
        said = await self._encoder.encode(said_inputs(texts), Priority.BULK)
        return self._encoder.as_examples(said)

    async def queries(self, contexts: Sequence[Sequence[str]]) -> Float32:
        """Return the running queries (m, d) of the contexts, whose two speakers take turns."""
        said = [
            (text, relation)
            for context in contexts
            for text, relation in zip(context, cycle([Relation.OTHER, Relation.SAME]), strict=False)
        ]
        paired = self._encoder.kind.paired
        as_first = [RoleText(text, Role.FIRST, relation) for text, relation in said]
        as_second = [RoleText(text, Role.SECOND, relation) for text, relation in said]
        first = await self._encoder.encode(as_first if paired else [], Priority.BULK)
        second = await self._encoder.encode(as_second, Priority.BULK)
        queries = []
        for start in range(0, len(said), _UTTERANCES):
            context = slice(start, start + _UTTERANCES)
            queries.append(running_query(rows(first[context], second[context]), paired=paired))
        return np.stack(queries)


@dataclass(frozen=True, slots=True)
class KnownVectors:
    """Vectors (d,) that need not be computed again, by text; newly encoded ones are added.

    Attributes:
        candidates: Those of the texts of candidates.
        examples: Those of examples, which are encoded in another role.
    """

    candidates: dict[str, Float16] = field(default_factory=dict)
    examples: dict[str, Float16] = field(default_factory=dict)

    def add(self, batch: CandidateBatch) -> None:
        """Add the vectors of candidates and of their examples."""
        texts = (candidate.text for candidate in batch.candidates)
        self.candidates.update(zip(texts, batch.vectors, strict=True))
        self.examples.update(zip(list_examples(batch.candidates), batch.examples, strict=True))


def draw_contexts(candidates: Sequence[Candidate]) -> list[list[str]]:
    """Return contexts of the texts of candidates drawn at random, to measure recall with.

    Equal candidates give equal contexts. Texts drawn at random are less related than the utterances
    of a session, so their queries are further from the candidates. The measured recall is therefore
    a low estimate.
    """
    drawn = np.random.default_rng(0).integers(len(candidates), size=(_CONTEXTS, _UTTERANCES))
    return [[candidates[index].text for index in indices] for indices in drawn.tolist()]


async def encode_batch(
    encoder: PoolEncoder, candidates: Sequence[Candidate], progress: EncodingProgress | None = None
) -> CandidateBatch:
    """Return n candidates with the vectors of their texts and examples.

    Args:
        encoder: Encodes them.
        candidates: The candidates.
        progress: Called with (candidates done, candidates in total).
    """
    nothing = np.empty((0, encoder.dimension), np.float16)
    vectors = [nothing]
    examples = [nothing]
    for start in range(0, len(candidates), _SLICE):
        some = candidates[start : start + _SLICE]
        texts = [candidate.text for candidate in some]
        vectors.append(await _encode_slices(encoder.candidates, encoder.dimension, texts))
        examples.append(
            await _encode_slices(encoder.examples, encoder.dimension, list_examples(some))
        )
        if progress:
            progress(start + len(some), len(candidates))
    return CandidateBatch(candidates, np.concatenate(vectors), np.concatenate(examples))


async def _encode_slices(
    encode: Encode, dimension: int, texts: Sequence[str], progress: EncodingProgress | None = None
) -> Float16:
    """Return the vectors (n, d) of n texts; `progress` gets (texts done, texts in total)."""
    vectors = empty_vectors(len(texts), dimension)
    for start in range(0, len(texts), _SLICE):
        some = texts[start : start + _SLICE]
        vectors[start : start + len(some)] = await encode(some)
        if progress:
            progress(start + len(some), len(texts))
    return vectors


async def encode_unknown(
    encoder: PoolEncoder,
    workers: Workers,
    texts: Sequence[str],
    known: KnownVectors,
    progress: EncodingProgress | None = None,
    *,
    kind: Kind = "candidates",
) -> Float16:
    """Return the vectors (n, d) of n texts; each distinct text is encoded at most once.

    Args:
        encoder: Encodes the texts that are not known.
        workers: Threads in which the vectors are assembled.
        texts: Texts, which may repeat.
        known: Vectors that need not be computed; newly encoded ones are added.
        progress: Called with (texts encoded, texts to encode).
        kind: What the texts are.
    """
    by_text = known.candidates if kind == "candidates" else known.examples
    encode = encoder.candidates if kind == "candidates" else encoder.examples
    unknown = await workers.edit(
        lambda: [text for text in dict.fromkeys(texts) if text not in by_text]
    )
    encoded = await _encode_slices(encode, encoder.dimension, unknown, progress)

    def assemble() -> Float16:
        by_text.update(zip(unknown, encoded, strict=True))
        if len(unknown) == len(texts):
            return encoded
        vectors = empty_vectors(len(texts), encoder.dimension)
        for index, text in enumerate(texts):
            vectors[index] = by_text[text]
        return vectors

    return await workers.edit(assemble)


async def encode_new(
    encoder: PoolEncoder,
    workers: Workers,
    candidates: Sequence[Candidate],
    known: KnownVectors,
    progress: EncodingProgress | None = None,
) -> CandidateBatch:
    """Return n candidates with the vectors of their texts and examples, as `encode_unknown` does.

    Args:
        encoder: Encodes the texts that are not known.
        workers: Threads in which the vectors are assembled.
        candidates: The candidates.
        known: Vectors that need not be computed; newly encoded ones are added.
        progress: Called with (texts encoded, texts to encode); examples are among them.
    """
    texts = [candidate.text for candidate in candidates]
    said = list_examples(candidates)
    new_examples, new_texts = await workers.edit(
        lambda: (len({*said} - known.examples.keys()), len({*texts} - known.candidates.keys()))
    )
    encoded_before = 0

    def report(encoded: int, _: int) -> None:
        if progress:
            progress(encoded_before + encoded, new_examples + new_texts)

    examples = await encode_unknown(encoder, workers, said, known, report, kind="examples")
    encoded_before = new_examples
    vectors = await encode_unknown(encoder, workers, texts, known, report)
    return CandidateBatch(candidates, vectors, examples)


async def add_learned(
    encoder: PoolEncoder, workers: Workers, batch: CandidateBatch, find: FindCandidate
) -> CandidateBatch:
    """Return a batch whose candidates have what those of the same ids in a pool have learned."""
    candidates = keep_learned(find, batch.candidates)
    if candidates == [*batch.candidates]:
        return batch
    known = KnownVectors()
    known.add(batch)
    return await encode_new(encoder, workers, candidates, known)

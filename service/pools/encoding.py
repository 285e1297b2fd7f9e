"""Texts of a pool to vectors, behind whatever else the encoder has to do."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.roles import Relation, Role, RoleText
from turnwise.models.scores import rows, running_query
from turnwise.service.encoder.queue import Priority
from turnwise.service.pools.index import Float16
from turnwise.service.pools.workers import Workers

if TYPE_CHECKING:
    from turnwise.service.encoder.cache import CachedEncoder

Progress = Callable[[int, int], None]


class PoolEncoder(Protocol):
    """Gives the candidates of a pool their vectors, behind whatever else it has to do."""

    @property
    def name(self) -> str:
        """Name of the model."""

    @property
    def fingerprint(self) -> str:
        """Equal where vectors compare."""

    @property
    def dimension(self) -> int:
        """Length d of a vector."""

    async def candidates(self, texts: Sequence[str]) -> Float32:
        """Return (n, d) unit rows of n candidates."""

    async def sample_queries(self, texts: Sequence[str]) -> Float32:
        """Return queries (m, d) of contexts that a pool's own texts make up.

        Utterances that were drawn by chance have less to do with one another than those of a
        conversation, so these queries lie further from the pool: what is measured with them is
        rather too strict.
        """


class RunningQueries:
    """The `PoolEncoder` of pools that are searched with the sessions' running query."""

    def __init__(self, encoder: "CachedEncoder") -> None:
        self._encoder = encoder
        self.name, self.fingerprint = encoder.name, encoder.fingerprint
        self.dimension = encoder.dimension

    async def candidates(self, texts: Sequence[str]) -> Float32:
        """Encode texts in the candidates' role."""
        inputs = [RoleText(text, Role.AFTER) for text in texts]
        return await self._encoder.encode(inputs, Priority.BULK)

    async def sample_queries(self, texts: Sequence[str]) -> Float32:
        """Return running queries of contexts of utterances drawn by chance."""
        drawn = drawn_contexts(texts)
        relations = [Relation.OTHER, Relation.SAME]
        said = [(text, relations[turn % 2]) for each in drawn for turn, text in enumerate(each)]
        paired = self._encoder.kind.paired
        first, second = [
            await self._encoder.encode(
                [RoleText(text, role, r) for text, r in which], Priority.BULK
            )
            for role, which in ((Role.FIRST, said if paired else []), (Role.SECOND, said))
        ]
        contexts = [slice(start, start + _UTTERANCES) for start in range(0, len(said), _UTTERANCES)]
        summed = [running_query(rows(first[c], second[c]), paired=paired) for c in contexts]
        return np.stack(summed)


def drawn_contexts(texts: Sequence[str]) -> list[list[str]]:
    """Return contexts of texts drawn by chance, the same ones each time."""
    drawn = np.random.default_rng(0).integers(len(texts), size=(_CONTEXTS, _UTTERANCES))
    return [[texts[place] for place in places] for places in drawn.tolist()]


_SLICE = 256
_CONTEXTS = 128
_UTTERANCES = 4


async def encode_candidates(
    encoder: PoolEncoder, texts: Sequence[str], progress: Progress | None = None
) -> Float16:
    """Return the vectors (n, d) of n texts as candidates; `progress` gets how many are done."""
    vectors = np.empty((len(texts), encoder.dimension), np.float16)
    for start in range(0, len(texts), _SLICE):
        some = texts[start : start + _SLICE]
        vectors[start : start + len(some)] = await encoder.candidates(some)
        if progress:
            progress(start + len(some), len(texts))
    return vectors


async def encode_unknown(
    encoder: PoolEncoder,
    workers: Workers,
    texts: Sequence[str],
    known: dict[str, Float16],
    progress: Progress | None = None,
) -> Float16:
    """Return the vectors (n, d) of n texts, of which each distinct one is encoded at most once.

    Args:
        encoder: Encodes those that are not known.
        workers: The threads in which the vectors are put together.
        texts: May repeat.
        known: Vectors (d,) by text; those of what is encoded are added.
        progress: Gets how many texts are encoded, and of how many.
    """

    def together(encoded: Float16) -> Float16:
        known.update(zip(unknown, encoded, strict=True))
        made = np.empty((len(texts), encoder.dimension), np.float16)
        for row, text in enumerate(texts):
            made[row] = known[text]
        return made

    unknown = await workers.edit(
        lambda: [text for text in dict.fromkeys(texts) if text not in known]
    )
    encoded = await encode_candidates(encoder, unknown, progress)
    return await workers.edit(lambda: together(encoded))

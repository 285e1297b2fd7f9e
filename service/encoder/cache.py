"""The encoder as use cases see it: vectors of recent texts are cached, other texts are queued."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from time import monotonic

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration
from turnwise.models.roles import EncoderKind, Role, RoleText, read_as
from turnwise.models.scores import Aggregation
from turnwise.service.encoder.model import Encoder
from turnwise.service.encoder.queue import EncoderQueue, Priority
from turnwise.service.observe.logs import namespace
from turnwise.service.observe.metrics import Metrics

HEADS_AT_ONCE = 16
"""Most vectors that heads read on the event loop, in some half a millisecond."""
_SLICE = 128
_COUNTED_AT_ONCE = 1000
"""Characters of a text whose word pieces are counted on the event loop, in a millisecond."""


class CachedEncoder:
    """A cache of vectors in front of the encoder queue; it evicts the least recently used one.

    The key is a digest of the namespace and the text with its prefix. So no namespace can learn
    from the time of an answer what another one said, roles that a model does not distinguish share
    a vector, and long texts take no more memory. Bulk texts are not cached: they would only evict
    vectors that are in use.
    """

    def __init__(
        self, queue: EncoderQueue, encoder: Encoder, metrics: Metrics, *, size: int
    ) -> None:
        """Start with an empty cache.

        Args:
            queue: Encodes the texts that are not in the cache.
            encoder: The encoder of the queue.
            metrics: Counts hits.
            size: Greatest number of vectors.
        """
        self._queue = queue
        self._encoder = encoder
        self._metrics = metrics
        self._size = size
        self._known: OrderedDict[bytes, Float32] = OrderedDict()
        self.fingerprint = encoder.fingerprint
        self.dimension = encoder.dimension
        self.name = encoder.name
        self.kind = encoder.kind
        self.aggregation: Aggregation = encoder.aggregation
        self.calibration: Calibration | None = encoder.calibration
        self.fusion = encoder.fusion
        self.example_calibration = encoder.example_calibration
        self._heads = encoder.kind is EncoderKind.HEADS

    async def encode(
        self,
        texts: Sequence[RoleText],
        priority: Priority = Priority.TURN,
        timeout: float | None = None,
    ) -> Float32:
        """Return (n, d) unit rows; raises as `EncoderQueue.encode`."""
        if not self._heads:
            return await self._read(texts, priority, timeout)
        read = [RoleText(item.text, *read_as(item.role)) for item in texts]
        return await self._estimate_by_heads(await self._read(read, priority, timeout), texts)

    def knows(self, texts: Sequence[RoleText]) -> bool:
        """Return whether the vectors of all texts are in the cache."""
        return all(_key(self._encoder.prefixed(text)) in self._known for text in texts)

    def knows_script(self, item: RoleText) -> bool:
        """Return whether the model's vocabulary knows the script of a text."""
        return self._encoder.knows_script(item)

    async def is_too_long(self, item: RoleText) -> bool:
        """Return whether a text is longer than what the model reads; a thread reads a long one."""
        if len(item.text) <= _COUNTED_AT_ONCE:
            return self._encoder.is_too_long(item)
        return await asyncio.to_thread(self._encoder.is_too_long, item)

    def in_roles(self, vectors: Float32, items: Sequence[RoleText]) -> Float32:
        """Return (n, d) vectors in their roles, from those of `read_as`; see `HeadArrays`."""
        return self._encoder.in_roles(vectors, items)

    def as_examples(self, said: Float32) -> Float32:
        """Return (n, d) places of utterances [B2] in the space in which examples are compared."""
        return self._encoder.as_examples(said)

    async def suppose(self, items: Sequence[RoleText], after: Float32) -> Float32:
        """Return (n, d) unit rows: texts as `Role.SUPPOSED`, estimated by heads or from the cache.

        Args:
            items: The n texts, with their relations.
            after: (n, d) their [AFTER].
        """
        keys = [_key(f"{item.role} {item.relation}\n{item.text}") for item in items]
        known = self._recall(keys)
        missing = [index for index, key in enumerate(keys) if key not in known]
        estimated = await self._estimate_by_heads(
            after[missing], [items[index] for index in missing]
        )
        new = {keys[index]: vector.copy() for index, vector in zip(missing, estimated, strict=True)}
        self._remember(new)
        known |= new
        return np.array([known[key] for key in keys], np.float32).reshape(-1, self.dimension)

    async def _estimate_by_heads(self, vectors: Float32, items: Sequence[RoleText]) -> Float32:
        """Return what `in_roles` does, computed in a thread where it takes long."""
        if sum(item.role is not Role.AFTER for item in items) <= HEADS_AT_ONCE:
            return self.in_roles(vectors, items)
        return await asyncio.to_thread(self.in_roles, vectors, items)

    async def _read(
        self, texts: Sequence[RoleText], priority: Priority, timeout: float | None
    ) -> Float32:
        """Return the vectors of texts as the model reads them."""
        if priority is Priority.BULK:
            return await self._queue.encode(texts, priority, timeout)
        keys = [_key(self._encoder.prefixed(text)) for text in texts]
        known = self._recall(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        self._metrics.cache_hits.inc(sum(key in known for key in keys))
        end = None if timeout is None else monotonic() + timeout
        for start in range(0, len(missing), _SLICE):
            part = dict(islice(missing.items(), start, start + _SLICE))
            left = None if end is None else max(end - monotonic(), 0.0)
            vectors = await self._queue.encode(
                list(part.values()), priority, left, admitted=start > 0
            )
            # Copies, because a view would keep the whole array in memory.
            new = {key: vector.copy() for key, vector in zip(part, vectors, strict=True)}
            self._remember(new)  # at once: if a later slice times out, a retry starts there
            known |= new
        return np.array([known[key] for key in keys], np.float32).reshape(-1, self.dimension)

    def _recall(self, keys: Sequence[bytes]) -> dict[bytes, Float32]:
        known = {key: self._known[key] for key in keys if key in self._known}
        self._remember(known)
        return known

    def _remember(self, vectors: dict[bytes, Float32]) -> None:
        for key, vector in vectors.items():
            self._known[key] = vector
            self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)


def _key(prefixed: str) -> bytes:
    return blake2b(f"{namespace.get('')}\n{prefixed}".encode(), digest_size=16).digest()

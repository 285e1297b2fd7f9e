"""The encoder as use cases see it: vectors of recent texts are cached, other texts are queued."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from time import monotonic
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration
from turnwise.models.encoder.head_arrays import needs_head
from turnwise.models.roles import EncoderKind, RoleText, read_as
from turnwise.models.scores import Aggregation
from turnwise.service.current_request import namespace
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.model import Encoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics

HEADS_AT_ONCE = 16
"""Most vectors that heads read on the event loop, in some half a millisecond."""
_SLICE = 128
_KEYS_AT_ONCE = 64
"""Most keys that are made on the event loop, in some half a millisecond."""
_COUNTED_AT_ONCE = 1000
"""Characters of a text whose word pieces are counted on the event loop, in a millisecond."""


class _Recalled(NamedTuple):
    """Vectors in their roles, as far as the cache has them.

    Attributes:
        vectors: (n, d). In place of a missing one is the vector from which heads compute it.
        missing: The keys of the missing vectors in the cache, by their indices.
    """

    vectors: Float32
    missing: Mapping[int, bytes]


class CachedEncoder:
    """A cache of vectors in front of the encoder queue; it evicts the least recently used one.

    The key is a digest of the namespace and the text with its prefix. So no namespace can learn
    from the time of an answer what another one said. Roles that a model does not distinguish share
    a vector, and long texts take no more memory. For a vector that heads compute, the key is a
    digest of the namespace, the role and the vector from which they compute it.

    Bulk texts are not cached: they would only evict vectors that are in use.
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
        self._lock = threading.Lock()  # heads also read many vectors in other threads
        self.fingerprint = encoder.fingerprint
        self.dimension = encoder.dimension
        self.name = encoder.name
        self.kind = encoder.kind
        self.aggregation: Aggregation = encoder.aggregation
        self.calibration: Calibration | None = encoder.calibration
        self.fusion = encoder.fusion
        self.example_calibration = encoder.example_calibration
        self._has_heads = encoder.kind is EncoderKind.HEADS

    async def encode(
        self,
        texts: Sequence[RoleText],
        priority: Priority = Priority.TURN,
        timeout: float | None = None,
    ) -> Float32:
        """Return (n, d) unit rows; raises as `EncoderQueue.encode`."""
        if not self._has_heads:
            return await self._read(texts, priority, timeout)
        read = await self._read([read_as(item) for item in texts], priority, timeout)
        return await self.estimate(read, texts)

    def knows(self, texts: Sequence[RoleText]) -> bool:
        """Return whether the vectors of all texts are in the cache."""
        return all(self._key_of(text) in self._known for text in texts)

    def knows_script(self, item: RoleText) -> bool:
        """Return whether the model's vocabulary knows the script of a text."""
        return self._encoder.knows_script(item)

    async def is_too_long(self, item: RoleText) -> bool:
        """Return whether a text is longer than what the model reads; a thread reads a long one."""
        if len(item.text) <= _COUNTED_AT_ONCE:
            return self._encoder.is_too_long(item)
        return await asyncio.to_thread(self._encoder.is_too_long, item)

    def in_roles(self, vectors: Float32, items: Sequence[RoleText]) -> Float32:
        """Return (n, d) vectors in their roles, from those in the roles of `read_as`.

        Heads compute them (see `HeadArrays`), each once: every turn needs [B1] of all utterances
        before it.
        """
        return self._compute_missing(self._recall_roles(vectors, items), items)

    async def estimate(self, vectors: Float32, items: Sequence[RoleText]) -> Float32:
        """Return what `in_roles` returns; if heads compute many vectors, they do so in a thread."""
        recalled = self._recall_roles(vectors, items)
        if len(recalled.missing) <= HEADS_AT_ONCE:
            return self._compute_missing(recalled, items)
        return await asyncio.to_thread(self._compute_missing, recalled, items)

    def as_examples(self, said: Float32) -> Float32:
        """Return (n, d) places of utterances in the space in which examples are compared."""
        return self._encoder.as_examples(said)

    def _recall_roles(self, vectors: Float32, items: Sequence[RoleText]) -> _Recalled:
        """Return vectors in their roles, as far as these are in the cache."""
        if not self._has_heads:
            return _Recalled(vectors, {})
        keys = {
            index: _key(f"{item.role} {item.relation}\n".encode() + vector.tobytes())
            for index, (item, vector) in enumerate(zip(items, vectors, strict=True))
            if needs_head(item)
        }
        known = self._recall(keys.values())
        recalled = vectors.copy()
        missing: dict[int, bytes] = {}
        for index, key in keys.items():
            if key in known:
                recalled[index] = known[key]
            else:
                missing[index] = key
        return _Recalled(recalled, missing)

    def _compute_missing(self, recalled: _Recalled, items: Sequence[RoleText]) -> Float32:
        """Return the vectors after heads have computed those that the cache lacks."""
        vectors, missing = recalled
        if not missing:
            return vectors
        indices = list(missing)
        computed = self._encoder.in_roles(vectors[indices], [items[index] for index in indices])
        vectors[indices] = computed
        self._remember({key: vectors[index].copy() for index, key in missing.items()})
        return vectors

    async def _read(
        self, texts: Sequence[RoleText], priority: Priority, timeout: float | None
    ) -> Float32:
        """Return the vectors of texts as the model reads them."""
        if priority is Priority.BULK:
            return await self._queue.encode(texts, priority, timeout)
        if len(texts) <= _KEYS_AT_ONCE:
            keys = self._make_keys(texts)
        else:
            keys = await asyncio.to_thread(self._make_keys, texts)
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

    def _make_keys(self, texts: Sequence[RoleText]) -> list[bytes]:
        return [self._key_of(text) for text in texts]

    def _key_of(self, text: RoleText) -> bytes:
        return _key(self._encoder.prefixed(text).encode())

    def _recall(self, keys: Iterable[bytes]) -> dict[bytes, Float32]:
        with self._lock:
            known = {key: self._known[key] for key in keys if key in self._known}
            for key in known:
                self._known.move_to_end(key)
        return known

    def _remember(self, vectors: Mapping[bytes, Float32]) -> None:
        with self._lock:
            for key, vector in vectors.items():
                self._known[key] = vector
                self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)


def _key(content: bytes) -> bytes:
    return blake2b(namespace.get("").encode() + b"\n" + content, digest_size=16).digest()

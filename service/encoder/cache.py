"""The encoder as the use cases see it: vectors of recent texts are known, the rest is queued."""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from time import monotonic

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import RoleText
from turnwise.models.scores import Aggregation
from turnwise.service.encoder.queue import EncoderQueue, Priority
from turnwise.service.observe.metrics import Metrics

_SLICE = 128


class CachedEncoder:
    """A bounded cache in front of the queue, least recently used first to go.

    The key is a digest of the text with its prefix, so that roles which a model does not tell apart
    share a vector and long texts take no more memory. Uploads pass it by: they would only push out
    what is used.
    """

    def __init__(
        self, queue: EncoderQueue, encoder: UtteranceEncoder, metrics: Metrics, *, size: int
    ) -> None:
        """Take a queue.

        Args:
            queue: Encodes what is not known.
            encoder: What the queue encodes with.
            metrics: Counts hits.
            size: Vectors kept.
        """
        self._queue, self._encoder, self._metrics, self._size = queue, encoder, metrics, size
        self._known: OrderedDict[bytes, Float32] = OrderedDict()
        self.fingerprint, self.dimension = encoder.fingerprint, encoder.dimension
        self.name, self.kind = encoder.name, encoder.kind
        self.aggregation: Aggregation = encoder.aggregation

    async def encode(
        self,
        items: Sequence[RoleText],
        priority: Priority = Priority.TURN,
        timeout: float | None = None,
    ) -> Float32:
        """Return (n, d) unit rows; errors are those of `EncoderQueue.encode`."""
        if priority is Priority.BULK:
            return await self._queue.encode(items, priority, timeout)
        keys = [_key(self._encoder.prefixed(item)) for item in items]
        known = {key: self._known[key] for key in keys if key in self._known}
        missing = {key: item for key, item in zip(keys, items, strict=True) if key not in known}
        self._metrics.cache_hits.inc(sum(key in known for key in keys))
        self._remember(known)
        end = None if timeout is None else monotonic() + timeout
        for start in range(0, len(missing), _SLICE):
            part = dict(islice(missing.items(), start, start + _SLICE))
            left = None if end is None else max(end - monotonic(), 0.0)
            vectors = await self._queue.encode(list(part.values()), priority, left)
            # Copies, since a row of an array keeps all of it in memory.
            new = {key: vector.copy() for key, vector in zip(part, vectors, strict=True)}
            self._remember(new)  # at once: if a later slice comes too late, a retry goes on here
            known |= new
        return np.array([known[key] for key in keys], np.float32).reshape(-1, self.dimension)

    def _remember(self, vectors: dict[bytes, Float32]) -> None:
        for key, vector in vectors.items():
            self._known[key] = vector
            self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)


def _key(prefixed: str) -> bytes:
    return blake2b(prefixed.encode(), digest_size=16).digest()

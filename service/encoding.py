"""The encoder as the use cases see it: vectors of recent texts are known, the rest is queued."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.encoder import Aggregation, UtteranceEncoder
from models.roles import RoleText
from service.batching import EncoderQueue, Priority
from service.metrics import Metrics

Float32 = NDArray[np.float32]


class CachedEncoder:
    """A bounded cache in front of the queue, least recently used first to go.

    The key is the text with its prefix, so that roles which a model does not tell apart share a
    vector. Uploads pass it by: they would only push out what is used.
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
        self._known: OrderedDict[str, Float32] = OrderedDict()
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
        keys = [self._encoder.prefixed(item) for item in items]
        known = {key: self._known[key] for key in keys if key in self._known}
        missing = {key: item for key, item in zip(keys, items, strict=True) if key not in known}
        if missing:
            vectors = await self._queue.encode(list(missing.values()), priority, timeout)
            # Copies, since a row of an array keeps all of it in memory.
            known |= zip(missing, map(np.copy, vectors), strict=True)
        self._metrics.cache_hits.inc(len(keys) - len(missing))
        self._remember(known)
        return np.array([known[key] for key in keys], np.float32).reshape(-1, self.dimension)

    def _remember(self, vectors: dict[str, Float32]) -> None:
        for key, vector in vectors.items():
            self._known[key] = vector
            self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)

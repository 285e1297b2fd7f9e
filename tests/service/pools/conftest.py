"""Replicas in one process: each with its own connection, over an encoder without a queue."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, cast

import numpy as np
import pytest

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Role, RoleText
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.errors import PoolNotFound, PoolNotReady
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate, Pools, RunningQueries
from turnwise.service.state.redis import connect


class DirectEncoder:
    """Encodes at once, and remembers which texts it was given as candidates."""

    name = "tiny"

    def __init__(self, encoder: UtteranceEncoder, fingerprint: str = "tiny") -> None:
        self._encoder, self.fingerprint = encoder, fingerprint
        self.dimension, self.kind = encoder.dimension, encoder.kind
        self.candidates: list[str] = []

    async def opened(self) -> None:
        """For tests that hold the encoder up."""

    async def encode(
        self, items: Sequence[RoleText], _priority: Priority = Priority.TURN
    ) -> Float32:
        await self.opened()
        self.candidates += [text for text, role, _ in items if role is Role.AFTER]
        return self._encoder.forward(self._encoder.tokenize(items))


class Replica:
    """A replica of the service, as far as pools go."""

    def __init__(self, pools: Pools, encoder: DirectEncoder, metrics: Metrics) -> None:
        self.pools, self.encoder, self.metrics = pools, encoder, metrics

    def contents(self, name: str = "p") -> dict[str, tuple[str, dict[str, Any]]]:
        candidates = self.pools.view("n", name).candidates()
        return {c.id: (c.text, c.metadata) for c in candidates}

    def version(self, name: str = "p") -> int:
        return self.pools.view("n", name).version

    def follows(self, other: "Replica") -> bool:
        """Whether it has read what another one has; neither needs to have read anything yet."""
        with suppress(PoolNotFound, PoolNotReady):
            return (self.version(), self.contents()) == (other.version(), other.contents())
        return False


StartReplica = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def start(
    redis_url: str, tiny_encoder: Callable[[EncoderKind], UtteranceEncoder]
) -> AsyncIterator[StartReplica]:
    """Starts replicas, which the test's end stops."""
    async with AsyncExitStack() as stack:

        async def start_replica(
            url: str = redis_url, *, fingerprint: str = "tiny", cluster: bool = False, **limits: int
        ) -> Replica:
            redis = await stack.enter_async_context(connect(url, cluster=cluster, timeout=5.0))
            encoder = DirectEncoder(tiny_encoder(EncoderKind.TRIPLE), fingerprint)
            metrics = Metrics()
            defaults = {"exact_limit": 10_000, "search_threads": 1, "max_pool_size": 10_000}
            encoders = {"default": RunningQueries(cast(CachedEncoder, encoder))}
            pools = Pools(redis, encoders, metrics, **(defaults | limits))
            await pools.start()
            stack.push_async_callback(pools.close)
            return Replica(pools, encoder, metrics)

        yield start_replica


def some(*texts: str) -> list[Candidate]:
    return [Candidate.of(text) for text in texts]


def unit_vectors(n: int, d: int, seed: int = 0) -> Float32:
    vectors = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

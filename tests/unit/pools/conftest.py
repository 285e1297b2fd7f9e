"""Replicas in one process, each with its own connection and an encoder without a queue."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from tests.support.waiting import PATIENCE, until
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Role, RoleText
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.errors import PoolNotFound, PoolNotReady
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import (
    Candidate,
    FollowedPools,
    PoolFollower,
    PoolKey,
    PoolView,
    RunningQueries,
    followed,
    following,
)
from turnwise.service.pools.memory import upkeep
from turnwise.service.pools.redis.commands import Commands
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.resources import PoolLimits
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.redis.connection import connect
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.pools import Edited, PoolInfo, PoolRequest

AsyncMethod = Callable[..., Awaitable[object]]
MANY = [f"Reply {number}." for number in range(1100)]
"""Texts of a pool that gets an approximate index where the exact limit is 1000."""


class DirectEncoder:
    """Encodes without a queue, and records the texts of candidates and of utterances."""

    name = "tiny"
    vectors: ClassVar[dict[RoleText, Float32]] = {}
    """What the tiny encoder, the same in all tests, has returned: tests repeat many texts."""

    def __init__(self, encoder: UtteranceEncoder, fingerprint: str = "tiny") -> None:
        self._encoder = encoder
        self.fingerprint = fingerprint
        self.dimension = encoder.dimension
        self.kind = encoder.kind
        self.candidates: list[str] = []
        self.utterances: list[str] = []

    async def opened(self) -> None:
        """Tests replace this to delay the encoder."""

    async def encode(
        self, items: Sequence[RoleText], _priority: Priority = Priority.TURN
    ) -> Float32:
        await self.opened()
        self.candidates += [text for text, role, _ in items if role is Role.AFTER]
        self.utterances += [text for text, role, _ in items if role is Role.SAID]
        new = [item for item in dict.fromkeys(items) if item not in self.vectors]
        encoded = self._encoder.forward(self._encoder.tokenize(new)) if new else []
        self.vectors.update(zip(new, encoded, strict=True))
        return np.stack([self.vectors[item] for item in items])

    def as_examples(self, said: Float32) -> Float32:
        return self._encoder.as_examples(said)


def patch_records(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    patched: AsyncMethod,
    kind: type[Commands] = PoolRecords,
) -> None:
    """Replace a method of the stores of this test's replicas.

    The services that tests share poll all the time, each on a loop of its own: they keep theirs.
    """
    original = getattr(kind, method)
    loop = asyncio.get_running_loop()

    async def chosen(store: Commands, /, *args: object, **given: object) -> object:
        here = asyncio.get_running_loop() is loop
        return await (patched if here else original)(store, *args, **given)

    monkeypatch.setattr(kind, method, chosen)


class Replica:
    """A replica of the service without its sessions; its methods work on the pool `p` of `n`."""

    def __init__(
        self,
        pools: Pools,
        followed: FollowedPools,
        follower: PoolFollower,
        encoder: DirectEncoder,
        metrics: Metrics,
    ) -> None:
        self.pools = pools
        self.followed = followed
        self.follower = follower
        self.encoder = encoder
        self.metrics = metrics

    async def close(self) -> None:
        await self.follower.close()
        await self.followed.close()

    async def create(self, description: str = "") -> PoolInfo:
        return await self.pools.create("n", "p", PoolRequest(description=description))

    async def fill(self, name: str, *texts: str) -> None:
        """Make another pool of `n`, of one version."""
        await self.pools.create("n", name, PoolRequest())
        await self.pools.upsert("n", name, some(*texts))

    async def upsert(self, *candidates: Candidate | str) -> Edited:
        made = [Candidate.of(c) if isinstance(c, str) else c for c in candidates]
        return await self.pools.upsert("n", "p", made)

    async def remove(self, text: str) -> Edited:
        return await self.pools.remove("n", "p", Candidate.of(text).id)

    async def find(self) -> PoolInfo:
        return await self.pools.info("n", "p")

    async def names(self) -> list[str]:
        return [info.name for info in await self.pools.list("n")]

    def view(self, name: str = "p") -> PoolView:
        return self.followed.get(PoolKey("n", name)).view()

    def info(self, name: str = "p") -> PoolInfo:
        return self.followed.get(PoolKey("n", name)).info()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def gauges(self, pool: str = "p") -> list[float | None]:
        """The metrics of a pool's size and version."""
        names = ("turnwise_pool_candidates", "turnwise_pool_version")
        return [self.metric(name, namespace="n", pool=pool) for name in names]

    def contents(self, name: str = "p") -> dict[str, tuple[str, dict[str, Any]]]:
        candidates = self.view(name).contents.candidates()
        return {c.id: (c.text, c.metadata) for c in candidates}

    def version(self, name: str = "p") -> int:
        return self.view(name).version

    def knows(self) -> bool:
        """Whether it has the pool in memory, or is reading it."""
        with suppress(PoolNotFound):
            return bool(self.info())
        return False

    def follows(self, other: "Replica") -> bool:
        """Whether both have read the same version."""
        with suppress(PoolNotFound, PoolNotReady):
            return (self.version(), self.contents()) == (other.version(), other.contents())
        return False


StartReplica = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def start(
    redis_url: str,
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[StartReplica]:
    """Starts replicas, which see changes in Redis soon, and stop after the test."""
    monkeypatch.setattr(following, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(followed, "FIRST_READ_SECONDS", PATIENCE)  # a busy machine is slow
    replicas = count()
    async with AsyncExitStack() as stack:

        async def start_replica(
            url: str = redis_url,
            *,
            fingerprint: str = "tiny",
            cluster: bool = False,
            ready: bool = False,
            data: str = "",
            max_pools: int | None = None,
            max_aliases: int | None = None,
            exact_limit: int = 10_000,
            max_pool_size: int = 10_000,
            max_pools_bytes: int | None = None,
            refused_seconds: float = 300.0,
            fill_seconds: float = 10.0,
            store: CandidateStore | None = None,
        ) -> Replica:
            redis = await stack.enter_async_context(connect(url, cluster=cluster, timeout=5.0))
            encoder = DirectEncoder(tiny_encoder(EncoderKind.TRIPLE), fingerprint)
            metrics = Metrics()
            encoders = {"default": RunningQueries(cast(CachedEncoder, encoder))}
            folder = tmp_path / (data or f"replica-{next(replicas)}")
            pools = FollowedPools(
                redis,
                encoders,
                metrics,
                PoolLimits(exact_limit, max_pool_size, max_pools_bytes),
                search_threads=1,
                index_folder=folder,
                names_file=folder / "names.json",
                store=store,
                refused_seconds=refused_seconds,
            )
            follower = PoolFollower(pools, metrics, fill_seconds=fill_seconds)
            use_cases = Pools(pools, metrics, max_pools=max_pools, max_aliases=max_aliases)
            replica = Replica(use_cases, pools, follower, encoder, metrics)
            await follower.start([PoolKey("n", "p")])
            stack.push_async_callback(replica.close)
            if ready:
                await until(lambda: follower.ready)
            return replica

        yield start_replica


async def with_pool(start: StartReplica, *candidates: Candidate | str, **limits: int) -> Replica:
    """A new replica with a pool of one version; of version 0 without candidates."""
    replica = await start(**limits)
    await replica.create("replies")
    await replica.upsert(*candidates)
    return replica


def some(*texts: str) -> list[Candidate]:
    return [Candidate.of(text) for text in texts]


def unit_vectors(n: int, d: int, seed: int = 0) -> Float32:
    vectors = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.fixture(autouse=True)
def no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fold take the whole log."""
    monkeypatch.setattr(upkeep, "TAIL_SECONDS", 0.0)

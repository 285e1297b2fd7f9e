"""The components below the use cases: Redis, the encoders behind their queues, the pools."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from redis.asyncio import Redis

from turnwise.service.app.loading import load_encoder, load_in_torch, make_remote_encoder
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.model import REMOTE, Encoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import FollowedPools, PoolEncoder, PoolFollower, RunningQueries
from turnwise.service.pools.resources import PoolLimits
from turnwise.service.pools.stores import CandidateStore, connect_store
from turnwise.service.redis.connection import connect
from turnwise.service.redis.private import running_or_started
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.settings import Settings
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.fields import EncoderName

_log = logging.getLogger("turnwise")

_QUEUE_SECONDS = 1.0
"""Longest wait for the encoder in seconds; the service rejects requests that would wait longer."""
BATCH_TOKENS = 4096
"""Tokens of a padded batch on a GPU; a CPU takes fewer."""
_CALL_TOKENS = 512
"""Tokens of a call of a remote encoder, by an estimate: while it runs, the next turn waits."""
_START_SECONDS = 60.0
"""Longest wait for a remote encoder that is not there at the start."""
_VECTOR_CACHE = 50_000
"""Vectors of recent texts kept in memory (1.5 KB each with the default model)."""
_LAST_BATCH = 5.0
"""Seconds that the last batch may take when the service stops."""


@dataclass(frozen=True, slots=True)
class Components:
    """The running components. The pools do not follow Redis before `pool_follower.start()`."""

    redis: Redis
    """The connections of sessions."""
    redis_of_pools: Redis
    """The connections of pools: reading many pools takes none from the sessions."""
    encoder: Encoder
    queues: tuple[EncoderQueue, ...]
    """The queues of the encoder and, if there is one, of the pairwise model."""
    cached: CachedEncoder
    followed_pools: FollowedPools
    pool_follower: PoolFollower
    pools: Pools
    pairwise: Pairwise | None
    store: CandidateStore | None


@asynccontextmanager
async def running_components(
    settings: Settings, redis_url: str, metrics: Metrics
) -> AsyncIterator[Components]:
    """Start the components, each after those that it needs; stop them in the opposite order."""
    async with AsyncExitStack() as stack:
        connect_redis = partial(
            connect, redis_url, cluster=settings.redis_cluster, timeout=settings.redis_timeout
        )
        redis = connect_redis()
        redis_of_pools = connect_redis()
        stack.push_async_callback(redis.aclose)
        stack.push_async_callback(redis_of_pools.aclose)
        encoder = await load_main_encoder(settings, metrics, stack)
        queues = [await start_queue(settings, encoder, metrics, stack)]
        cached = CachedEncoder(queues[0], encoder, metrics, size=_VECTOR_CACHE)
        encoders: dict[EncoderName, PoolEncoder] = {"default": RunningQueries(cached)}
        pairwise = None
        if folder := settings.pairwise:
            pairwise, queue = await _start_pairwise(settings, folder, metrics, stack)
            encoders["pairwise"] = pairwise
            queues.append(queue)
        store = connect_store(settings.store_url, metrics) if settings.store_url else None
        if store:
            stack.push_async_callback(store.close)
        followed = _make_followed_pools(settings, redis_of_pools, encoders, metrics, store)
        stack.push_async_callback(followed.close)
        follower = PoolFollower(followed, metrics)
        stack.push_async_callback(follower.close)
        pools = Pools(
            followed, metrics, max_pools=settings.max_pools, max_aliases=settings.max_aliases
        )
        yield Components(
            redis=redis,
            redis_of_pools=redis_of_pools,
            encoder=encoder,
            queues=tuple(queues),
            cached=cached,
            followed_pools=followed,
            pool_follower=follower,
            pools=pools,
            pairwise=pairwise,
            store=store,
        )


def _make_followed_pools(
    settings: Settings,
    redis: Redis,
    encoders: Mapping[EncoderName, PoolEncoder],
    metrics: Metrics,
    store: CandidateStore | None,
) -> FollowedPools:
    return FollowedPools(
        redis,
        encoders,
        metrics,
        PoolLimits(
            exact=settings.exact_limit,
            size=settings.max_pool_size,
            namespace_bytes=settings.max_pools_bytes,
        ),
        search_threads=settings.search_threads,
        index_folder=settings.data_dir / "indexes",
        names_file=settings.data_dir / "names" / f"{settings.redis_digest}.json",
        store=store,
    )


@asynccontextmanager
async def components_of(settings: Settings) -> AsyncIterator[Components]:
    """Start the components for a command, with a private Redis if the settings name none."""
    async with AsyncExitStack() as stack:
        url = settings.redis_url
        if url is None:
            url = await stack.enter_async_context(running_or_started(settings.redis_folder))
        yield await stack.enter_async_context(running_components(settings, url, Metrics()))


async def start_queue(
    settings: Settings, encoder: Encoder, metrics: Metrics, stack: AsyncExitStack
) -> EncoderQueue:
    """Start the queue of an encoder; the stack drains it."""
    _log.info("model %s loaded: %s", encoder.name, encoder.runtime)
    queue = EncoderQueue(
        encoder,
        metrics,
        limit=settings.queue_limit,
        batch_tokens=_CALL_TOKENS if encoder.device == REMOTE else BATCH_TOKENS,
        max_wait=_QUEUE_SECONDS,
    )
    await queue.start()
    stack.push_async_callback(queue.drain, _LAST_BATCH)
    return queue


async def load_main_encoder(settings: Settings, metrics: Metrics, stack: AsyncExitStack) -> Encoder:
    """Return the encoder of the settings, and write its name to the metrics.

    It runs in this process or in an encoder tier. The stack closes it.
    """
    encoder: Encoder
    if settings.encoder_url:
        remote = make_remote_encoder(settings, settings.encoder_url, metrics)
        stack.callback(remote.close)
        await asyncio.to_thread(remote.verify, _START_SECONDS)
        encoder = remote
    else:
        encoder = await asyncio.to_thread(load_encoder, settings, settings.model)
    metrics.build.info(
        {"version": version("turnwise"), "model": encoder.name, "runtime": encoder.runtime}
    )
    return encoder


async def _start_pairwise(
    settings: Settings, folder: Path, metrics: Metrics, stack: AsyncExitStack
) -> tuple[Pairwise, EncoderQueue]:
    from turnwise.models.pairwise import ENCODER, PairwiseModel  # noqa: PLC0415 - loads torch

    encoder = await asyncio.to_thread(load_in_torch, settings, folder / ENCODER)
    queue = await start_queue(settings, encoder, metrics, stack)
    model = await asyncio.to_thread(PairwiseModel.load, folder, encoder=encoder)
    cached = CachedEncoder(queue, encoder, metrics, size=_VECTOR_CACHE)
    return Pairwise(model, cached, timeout=settings.request_timeout), queue

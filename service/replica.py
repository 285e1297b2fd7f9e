"""What a replica is made of below its use cases: Redis, the encoder behind its queue, pools."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

from redis.asyncio import Redis

from models.encoder import UtteranceEncoder
from service.batching import EncoderQueue
from service.encoding import CachedEncoder
from service.metrics import Metrics
from service.pools import Pools
from service.redis import connect
from service.settings import Settings

_log = logging.getLogger("turnwise")

_LAST_BATCH = 5.0
"""Seconds for what is on the device when requests have had theirs."""


@dataclass(frozen=True, slots=True)
class Replica:
    """The running parts; the pools are there, but do not follow Redis before `pools.start()`."""

    redis: Redis
    encoder: UtteranceEncoder
    queue: EncoderQueue
    cached: CachedEncoder
    pools: Pools


@asynccontextmanager
async def running_replica(
    settings: Settings, redis_url: str, metrics: Metrics
) -> AsyncIterator[Replica]:
    """Start the parts, from the innermost; stop them in the opposite order."""
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(
            connect(redis_url, cluster=settings.redis_cluster, timeout=settings.redis_timeout)
        )
        encoder = await asyncio.to_thread(
            UtteranceEncoder.for_serving,
            settings.model,
            device=settings.device,
            cache=settings.data_dir / "models",
        )
        metrics.build.info(
            {"version": version("turnwise"), "model": encoder.name, "runtime": encoder.runtime}
        )
        _log.info("model %s loaded: %s", encoder.name, encoder.runtime)
        queue = EncoderQueue(
            encoder, metrics, limit=settings.queue_limit, batch_tokens=settings.batch_tokens
        )
        await queue.start()
        stack.push_async_callback(queue.drain, _LAST_BATCH)
        cached = CachedEncoder(queue, encoder, metrics, size=settings.vector_cache)
        pools = Pools(
            redis,
            cached,
            metrics,
            exact_limit=settings.exact_limit,
            search_threads=settings.search_threads,
            max_pool_size=settings.max_pool_size,
        )
        stack.push_async_callback(pools.close)
        yield Replica(redis, encoder, queue, cached, pools)

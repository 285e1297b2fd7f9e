"""The parts below the use cases: Redis, the encoders behind their queues, the pools."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import torch
from redis.asyncio import Redis

from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.rerankers import PairwiseModel
from turnwise.models.rerankers.pairwise import ENCODER
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import PoolEncoder, Pools, RunningQueries
from turnwise.service.pools.stores import CandidateStore, connect_store
from turnwise.service.selection.pairwise import Pairwise
from turnwise.service.settings import Settings, SettingsError
from turnwise.service.state.redis import connect
from turnwise.service.wire.fields import EncoderName

_log = logging.getLogger("turnwise")

_QUEUE_SECONDS = 1.0
"""Longest wait for the encoder in seconds; the service rejects requests that would wait longer."""
BATCH_TOKENS = 4096
"""Tokens of a padded batch on a GPU; a CPU takes fewer."""
_VECTOR_CACHE = 50_000
"""Vectors of recent texts kept in memory (1.5 KB each with the default model)."""
_LAST_BATCH = 5.0
"""Seconds that the last batch may take when the service stops."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The running parts. The pools do not follow Redis before `pools.start()`."""

    redis: Redis
    """The connections of sessions."""
    redis_of_pools: Redis
    """The connections of pools: reading many pools takes none from the sessions."""
    encoder: UtteranceEncoder
    queues: tuple[EncoderQueue, ...]
    """The queue of the encoder, and that of the pairwise model if there is one."""
    cached: CachedEncoder
    pools: Pools
    pairwise: Pairwise | None
    store: CandidateStore | None


@asynccontextmanager
async def running_parts(
    settings: Settings, redis_url: str, metrics: Metrics
) -> AsyncIterator[Parts]:
    """Start the parts, each after those that it needs; stop them in the opposite order."""
    async with AsyncExitStack() as stack:
        connected = partial(
            connect, redis_url, cluster=settings.redis_cluster, timeout=settings.redis_timeout
        )
        redis, redis_of_pools = connected(), connected()
        stack.push_async_callback(redis.aclose)
        stack.push_async_callback(redis_of_pools.aclose)
        main = await _start(settings, settings.model, metrics, stack)
        encoder = main.encoder
        metrics.build.info(
            {"version": version("turnwise"), "model": encoder.name, "runtime": encoder.runtime}
        )
        encoders: dict[EncoderName, PoolEncoder] = {"default": RunningQueries(main.cached)}
        queues, pairwise = [main.queue], None
        if folder := settings.pairwise:
            part = await _start(settings, folder / ENCODER, metrics, stack)
            model = await asyncio.to_thread(PairwiseModel.load, folder, encoder=part.encoder)
            pairwise = Pairwise(model, part.cached, timeout=settings.request_timeout)
            encoders["pairwise"] = pairwise
            queues.append(part.queue)
        store = connect_store(settings.store_url, metrics) if settings.store_url else None
        if store:
            stack.push_async_callback(store.close)
        pools = Pools(
            redis_of_pools,
            encoders,
            metrics,
            exact_limit=settings.exact_limit,
            search_threads=settings.search_threads,
            max_pool_size=settings.max_pool_size,
            max_pools=settings.max_pools,
            max_pools_bytes=settings.max_pools_bytes,
            index_folder=settings.data_dir / "indexes",
            store=store,
        )
        stack.push_async_callback(pools.close)
        yield Parts(
            redis, redis_of_pools, encoder, tuple(queues), main.cached, pools, pairwise, store
        )


class _Started(NamedTuple):
    encoder: UtteranceEncoder
    queue: EncoderQueue
    cached: CachedEncoder


async def _start(
    settings: Settings, model: str | Path, metrics: Metrics, stack: AsyncExitStack
) -> _Started:
    """Load an encoder and start its queue; the stack drains it."""
    encoder = await asyncio.to_thread(load_encoder, settings, model)
    _log.info("model %s loaded: %s", encoder.name, encoder.runtime)
    queue = EncoderQueue(
        encoder,
        metrics,
        limit=settings.queue_limit,
        batch_tokens=BATCH_TOKENS,
        max_wait=_QUEUE_SECONDS,
    )
    await queue.start()
    stack.push_async_callback(queue.drain, _LAST_BATCH)
    cached = CachedEncoder(queue, encoder, metrics, size=_VECTOR_CACHE)
    return _Started(encoder, queue, cached)


def load_encoder(settings: Settings, model: str | Path) -> UtteranceEncoder:
    """Load an encoder for serving.

    Raises:
        SettingsError: The device cannot be used.
        ModelError: The model cannot be loaded.
    """
    try:
        torch.empty(0, device=settings.device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        why = str(error).partition("\n")[0]
        raise SettingsError(f"TURNWISE_DEVICE '{settings.device}' cannot be used: {why}") from None
    cache = settings.data_dir / "models"
    return UtteranceEncoder.for_serving(model, device=settings.device, cache=cache)

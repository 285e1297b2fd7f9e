"""The one place where the parts are wired."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI

from turnwise.models.rerankers import IoI
from turnwise.service.api import create_api
from turnwise.service.api.security import NAMESPACE
from turnwise.service.api.services import Services
from turnwise.service.app.replica import running_replica
from turnwise.service.errors import PoolNotFound, PoolNotReady
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Pools, read_candidates
from turnwise.service.selection.context import Contexts
from turnwise.service.selection.plan import Planning
from turnwise.service.selection.rank import Ranking
from turnwise.service.selection.rerank import Reranking
from turnwise.service.selection.select import Selector
from turnwise.service.selection.sessions import Sessions
from turnwise.service.selection.turn import Turns
from turnwise.service.sessions.store import SessionStore
from turnwise.service.settings import Settings
from turnwise.service.state.private_redis import PrivateRedis
from turnwise.service.state.redis import Probe

DEFAULT_POOL = "default"
SHORT_LIST = 100
"""Candidates retrieved that MaxSim or a re-ranker puts in order."""

_log = logging.getLogger("turnwise")


def create_app(settings: Settings) -> FastAPI:
    """Return the service, which starts and stops its parts with the application's lifespan."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _running(settings, metrics) as services:
            app.state.services = services
            yield

    return create_api(settings, metrics, lifespan)


@asynccontextmanager
async def _running(settings: Settings, metrics: Metrics) -> AsyncIterator[Services]:
    """Start the parts, from the innermost; stop them in the opposite order."""
    async with AsyncExitStack() as stack:
        url = settings.redis_url
        if url is None:
            private = await stack.enter_async_context(PrivateRedis(settings.redis_folder))
            url = private.url
            _log.info("private Redis started, its data are in %s", settings.redis_folder)
        replica = await stack.enter_async_context(running_replica(settings, url, metrics))
        redis, cached, pools = replica.redis, replica.cached, replica.pools
        await pools.start()
        sessions = SessionStore(
            redis, metrics, dimension=cached.dimension, ttl=settings.session_ttl
        )
        contexts = Contexts(sessions, cached, timeout=settings.request_timeout)
        reranking = Reranking(
            await asyncio.to_thread(IoI.load, settings.reranker, settings.device)
            if settings.reranker
            else None,
            metrics,
            short_list=SHORT_LIST,
            timeout=settings.request_timeout,
        )
        stack.callback(reranking.close)
        turns = Turns(
            sessions=sessions,
            contexts=contexts,
            pools=pools,
            encoder=cached,
            selector=Selector(reranking, replica.pairwise),
            reranking=reranking,
            metrics=metrics,
            max_turns=settings.max_turns,
            timeout=settings.request_timeout,
        )
        stack.push_async_callback(turns.close)
        if settings.default_pool:
            await pools.keep_filled(partial(_fill_default_pool, pools, settings.default_pool))
        yield Services(
            settings=settings,
            metrics=metrics,
            encoder=replica.encoder,
            queues=replica.queues,
            pools=pools,
            turns=turns,
            sessions=Sessions(sessions, contexts, pools, cached),
            ranking=Ranking(
                contexts=contexts,
                pools=pools,
                encoder=cached,
                pairwise=replica.pairwise,
                reranking=reranking,
                metrics=metrics,
                timeout=settings.request_timeout,
            ),
            planning=Planning(contexts, cached, metrics),
            ping=Probe(redis, metrics, settings.redis_cluster),
        )


async def _fill_default_pool(pools: Pools, file: Path) -> None:
    """Create the pool `default` of everybody without a key, unless it is there."""
    candidates = read_candidates(file)
    try:
        await pools.load(NAMESPACE, DEFAULT_POOL)
        if pools.view(NAMESPACE, DEFAULT_POOL).version:
            return  # one without a version was created by a start that was broken off
    except PoolNotReady as error:  # which only a service that runs can be asked to mend
        _log.warning("default pool: %s", error)
        return
    except PoolNotFound:
        await pools.create(NAMESPACE, DEFAULT_POOL, description=f"From {file.name}")
    edited = await pools.upsert(NAMESPACE, DEFAULT_POOL, candidates)
    _log.info("pool %s filled with %d candidates of %s", DEFAULT_POOL, edited.size, file)

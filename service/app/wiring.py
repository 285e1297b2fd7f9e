"""Wires the service: the use cases over the components, and the API over the use cases."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI

from turnwise.models.errors import DataError
from turnwise.models.texts import write_count
from turnwise.service.api import create_api
from turnwise.service.api.access.admission import Admission
from turnwise.service.api.access.concurrency import limit_concurrency
from turnwise.service.api.access.keys import ApiKeys
from turnwise.service.api.services import Services, once_a_second
from turnwise.service.app.components import Components, running_components
from turnwise.service.app.loading import load_own_reranker, load_reranker
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.errors import PoolNotFound, PoolNotReady
from turnwise.service.fallback import FallbackService
from turnwise.service.journal import Journal
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import PoolKey, read_candidates
from turnwise.service.pools.stores import does_answer
from turnwise.service.redaction import Hook, load_hook
from turnwise.service.redis.connection import WriteCheck
from turnwise.service.redis.private import PrivateRedis
from turnwise.service.selection.confidence import Confidence
from turnwise.service.selection.context import Contexts
from turnwise.service.selection.idle import IdleEncoding
from turnwise.service.selection.pipeline import Pipeline
from turnwise.service.selection.reranking import Reranking
from turnwise.service.sessions.feedback import FeedbackStore
from turnwise.service.sessions.store import SessionStore
from turnwise.service.sessions.writers import SessionWriters
from turnwise.service.settings import Settings, SettingsError
from turnwise.service.threads import FairThreads, make_python_threads, share_threads
from turnwise.service.use_cases.candidates import Candidates
from turnwise.service.use_cases.chat import Chat
from turnwise.service.use_cases.learning import Learning
from turnwise.service.use_cases.plan import Planning
from turnwise.service.use_cases.pools import Pools
from turnwise.service.use_cases.rank import Ranking
from turnwise.service.use_cases.rerank import DocumentRanking
from turnwise.service.use_cases.search import Search
from turnwise.service.use_cases.sessions import Sessions
from turnwise.service.use_cases.turn import Turns
from turnwise.service.use_cases.turn_records import TurnRecords
from turnwise.service.use_cases.upload_checks import UploadChecks
from turnwise.service.wire import DEFAULT_NAMESPACE
from turnwise.service.wire.pools import PoolRequest

DEFAULT_POOL = "default"
SHORT_LIST = 100
"""Retrieved candidates that MaxSim or a re-ranker orders again."""

_log = logging.getLogger("turnwise")


def create_app(settings: Settings) -> FastAPI:
    """Return the application; its lifespan starts and stops the components."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _running(settings, metrics) as services:
            app.state.services = services
            yield

    return create_api(settings, metrics, lifespan)


@asynccontextmanager
async def _running(settings: Settings, metrics: Metrics) -> AsyncIterator[Services]:
    """Yield the services of a replica. They start here, and stop in the opposite order."""
    async with AsyncExitStack() as stack:
        share_threads(metrics)
        keys = ApiKeys(settings, metrics)
        redact = load_hook(settings.redact) if settings.redact else None
        journal = Journal(settings.journal, metrics, redact) if settings.journal else None
        if journal:
            stack.push_async_callback(asyncio.to_thread, journal.close)
        url = settings.redis_url or await _start_private_redis(settings.redis_folder, stack)
        components = await stack.enter_async_context(running_components(settings, url, metrics))
        await components.pool_follower.start([PoolKey(DEFAULT_NAMESPACE, DEFAULT_POOL)])
        reranking = await _load_reranking(settings, components.queues[0], metrics)
        stack.push_async_callback(reranking.close)
        planner = FairThreads(1, "planner", metrics)
        stack.push_async_callback(asyncio.to_thread, planner.shutdown, cancel_futures=True)
        fallback = make_fallback(settings, redact)
        if fallback:
            stack.push_async_callback(fallback.close)
        services = _make_services(
            settings=settings,
            metrics=metrics,
            keys=keys,
            components=components,
            reranking=reranking,
            planner=planner,
            journal=journal,
            redact=redact,
            fallback=fallback,
        )
        stack.push_async_callback(services.turns.close)
        if settings.default_pool:
            fill = partial(
                _fill_default_pool,
                components.pools,
                settings.default_pool,
                settings.max_pool_size,
            )
            await components.pool_follower.keep_filled(fill)
        following = asyncio.create_task(keys.follow())
        stack.callback(following.cancel)
        yield services


async def _start_private_redis(folder: Path, stack: AsyncExitStack) -> str:
    """Return the URL of a private Redis, which stops with the stack."""
    private = await stack.enter_async_context(PrivateRedis(folder))
    _log.info("private Redis started, its data are in %s", folder)
    return private.url


async def _load_reranking(settings: Settings, queue: EncoderQueue, metrics: Metrics) -> Reranking:
    return Reranking(
        await asyncio.to_thread(load_reranker, settings),
        await asyncio.to_thread(load_own_reranker, settings),
        queue,
        metrics,
        short_list=SHORT_LIST,
        timeout=settings.request_timeout,
    )


def make_fallback(settings: Settings, redact: Hook | None) -> FallbackService | None:
    """Return the fallback service of the settings; nothing is called yet.

    Raises:
        SettingsError: The proxy that the environment names for it needs a package that is missing.
    """
    if not (settings.fallback_url and settings.fallback_model):
        return None
    key = settings.fallback_key.get_secret_value() if settings.fallback_key else None
    try:
        return FallbackService(
            settings.fallback_url,
            key=key,
            model=settings.fallback_model,
            timeout=settings.fallback_timeout,
            redact=redact,
        )
    except ImportError as error:
        raise SettingsError(f"TURNWISE_FALLBACK_URL: {error}") from None


def _make_services(
    *,
    settings: Settings,
    metrics: Metrics,
    keys: ApiKeys,
    components: Components,
    reranking: Reranking,
    planner: FairThreads,
    journal: Journal | None,
    redact: Hook | None,
    fallback: FallbackService | None,
) -> Services:
    """Return the use cases over the running parts, as the routes find them."""
    timeout = settings.request_timeout
    encoder = components.cached
    pools = components.pools
    engine = components.store
    store = SessionStore(
        components.redis,
        metrics,
        fingerprint=encoder.fingerprint,
        dimension=encoder.dimension,
        ttl=settings.session_ttl,
        paired=encoder.kind.paired,
        max_sessions=settings.max_sessions,
    )
    writers = SessionWriters(metrics, timeout)
    contexts = Contexts(store, encoder, timeout=timeout)
    confidence = Confidence(
        encoder.calibration,
        encoder.example_calibration,
        encoder.aggregation,
        encoder.knows_script,
    )
    pipeline = Pipeline(reranking, components.pairwise, confidence, encoder.fusion)
    learning = Learning(
        sessions=store, contexts=contexts, pools=pools, redact=redact, timeout=timeout
    )
    turns = Turns(
        sessions=store,
        writers=writers,
        contexts=contexts,
        pools=pools,
        pipeline=pipeline,
        idle=IdleEncoding(store, encoder),
        records=TurnRecords(metrics, journal),
        max_turns=settings.max_turns,
        timeout=timeout,
    )
    ranking = Ranking(contexts=contexts, pools=pools, pipeline=pipeline, metrics=metrics)
    upload_checks = UploadChecks(components.encoder)
    write_check = WriteCheck((components.redis, components.redis_of_pools), metrics)
    return Services(
        settings=settings,
        metrics=metrics,
        admission=Admission(settings, metrics),
        concurrency=limit_concurrency(metrics),
        keys=keys,
        encoder=components.encoder,
        queues=components.queues,
        bodies=make_python_threads("bodies", metrics),
        uploads=make_python_threads("uploads", metrics),
        pools=pools,
        candidates=Candidates(pools, upload_checks),
        upload_checks=upload_checks,
        turns=turns,
        chat=Chat(
            turns=turns,
            sessions=store,
            pools=pools,
            fallback=fallback,
            metrics=metrics,
            max_turns=settings.max_turns,
        ),
        sessions=Sessions(
            store=store,
            writers=writers,
            feedback=FeedbackStore(components.redis, metrics),
            learning=learning,
            contexts=contexts,
            pools=pools,
            metrics=metrics,
            journal=journal,
        ),
        learning=learning,
        ranking=ranking,
        document_ranking=DocumentRanking(ranking, reranking),
        search=Search(contexts, pools, pipeline, metrics),
        planning=Planning(contexts, metrics, planner),
        followed_pools=components.followed_pools,
        pool_follower=components.pool_follower,
        store_answers=once_a_second(partial(does_answer, engine)) if engine else None,
        redis_answers=once_a_second(write_check),
    )


async def _fill_default_pool(pools: Pools, file: Path, most: int) -> None:
    """Create the pool `default` of the namespace without a key, unless it exists.

    Raises:
        SettingsError: The file cannot be read, or holds something else than candidates.
    """
    try:
        candidates = await asyncio.to_thread(read_candidates, file, most)
    except DataError as error:
        raise SettingsError(f"TURNWISE_DEFAULT_POOL: {error}") from None
    try:
        await pools.load(DEFAULT_NAMESPACE, DEFAULT_POOL)
        view = await pools.view(DEFAULT_NAMESPACE, DEFAULT_POOL)
        if view.version > 0:  # it is 0 after an interrupted start
            return
    except PoolNotReady as error:  # the API of a running service can repair it
        _log.warning("default pool: %s", error)
        return
    except PoolNotFound:
        request = PoolRequest(description=f"From {file.name}")
        await pools.create(DEFAULT_NAMESPACE, DEFAULT_POOL, request)
    edited = await pools.upsert(DEFAULT_NAMESPACE, DEFAULT_POOL, candidates)
    filled = write_count(edited.size, "candidate")
    _log.info("pool %s filled with %s of %s", DEFAULT_POOL, filled, file)

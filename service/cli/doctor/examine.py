"""Examines what a service needs, before its start or while it runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter

from redis.asyncio import Redis

from turnwise.models.errors import TurnwiseError
from turnwise.models.roles import Role, RoleText
from turnwise.service.app.loading import load_encoder, make_remote_encoder
from turnwise.service.cli.doctor import Finding
from turnwise.service.cli.doctor.host import examine_device, examine_port, examine_settings
from turnwise.service.cli.doctor.pools import examine_pools
from turnwise.service.cli.doctor.redis import examine_redis, examine_writes
from turnwise.service.encoder.model import REMOTE, Encoder
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.stores import connect_store
from turnwise.service.redis.connection import connect
from turnwise.service.redis.private import (
    PrivateRedisError,
    has_data,
    running_or_started,
    server_program,
)
from turnwise.service.settings import Settings, SettingsError

_SAID = "Hello, I would like to change the date of my booking to Friday, please."


async def examine(settings: Settings, doing: Callable[[str], None]) -> AsyncIterator[Finding]:
    """Yield the findings. Nothing changes, except that a model may be exported, as `serve` does.

    Args:
        settings: The service's settings.
        doing: Progress callback: called with the name of the next step.
    """
    for finding in examine_settings(settings):
        yield finding
    doing("loading the model")
    encoder, finding = await asyncio.to_thread(_examine_model, settings)
    yield finding
    if encoder and encoder.device != REMOTE:
        yield examine_device(encoder.device)
    doing("asking Redis")
    async for finding in _examine_redis_and_pools(settings, encoder):
        yield finding
    doing("looking at the port")
    fingerprint = encoder.fingerprint if encoder else None
    yield await asyncio.to_thread(examine_port, settings, fingerprint)


def _examine_model(settings: Settings) -> tuple[Encoder | None, Finding]:
    where = "TURNWISE_ENCODER_URL" if settings.encoder_url else "TURNWISE_DEVICE"
    try:
        with ExitStack() as stack:
            encoder = _load_encoder(settings, stack)
            seconds = []
            for _ in range(6):
                begin = perf_counter()
                encoder.forward([*encoder.tokenize([RoleText(_SAID, Role.SAID)])])
                seconds.append(perf_counter() - begin)
    except (TurnwiseError, RuntimeError) as error:  # torch raises RuntimeError if out of memory
        advice = f"check TURNWISE_MODEL and {where}"
        return None, Finding("model", "fail", " ".join(str(error).split()), advice)
    found = (
        f"{encoder.name} ({encoder.fingerprint[:8]}), {encoder.kind}, dimension "
        f"{encoder.dimension}, {encoder.runtime}, {median(seconds[1:]) * 1e3:.0f} ms an utterance"
    )
    if encoder.device == "cpu" and encoder.runtime.startswith("torch"):
        advice = "see the warning: in ONNX Runtime it would take half the time"
        return encoder, Finding("model", "fail", found, advice)
    return encoder, Finding("model", "ok", found)


def _load_encoder(settings: Settings, stack: ExitStack) -> Encoder:
    """Return the encoder; a remote one is checked against the card of the model."""
    if settings.encoder_url is None:
        return load_encoder(settings, settings.model)
    encoder = make_remote_encoder(settings, settings.encoder_url, Metrics())
    stack.callback(encoder.close)
    encoder.verify()
    return encoder


async def _examine_redis_and_pools(
    settings: Settings, encoder: Encoder | None
) -> AsyncIterator[Finding]:
    async with AsyncExitStack() as stack:
        try:
            url = settings.redis_url or await _start_private_redis(settings.redis_folder, stack)
        except (PrivateRedisError, OSError) as error:
            yield Finding("redis", "fail", str(error), "set TURNWISE_REDIS_URL to a Redis")
            return
        if url is None:
            yield Finding("redis", "ok", "none yet; the service starts a private one")
            return
        try:
            redis = connect(url, cluster=settings.redis_cluster, timeout=settings.redis_timeout)
        except SettingsError as error:
            yield Finding("redis", "fail", str(error), "correct TURNWISE_REDIS_URL")
            return
        stack.push_async_callback(redis.aclose)
        findings = await examine_redis(redis)
        for finding in findings:
            yield finding
        # If Redis does not answer, that failure is the only finding.
        if [finding.grade for finding in findings] == ["fail"]:
            return
        yield await examine_writes(redis)
        if encoder:
            for finding in await _examine_pools(settings, redis, encoder.fingerprint):
                yield finding


async def _examine_pools(settings: Settings, redis: Redis, fingerprint: str) -> list[Finding]:
    """Return the findings about the pools, and about the candidate store if there is one."""
    async with AsyncExitStack() as stack:
        engine = None
        if settings.store_url:
            try:
                engine = connect_store(settings.store_url, Metrics())
            except SettingsError as error:
                return [Finding("store", "fail", str(error), "install it")]
            stack.push_async_callback(engine.close)
        has_pairwise = settings.pairwise is not None
        return await examine_pools(redis, fingerprint, pairwise=has_pairwise, engine=engine)


async def _start_private_redis(folder: Path, stack: AsyncExitStack) -> str | None:
    """Return the URL of the private Redis, started if it has data; None if it has none."""
    server_program()
    if not has_data(folder):
        return None
    return await stack.enter_async_context(running_or_started(folder))

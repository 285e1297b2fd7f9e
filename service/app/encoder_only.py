"""Wires a service that only encodes: `/v1/embeddings` over the encoder queue, without Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from turnwise.service.api import create_api
from turnwise.service.api.access.admission import Admission
from turnwise.service.api.access.concurrency import limit_concurrency
from turnwise.service.api.access.keys import ApiKeys
from turnwise.service.api.routes import embeddings, ops
from turnwise.service.api.services import EncoderServices
from turnwise.service.app.components import load_main_encoder, start_queue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings, SettingsError
from turnwise.service.threads import make_python_threads, share_threads


def create_encoder_app(settings: Settings) -> FastAPI:
    """Return the application; its lifespan starts and stops the encoder.

    Raises:
        SettingsError: The encoder is remote.
    """
    if settings.encoder_url:
        raise SettingsError("TURNWISE_ENCODER_URL: an encoder-only service runs the model itself")
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            share_threads(metrics)
            keys = ApiKeys(settings, metrics)
            encoder = await load_main_encoder(settings, metrics, stack)
            queue = await start_queue(settings, encoder, metrics, stack)
            following = asyncio.create_task(keys.follow())
            stack.callback(following.cancel)
            app.state.services = EncoderServices(
                settings=settings,
                metrics=metrics,
                admission=Admission(settings, metrics),
                concurrency=limit_concurrency(metrics),
                keys=keys,
                encoder=encoder,
                queues=(queue,),
                bodies=make_python_threads("bodies", metrics),
            )
            yield

    return create_api(settings, metrics, lifespan, (embeddings.router, ops.router))

"""The HTTP API: `create_api` puts routes, middleware, errors and documentation together."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from itertools import chain

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from turnwise.service.api import console, ops, plan, pools, rank, sessions
from turnwise.service.api.docs import DESCRIPTION, TAGS, add_docs
from turnwise.service.api.middleware import (
    BodyLimit,
    Cancellation,
    Observation,
    RequestIds,
    Shedding,
)
from turnwise.service.api.openapi import add_openapi
from turnwise.service.api.problems import add_problem_handlers
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.tracing import telemetry
from turnwise.service.settings import Settings

_ROUTERS = (
    sessions.router,
    rank.router,
    plan.router,
    pools.router,
    ops.router,
    console.router,
)


def create_api(
    settings: Settings,
    metrics: Metrics,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
) -> FastAPI:
    """Return the ASGI application; `lifespan` puts `Services` into `app.state.services`."""
    app = FastAPI(
        title="Turnwise",
        version=version("turnwise"),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=telemetry(enabled=settings.tracing),
        middleware=[
            Middleware(RequestIds),
            Middleware(Observation, metrics=metrics),
            Middleware(Shedding),
            Middleware(BodyLimit, limits=settings),
            Middleware(Cancellation),
        ],
    )
    add_problem_handlers(app)
    for router in _ROUTERS:
        app.include_router(router)
    add_docs(app)
    add_openapi(app, settings)
    _create_series(metrics)
    return app


def _create_series(metrics: Metrics) -> None:
    for route in chain.from_iterable(router.routes for router in _ROUTERS):
        if isinstance(route, APIRoute):
            for method in route.methods or ():
                metrics.requests.labels(method, route.path_format, route.status_code or 200)
                metrics.request_seconds.labels(method, route.path_format)

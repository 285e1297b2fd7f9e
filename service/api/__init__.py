"""The HTTP API: `create_api` puts routes, middleware, errors and documentation together.

- `routes`: the routes, one module for each resource. `access`: who may call them, and when.
- `http`: middleware, bodies, problems, the documentation, and the protocol of a connection.
- `services`: the parts of a running replica that routes need.
"""

# Before FastAPI: the module keeps OTEL_PROPAGATORS from OpenTelemetry, which FastAPI imports.
from turnwise.service.observe.tracing import telemetry  # isort: skip

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from itertools import chain

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from turnwise.service.api.http.docs import add_docs
from turnwise.service.api.http.middleware import (
    PROBES,
    BodyLimit,
    Cancellation,
    HostNames,
    Observation,
    RequestIds,
)
from turnwise.service.api.http.openapi import DESCRIPTION, TAGS, add_openapi
from turnwise.service.api.http.problems import add_problem_handlers
from turnwise.service.api.routes import chat, console, ops, plan, pools, rank, rerank, sessions
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

ROUTERS = (
    sessions.router,
    chat.router,
    rank.router,
    rerank.router,
    plan.router,
    pools.router,
    ops.router,
    console.router,
)


def create_api(
    settings: Settings,
    metrics: Metrics,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    routers: Sequence[APIRouter] = ROUTERS,
) -> FastAPI:
    """Return the ASGI application; `lifespan` puts what routes need into `app.state.services`."""
    used = {tag for router in routers for tag in router.tags}
    app = FastAPI(
        title="Turnwise",
        version=version("turnwise"),
        description=DESCRIPTION,
        openapi_tags=[tag for tag in TAGS if tag["name"] in used],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry={
            **telemetry(enabled=settings.tracing),
            "exclude": lambda scope: scope["path"] in PROBES,
        },
        middleware=[
            Middleware(RequestIds),
            Middleware(Observation, metrics=metrics),
            Middleware(HostNames, names=settings.host_names),
            Middleware(BodyLimit, limits=settings),
            Middleware(Cancellation),
        ],
    )
    add_problem_handlers(app)
    add_openapi(app, settings)
    if not settings.pages:
        routers = [router for router in routers if router is not console.router]
    for router in routers:  # the routes of turns first, as each request tries them in order
        app.router.routes.extend(router.routes)
    if settings.pages:
        add_docs(app)
    _create_series(metrics, routers)
    return app


def _create_series(metrics: Metrics, routers: Iterable[APIRouter]) -> None:
    for route in chain.from_iterable(router.routes for router in routers):
        if isinstance(route, APIRoute):
            for method in route.methods or ():
                metrics.requests.labels(method, route.path_format, route.status_code or 200)
                metrics.request_seconds.labels(method, route.path_format)

"""The documentation at `/docs`, and its texts. The page loads no scripts from other servers."""

import asyncio
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic_core import to_json
from starlette.responses import FileResponse, HTMLResponse, Response

from turnwise.service.api.http.headers import UNCACHED, page_headers
from turnwise.service.errors import (
    BodyTooLarge,
    BodyTooSlow,
    DeadlineExceeded,
    Draining,
    EncoderFailed,
    EncoderUnavailable,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    PoolNotFound,
    PoolNotReady,
    RequestRateExceeded,
    ServiceError,
    StateUnavailable,
    StoreUnavailable,
    Unauthenticated,
    UnsupportedMedia,
)
from turnwise.service.wire.problems import PROBLEM_JSON, PROBLEM_PREFIX

Responses = dict[int | str, dict[str, Any]]

DESCRIPTION = """
Turnwise selects the replies of a chatbot. Post each turn of a session as it is said. The answer
holds the best candidates of a pool of hundreds or millions. Turnwise encodes only the new
utterance.

Every error is a problem document (RFC 9457, `application/problem+json`). Its `type` is
`urn:turnwise:problem:` and a name that does not change; its `errors` name the invalid fields. If
an answer has the header `Retry-After`, the same request may succeed later.

`PUT` answers 200 with the resource, whether it is new or existed before. `DELETE` of a session or a
pool answers 204. `DELETE` of a turn or a candidate answers 200 with the new state, and of sessions
by the prefix of their ids 200 with their number.

Every answer has an `X-Request-ID`: that of the request if it is well-formed, else a new one. Two
answers have none: 400 to a request that is not HTTP, and 431.
"""
TAGS = [
    {
        "name": "sessions",
        "description": "Sessions of a chatbot: turns, transcripts, score matrices.",
    },
    {"name": "chat", "description": "The next reply, for chat clients of OpenAI's API."},
    {"name": "rank", "description": "Rank candidates by context, or toward goals."},
    {"name": "encode", "description": "Texts to vectors, for replicas and clients of OpenAI."},
    {"name": "plan", "description": "Put goals into the order in which a dialogue can reach them."},
    {"name": "pools", "description": "Named, versioned sets of candidates."},
    {"name": "operation", "description": "Probes, metrics and version. They need no API key."},
]
SERVER_TIMING = {
    "Server-Timing": {
        "description": "The stages of `timings_ms`, for browsers and proxies.",
        "schema": {"type": "string", "example": "encode;dur=5.912, total;dur=7.204"},
    }
}
ENCODING_ERRORS = (EncoderFailed, EncoderUnavailable, Overloaded, DeadlineExceeded, Draining)
"""The errors of every route that encodes."""
POOL_ERRORS = (PoolNotFound, PoolNotReady, StateUnavailable, StoreUnavailable)
"""The errors of every route that reads a pool."""

_KEYED: tuple[type[ServiceError], ...] = (
    Unauthenticated,
    Forbidden,
    RequestRateExceeded,
    InvalidRequest,
    ServiceError,
)
_WITH_BODY = (*_KEYED, BodyTooLarge, BodyTooSlow, UnsupportedMedia)
_HEADERS = page_headers("img-src 'self' data:")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true});\n'
"""A file of its own, because the policy forbids scripts in the page."""
_ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


def failures(*errors: type[ServiceError], body: bool = False, keyed: bool = True) -> Responses:
    """Return the OpenAPI responses for the errors of a route, by status.

    Args:
        errors: The errors of this route alone.
        body: Whether the route takes a body; adds the errors of bodies.
        keyed: Whether the route takes an API key; adds the errors of keys and parameters.
    """
    distinct: set[type[ServiceError]] = set(errors)
    if body:
        distinct.update(_WITH_BODY)
    elif keyed:
        distinct.update(_KEYED)
    by_status: dict[int, list[type[ServiceError]]] = {}
    for error in sorted(distinct, key=lambda each: (each.status, each.slug)):
        by_status.setdefault(error.status, []).append(error)
    return {status: _describe_response(group) for status, group in by_status.items()}


def add_docs(app: FastAPI) -> None:
    """Serve `/docs` and the document behind it, `/openapi.json`."""
    router = APIRouter(include_in_schema=False)

    @cache
    def document() -> bytes:
        return to_json(app.openapi())

    @router.get("/openapi.json")
    async def openapi() -> Response:
        body = await asyncio.to_thread(document)  # the first request builds it
        return Response(body, headers=UNCACHED, media_type="application/json")

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(_PAGE.format(title=f"{app.title} {app.version}"), headers=_HEADERS)

    @router.get("/docs/start.js")
    async def start() -> Response:
        return Response(_START, headers=_HEADERS, media_type="text/javascript")

    @router.get("/docs/{asset}")
    async def asset(asset: str) -> Response:
        if asset not in _ASSETS:
            raise NotFound(f"there is nothing at /docs/{asset}")
        path = str(files("fastapi_offline") / "static" / asset)
        return FileResponse(path, headers=_HEADERS, media_type=_ASSETS[asset])

    app.include_router(router)


def _describe_response(errors: Iterable[type[ServiceError]]) -> dict[str, Any]:
    examples = {
        error.slug: {
            "value": {
                "type": PROBLEM_PREFIX + error.slug,
                "title": error.title,
                "status": error.status,
                "detail": "what went wrong this time",
            }
        }
        for error in errors
    }
    return {
        "description": "; ".join(dict.fromkeys(error.title for error in errors)),
        "content": {
            PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": examples}
        },
    }

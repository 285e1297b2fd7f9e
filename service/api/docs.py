"""The documentation at `/docs`, without a script from elsewhere, and its words on errors."""

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse, Response

from turnwise.service.errors import (
    BodyTooLarge,
    BodyTooSlow,
    DeadlineExceeded,
    Draining,
    EncoderFailed,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    ServiceError,
    Unauthenticated,
    UnsupportedMedia,
)
from turnwise.service.wire.problems import PROBLEM_JSON, PROBLEM_PREFIX

Responses = dict[int | str, dict[str, Any]]

DESCRIPTION = """
Turnwise selects the replies of a conversation. Post each utterance as it is said; the answer holds
the best candidates of a pool, out of hundreds or of millions, for the price of encoding one
utterance.

Every error, of every path, is a problem document (RFC 9457, `application/problem+json`). Its `type`
is `urn:turnwise:problem:` and a name that stays; its `errors` name the fields at fault. Where an
answer has the header `Retry-After`, the same request may work later.

`PUT` says what should be, so it answers 200 with the resource as it stands, whether it was made now
or before. `DELETE` of a session or a pool answers 204; where it leaves a new state behind (the last
turn taken back, a new version of a pool), it answers 200 with that state.

But for a 400 to what is no HTTP, and a 431, every answer carries `X-Request-ID`: the request's own,
where it is sensible, or a new one.
"""
TAGS = [
    {"name": "sessions", "description": "Conversations: turns, transcripts, scores."},
    {"name": "rank", "description": "Candidates after a history, or toward goals."},
    {"name": "plan", "description": "Goals in the order in which a dialogue can reach them."},
    {"name": "pools", "description": "Candidates: catalogues of replies, by version."},
    {"name": "operation", "description": "Probes, metrics, version. They take no API key."},
]
SERVER_TIMING = {
    "Server-Timing": {
        "description": "The stages of `timings_ms`, for browsers and proxies.",
        "schema": {"type": "string", "example": "encode;dur=5.912, total;dur=7.204"},
    }
}
ENCODING = (EncoderFailed, Overloaded, DeadlineExceeded, Draining)
"""What any route that encodes may fail with."""

_KEYED: tuple[type[ServiceError], ...] = (Unauthenticated, Forbidden, InvalidRequest, ServiceError)
_WITH_BODY = (*_KEYED, BodyTooLarge, BodyTooSlow, UnsupportedMedia)
_ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


def failures(*errors: type[ServiceError], body: bool = False, keyed: bool = True) -> Responses:
    """Return what the documentation says about the errors of a route, by status.

    Args:
        errors: Those of this route.
        body: Whether it takes a body, and so the errors of bodies.
        keyed: Whether it takes an API key, and so the errors of keys and parameters.
    """
    common = _WITH_BODY if body else _KEYED if keyed else ()
    distinct: set[type[ServiceError]] = {*errors, *common}
    by_status: dict[int, list[type[ServiceError]]] = {}
    for error in sorted(distinct, key=lambda each: (each.status, each.slug)):
        by_status.setdefault(error.status, []).append(error)
    return {status: _response(group) for status, group in by_status.items()}


def add_docs(app: FastAPI) -> None:
    """Serve `/docs`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title=f"{app.title} {app.version}",
            swagger_js_url="docs/swagger-ui-bundle.js",
            swagger_css_url="docs/swagger-ui.css",
            swagger_favicon_url="data:,",
        )

    @router.get("/docs/{asset}")
    async def asset(asset: str) -> Response:
        if asset not in _ASSETS:
            raise NotFound(f"there is nothing at /docs/{asset}")
        path = str(files("fastapi_offline") / "static" / asset)
        return FileResponse(path, media_type=_ASSETS[asset])

    app.include_router(router)


def _response(errors: Iterable[type[ServiceError]]) -> dict[str, Any]:
    examples = {error.slug: {"value": _example(error)} for error in errors}
    return {
        "description": "; ".join(dict.fromkeys(error.title for error in errors)),
        "content": {
            PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": examples}
        },
    }


def _example(error: type[ServiceError]) -> dict[str, Any]:
    return {
        "type": PROBLEM_PREFIX + error.slug,
        "title": error.title,
        "status": error.status,
        "detail": "what went wrong this time",
    }

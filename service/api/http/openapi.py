"""The OpenAPI document of the routes: its texts, their errors, and the models of this service."""

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from turnwise.models.card import has_own_reranker, reranker_kind
from turnwise.service.errors import (
    BodyTooLarge,
    BodyTooSlow,
    DeadlineExceeded,
    Draining,
    EncoderFailed,
    EncoderUnavailable,
    Forbidden,
    InvalidRequest,
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
from turnwise.service.settings import Settings
from turnwise.service.wire.filters import FILTER_SCHEMAS
from turnwise.service.wire.problems import PROBLEM_JSON, PROBLEM_PREFIX, Problem

Json = dict[str, Any]
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


def add_openapi(app: FastAPI, settings: Settings) -> None:
    """Let `app.openapi` describe the API as this service is configured."""
    lock = Lock()

    def document() -> Json:
        with lock:  # building it takes a second, and threads may ask for it at once
            if app.openapi_schema is None:
                app.openapi_schema = _document(app, settings)
            return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign] # FastAPI's documented way


def _document(app: FastAPI, settings: Settings) -> Json:
    """Return the document, without models and API keys that this service does not have."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        tags=app.openapi_tags,
        routes=app.routes,
    )
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    document["components"]["schemas"] |= problem.pop("$defs") | {"Problem": problem}
    document["components"]["schemas"] |= FILTER_SCHEMAS
    for node in list(_nodes(document["components"]["schemas"])):
        if where := node.get("properties", {}).get("where"):
            where["anyOf"] = [{"$ref": "#/components/schemas/Filter"}, {"type": "null"}]
    missing = _missing_models(settings)
    for node in reversed(list(_nodes(document))):  # inner nodes first: they may become empty
        if "enum" in node:
            node["enum"] = [name for name in node["enum"] if name not in missing]
        if "anyOf" in node:
            node["anyOf"] = [kind for kind in node["anyOf"] if kind.get("enum") != []]
    if not settings.keyed:
        document["components"].pop("securitySchemes", None)
        for operation in _nodes(document["paths"]):
            operation.pop("security", None)
    return document


def _nodes(value: object) -> Iterator[Json]:
    """Yield every object in a JSON value, at any depth."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from _nodes(child)


def _missing_models(settings: Settings) -> set[str]:
    """Return the names of models that this service does not have."""
    present: set[str] = set()
    if settings.pairwise:
        present.add("pairwise")
    if settings.own_reranker and has_own_reranker(settings.model):
        present.add("cross_encoder")
    if settings.reranker:
        present.add("ioi" if reranker_kind(settings.reranker) else "cross_encoder")
    return {"pairwise", "ioi", "cross_encoder"} - present

"""The OpenAPI document of the routes, with the models of this service."""

from collections.abc import Iterator
from threading import Lock
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from turnwise.models.card import has_own_reranker, reranker_kind
from turnwise.service.settings import Settings
from turnwise.service.wire.filters import FILTER_SCHEMAS
from turnwise.service.wire.problems import Problem

Json = dict[str, Any]


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

"""Problem documents (RFC 9457): the format of every error answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwise.service.api.http.headers import UNCACHED
from turnwise.service.current_request import request_id
from turnwise.service.errors import (
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    ServiceError,
    Unauthenticated,
    UnsupportedMedia,
)
from turnwise.service.wire.problems import (
    PROBLEM_JSON,
    PROBLEM_PREFIX,
    ChatError,
    FieldError,
    Loc,
    Problem,
    explain_error,
)

CHAT_PATHS = {"/v1/chat/completions", "/v1/models"}
"""Paths for the clients of OpenAI: their problems have the member `error`."""
_MOST_ERRORS = 50

_CHALLENGES = {
    Unauthenticated: 'Bearer realm="turnwise"',
    Forbidden: 'Bearer realm="turnwise", error="insufficient_scope"',
}


def problem(error: ServiceError, path: str = "") -> Problem:
    """Return the problem document of an error; `path` is that of the request, if it has one."""
    chat_error = None
    if path in CHAT_PATHS:
        chat_error = ChatError(
            message=error.detail,
            type="server_error" if error.status >= ServiceError.status else "invalid_request_error",
            param=".".join(map(str, error.errors[0].loc)) if error.errors else None,
            code=error.slug,
        )
    return Problem(
        type=PROBLEM_PREFIX + error.slug,
        title=error.title,
        status=error.status,
        detail=error.detail,
        errors=error.errors[:_MOST_ERRORS],
        request_id=request_id.get("") or None,
        error=chat_error,
    )


def problem_response(
    error: ServiceError, headers: Mapping[str, str] | None = None, *, path: str = ""
) -> Response:
    """Return the error answer, with the headers `Retry-After` and `WWW-Authenticate` if needed."""
    found = problem(error, path)
    document = found.model_dump(exclude_none=True)
    if not error.errors:
        del document["errors"]
    if found.error:
        document["error"] = found.error  # with `param` also if it is null
    response = Response(
        to_json(document), error.status, UNCACHED | dict(headers or {}), PROBLEM_JSON
    )
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if challenge := _CHALLENGES.get(type(error)):
        response.headers["WWW-Authenticate"] = challenge
    return response


def add_problem_handlers(app: FastAPI) -> None:
    """Answer the exceptions of routes with problem documents.

    The `Observation` middleware logs and answers all other exceptions.
    """

    @app.exception_handler(ServiceError)
    async def service_error(request: Request, error: ServiceError) -> Response:
        part = "body" if request.method in {"POST", "PUT", "PATCH"} else "query"
        return problem_response(locate_error(error, part), path=request.scope["path"])

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        path = request.scope["path"]
        if isinstance(error.body, bytes):  # FastAPI decodes only JSON content types
            unsupported = UnsupportedMedia("send JSON, as Content-Type: application/json")
            return problem_response(unsupported, path=path)
        return problem_response(join_errors(error.errors(), error.body), path=path)

    @app.exception_handler(HTTPException)
    async def http_exception(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        route: Route | None = request.scope.get("route")
        methods = _find_methods(app, route.path_format) if route else []
        if "Allow" in headers and methods:  # FastAPI lists the methods of one route only
            headers["Allow"] = ", ".join(methods)
        found = _translate_error(request, error)
        return problem_response(found, headers, path=request.scope["path"])


def _find_methods(app: FastAPI, path_format: str) -> list[str]:
    """Return the documented methods of a path."""
    methods: list[str] = []
    for route in app.routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        if route.path_format == path_format:
            methods += route.methods or ()
    return methods


def locate_error(error: ServiceError, part: str) -> ServiceError:
    """Return the error with "body" or "query" before the path of each field."""
    return error.within(part) if isinstance(error, InvalidRequest) else error


def join_errors(
    errors: Sequence[Mapping[str, Any]], body: object, place: Loc | None = None
) -> InvalidRequest:
    """Return pydantic's errors as one, with each of the client's fields once and without values.

    Args:
        errors: The errors, as pydantic lists them.
        body: The validated value: the body or a part of it.
        place: Path of `body`. Without it, each `loc` begins with its place in the request.
    """
    fields = [FieldError(_find_path(error, body, place), explain_error(error)) for error in errors]
    about_type = [error["type"].endswith("_type") for error in errors]
    # Each branch of a union reports errors. Drop those about a value if others are about its parts,
    # and those about its type if another branch takes the type.
    with_parts = {field.loc[:end] for field in fields for end in range(len(field.loc))}
    with_right_type = {
        field.loc for field, is_of_type in zip(fields, about_type, strict=True) if not is_of_type
    }
    messages: dict[Loc, list[str]] = {}
    for field, is_of_type in zip(fields, about_type, strict=True):
        if field.loc not in with_parts and not (is_of_type and field.loc in with_right_type):
            messages.setdefault(field.loc, []).append(field.msg)
    return InvalidRequest(
        [FieldError(loc, " or ".join(dict.fromkeys(found))) for loc, found in messages.items()]
    )


def _find_path(error: Mapping[str, Any], body: object, place: Loc | None) -> Loc:
    """Return the path of an error without the names of union branches, which the body lacks."""
    loc: Loc = error["loc"]
    if place is None:
        place = loc[:1]
        loc = loc[1:]
        if place != ("body",):
            return (*place, *loc)
    path = list(place)
    for position, part in enumerate(loc):
        is_missing = error["type"] == "missing" and position == len(loc) - 1
        if isinstance(body, dict) and (part in body or is_missing):
            body = body.get(part)
        elif isinstance(body, list) and isinstance(part, int) and part < len(body):
            body = body[part]
        else:
            continue  # the name of a branch
        path.append(part)
    return tuple(path)


def _translate_error(request: Request, error: HTTPException) -> ServiceError:
    """Return our error for an exception of the framework."""
    if isinstance(error.__cause__, ServiceError):  # raised while the framework read the body
        return locate_error(error.__cause__, "body")
    path = request.url.path
    if error.status_code == NotFound.status:
        return NotFound(f"there is nothing at {path}")
    if error.status_code == MethodNotAllowed.status:
        return MethodNotAllowed(f"{request.method} is not a method of {path}")
    return InvalidRequest.field("cannot be read", "body")

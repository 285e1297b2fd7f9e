"""Routes of JSON: names in their paths, strict bodies, and answers that are serialised once."""

from codecs import BOM_UTF8
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from fastapi.routing import APIRoute
from jiter import from_json
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from turnwise.service.api.access.dependencies import Access
from turnwise.service.api.http.headers import UNCACHED
from turnwise.service.api.http.limits import check_counts
from turnwise.service.errors import InvalidRequest

_PARSED_AT_ONCE = 1 << 16
"""Bytes of a body up to which it is parsed on the event loop, in a millisecond."""


class JsonRoute(APIRoute):
    """A route with a dependency `Access`, which admits a request before its body is read.

    A name in its path may hold any character, also an escaped slash (`%2F`).

    It parses JSON strictly: RFC 8259, no NaN, no lone surrogates, no key twice in an object,
    limited counts.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a path whose names are still escaped, and then decode the names.

        In `scope["path"]` the names are decoded, so that an escaped slash looks like the end of a
        segment.
        """
        raw_path = scope.get("raw_path") or b""
        if b"%" not in raw_path:
            return super().matches(scope)
        segments = raw_path.decode("ascii").split("/")
        # Clients differ in what they escape: `/%70ools` is `/pools`.
        path = "/".join(quote(unquote(segment), safe="") for segment in segments)
        match, child_scope = super().matches({**scope, "path": path})
        escaped = child_scope.get("path_params", {})
        child_scope["path_params"] = {name: unquote(value) for name, value in escaped.items()}
        return match, child_scope

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit the request, then let FastAPI handle it; free its place once the answer begins.

        A refusal costs less here: FastAPI does much work before it calls a dependency.
        """
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # answers 405
            return
        place = await self._access.admit(Request(scope))
        if place is None:
            await super().handle(scope, receive, send)
            return

        async def free_and_send(message: Message) -> None:
            place.free()
            await send(message)

        with place:
            await super().handle(scope, receive, free_and_send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that gives the route a request with the strict parser."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly

    @cached_property
    def _access(self) -> Access:
        calls = (dependency.call for dependency in self.dependant.dependencies)
        return next(call for call in calls if isinstance(call, Access))


class _StrictRequest(Request):
    async def json(self) -> Any:  # noqa: ANN401 - whatever the JSON holds
        data = await self.body()
        if len(data) <= _PARSED_AT_ONCE:
            return self._parse(data)
        return await self.app.state.services.bodies.run(self._parse, data)

    def _parse(self, data: bytes) -> Any:  # noqa: ANN401 - whatever the JSON holds
        check_counts(self.app.state.services.settings, data)
        return parse_json(data)


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - whatever the JSON holds
    """Return the value of JSON text. A byte order mark, as Windows writes it, is skipped.

    Raises:
        InvalidRequest: The text is not JSON, or an object has a key twice; the error names the key.
    """
    try:
        return from_json(
            data.removeprefix(BOM_UTF8), allow_inf_nan=False, catch_duplicate_keys=True
        )
    except ValueError as error:
        raise InvalidRequest.field(f"not JSON: {error}") from None


def answer(value: object, timings_ms: Mapping[str, float] | None = None) -> Response:
    """Return a value as a JSON answer. Its type guarantees that it needs no further validation.

    Args:
        value: A pydantic model or a dataclass.
        timings_ms: Stages for the `Server-Timing` header.
    """
    return _as_response(to_json(value, inf_nan_mode="null"), timings_ms)


def answer_in_parts(
    value: BaseModel, name: str, timings_ms: Mapping[str, float] | None = None
) -> Response:
    """Return what `answer` does. A thread that calls it does not stop the event loop for long.

    Python runs no other thread until one value is serialised, so the items of a list are
    serialised one by one.

    Args:
        value: A pydantic model.
        name: The field with the list.
        timings_ms: Stages for the `Server-Timing` header.
    """
    items = [to_json(item, inf_nan_mode="null") for item in getattr(value, name)]
    with_empty_list = to_json(value.model_copy(update={name: []}), inf_nan_mode="null")
    field = b'"%s":' % name.encode()
    # No text holds the field with its empty list: quotes in a text are escaped.
    before, _, after = with_empty_list.partition(field + b"[]")
    body = b"".join([before, field, b"[", b",".join(items), b"]", after])
    return _as_response(body, timings_ms)


def _as_response(body: bytes, timings_ms: Mapping[str, float] | None) -> Response:
    response = Response(body, headers=UNCACHED, media_type="application/json")
    if timings_ms:
        stages = (f"{stage};dur={ms:.3f}" for stage, ms in timings_ms.items())
        response.headers["Server-Timing"] = ", ".join(stages)
    return response

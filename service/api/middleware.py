"""Around every request: its id, its metrics and log line, the size of its body, its client's leave.

Pure ASGI, outermost first: `RequestIds`, `Observation`, `Shedding` (a module of its own),
`BodyLimit`, `Cancellation`.
"""

import asyncio
import logging
import re
import secrets
from abc import ABC, abstractmethod
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.service.api.problems import problem_response
from turnwise.service.errors import (
    BodyTooLarge,
    BodyTooSlow,
    Draining,
    Forbidden,
    ServiceError,
    Unauthenticated,
    UnsupportedMedia,
)
from turnwise.service.observe.logs import request_id
from turnwise.service.observe.metrics import Metrics, Rejected
from turnwise.service.settings import Limits
from turnwise.service.wire.problems import FieldError

OTHER = "other"
"""Route of what the API does not describe: unknown paths and the documentation."""
CLIENT_LEFT = 499
"""Status, in logs and metrics, of a request whose client went away before the answer."""

BODY_SECONDS = 20.0
"""Seconds that a body may take, and one more for every `BODY_RATE` bytes of it."""
BODY_RATE = 16_384

SHED = "turnwise.shed"
"""In the scope of a request that was refused before it was routed: where it would have gone."""

_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"}
_PROBES = {"/livez", "/readyz", "/metrics"}
_UPLOAD = re.compile("/pools/[^/]+/candidates")
_REJECTED: dict[int, Rejected] = {
    Unauthenticated.status: "unauthenticated",
    Forbidden.status: "forbidden",
    BodyTooLarge.status: "body_too_large",
}
_SANE_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")

_DISCONNECT: Message = {"type": "http.disconnect"}

_log = logging.getLogger("turnwise.api")
_access = logging.getLogger("turnwise.access")


class HttpMiddleware(ABC):
    """Lets what is not HTTP, the lifespan, pass by."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        http = scope["type"] == "http"
        await (self._answer if http else self.app)(scope, receive, send)

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class RequestIds(HttpMiddleware):
    """Takes the client's `X-Request-ID`, or makes one; logs, problems and the answer carry it."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        identity = given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-ID"] = identity
            await send(message)

        token = request_id.set(identity)
        try:
            await self.app(scope, receive, send_with_id)
        finally:
            request_id.reset(token)


class Observation(HttpMiddleware):
    """Counts, times and logs requests by route; what nobody handled becomes a problem document.

    So does the end of a drain, at which the server cancels what is still under way.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin, status = perf_counter(), 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, observed)
        except asyncio.CancelledError:
            if status:
                raise
            _done_with_cancellation()
            await problem_response(Draining("the service stopped before the answer was ready"))(
                scope, receive, observed
            )
        except Exception:
            _log.exception("a request failed")
            if status:
                raise  # the server breaks the connection off, so that no half is taken for whole
            await problem_response(ServiceError("something went wrong in here"))(
                scope, receive, observed
            )
        finally:
            self._record(scope, status or CLIENT_LEFT, perf_counter() - begin)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get(SHED) or getattr(scope.get("route"), "path_format", OTHER)
        method = scope["method"] if scope["method"] in _METHODS else OTHER
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.request_seconds.labels(method, route).observe(seconds)
        if status in _REJECTED:
            self._metrics.rejected_requests.labels(_REJECTED[status]).inc()
        ms = round(seconds * 1e3, 2)
        _access.log(
            logging.DEBUG if route in _PROBES else logging.INFO,
            "%s %s %d %s ms", method, route, status, ms,
            extra={"method": method, "route": route, "status": status, "ms": ms},
        )  # fmt: skip


def _done_with_cancellation() -> None:
    """Take back the server's cancellation of a request that the drain did not wait for."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a request runs in a task
    task.uncancel()


class BodyLimit(HttpMiddleware):
    """Turns away bodies that are too large (declared, or counted), too slow, or encoded."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        super().__init__(app)
        self._limits = limits

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        most, seen, whole = self._most(scope), 0, False
        begin: float | None = None  # what comes before the first of it is read is not its time
        too_large = BodyTooLarge(f"the body has more than the limit of {most} bytes")
        if error := _encoded(scope) or (too_large if _declared(scope) > most else None):
            await problem_response(error, {"Connection": "close"})(scope, receive, send)
            return

        async def counted() -> Message:
            nonlocal begin, seen, whole
            begin = begin or asyncio.get_running_loop().time()
            until = None if whole else begin + BODY_SECONDS + seen / BODY_RATE
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise BodyTooSlow(f"{seen} bytes of the body came in time") from None
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > most:
                raise too_large
            return message

        await self.app(scope, counted, send)

    def _most(self, scope: Scope) -> int:
        # Not any path with that end: a session may be named `candidates`, and JSON is read whole.
        upload = scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"])
        return self._limits.max_upload_bytes if upload else self._limits.max_body_bytes


def _declared(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _encoded(scope: Scope) -> UnsupportedMedia | None:
    headers = Headers(scope=scope)
    for name, plain in (("content-encoding", "identity"), ("transfer-encoding", "chunked")):
        if headers.get(name, plain).strip().lower() != plain:
            message = f"should be {plain}, or left out"
            return UnsupportedMedia(f"{name}: {message}", [FieldError(("header", name), message)])
    return None


class Cancellation(HttpMiddleware):
    """Cancels the work on a request whose client went away, so that no queue holds it."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = _Client(receive, send)
        try:
            await self.app(scope, client.receive, client.send)
        except asyncio.CancelledError:
            if not client.left or client.task.uncancel():
                raise  # it is not, or not only, about the client
        finally:
            client.forget()


class _Client:
    """The client of one request, watched from the end of its body to the end of the answer."""

    def __init__(self, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a request runs in a task
        self.task, self.left = task, False
        self._receive, self._send = receive, send
        self._watch: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        if self._watch:
            await asyncio.wait([self._watch])  # raises nothing where the watch was called off
            return _DISCONNECT
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()
            await asyncio.sleep(0)  # where the cancellation takes effect
        elif not message.get("more_body", False):
            self._watch = asyncio.create_task(self._until_left())
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.forget()
        await self._send(message)

    def forget(self) -> None:
        if self._watch:
            self._watch.cancel()

    async def _until_left(self) -> None:
        await self._receive()
        self._leave()

    def _leave(self) -> None:
        self.left = True
        self.task.cancel()

"""Middleware of every request, as pure ASGI. The order is outermost first.

- `RequestIds` gives each request an id.
- `Observation` counts, times, logs and audits requests, and answers unexpected exceptions.
- `HostNames` rejects requests for another host name.
- `BodyLimit` rejects bodies that are too large or too slow.
- `Cancellation` cancels a request whose client disconnected.
"""

import asyncio
import ipaddress
import logging
import re
from abc import ABC, abstractmethod
from random import getrandbits
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise.service.api.access.audit import CLIENT_LEFT, audit
from turnwise.service.api.http.flood import Flood
from turnwise.service.api.http.problems import problem_response
from turnwise.service.current_request import request_id
from turnwise.service.errors import (
    BodyTooLarge,
    BodyTooSlow,
    Draining,
    Forbidden,
    HostNotAllowed,
    ServiceError,
    Unauthenticated,
    UnsupportedMedia,
)
from turnwise.service.observe.metrics import Metrics, Rejected
from turnwise.service.observe.tracing import exemplar
from turnwise.service.settings import Limits
from turnwise.service.wire.problems import FieldError

OTHER = "other"
"""Label `route` of unknown paths."""
BODY_SECONDS = 20.0
"""Seconds that a body may take, plus one for each `BODY_RATE` bytes."""
BODY_RATE = 16_384
PROBES = {"/livez", "/readyz", "/metrics"}
"""Paths that machines request all the time. Traces leave them out, and only `debug` logs them."""

_BODY = {"content-length", "transfer-encoding", "content-encoding"}
"""Headers of a request that may have a body."""
_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"}
_UPLOAD = re.compile("/pools/[^/]+/candidates")
_REJECTED: dict[int, Rejected] = {
    Unauthenticated.status: "unauthenticated",
    Forbidden.status: "forbidden",
    BodyTooLarge.status: "body_too_large",
    HostNotAllowed.status: "host_not_allowed",
}
_PORT = re.compile(r":\d*$")
_LONGEST_NAME = 253
_SANE_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")

_DISCONNECT: Message = {"type": "http.disconnect"}

_log = logging.getLogger("turnwise.api")
_access = logging.getLogger("turnwise.access")


class _HttpMiddleware(ABC):
    """Middleware that handles HTTP and passes the lifespan on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one scope of ASGI."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class RequestIds(_HttpMiddleware):
    """Takes the client's `X-Request-ID` or makes one, for logs, problems and the answer."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        identity = given if _SANE_ID.fullmatch(given) else f"{getrandbits(64):016x}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-ID"] = identity
            await send(message)

        token = request_id.set(identity)
        try:
            await self.app(scope, receive, send_with_id)
        finally:
            request_id.reset(token)


class Observation(_HttpMiddleware):
    """Counts, times and logs requests by route.

    It answers an unexpected exception with a problem document. It does the same for a request that
    the server cancels at the end of a drain. It delays the answers to a flood, and does not log it.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        super().__init__(app)
        self._metrics = metrics
        self._flood = Flood()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = perf_counter()
        status = 0
        is_of_flood = False

        async def observed(message: Message) -> None:
            nonlocal begin, status, is_of_flood
            if message["type"] == "http.response.start":
                status = message["status"]
                pause = self._flood.choose_pause(scope, status)
                if pause:
                    is_of_flood = True
                    await asyncio.sleep(pause)
                    begin += pause  # the pause does not count as time of the service
            await send(message)

        try:
            await self.app(scope, receive, observed)
        except asyncio.CancelledError:
            if status:
                raise
            _undo_cancellation()
            stopped = Draining("the service stopped before the answer was ready")
            await problem_response(stopped, path=scope["path"])(scope, receive, observed)
        except Exception:
            _log.exception("a request failed")
            if status:
                raise  # the server closes the connection, so the client notices
            failed = ServiceError("the service failed unexpectedly")
            await problem_response(failed, path=scope["path"])(scope, receive, observed)
        finally:
            seconds = perf_counter() - begin
            route = self._count(scope, status or CLIENT_LEFT, seconds)
            if not is_of_flood:
                _log_request(scope, route, status or CLIENT_LEFT, seconds)

    def _count(self, scope: Scope, status: int, seconds: float) -> str:
        """Count a request, and return the route that metrics and logs name."""
        route: str = getattr(scope.get("route"), "path_format", OTHER)
        method = _label_method(scope)
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.request_seconds.labels(method, route).observe(seconds, exemplar())
        if status in _REJECTED:
            self._metrics.rejected_requests.labels(_REJECTED[status]).inc()
        return route


def _log_request(scope: Scope, route: str, status: int, seconds: float) -> None:
    audit(scope, status)
    method = _label_method(scope)
    ms = round(seconds * 1e3, 2)
    _access.log(
        logging.DEBUG if route in PROBES else logging.INFO,
        "%s %s %d %s ms",
        method,
        route,
        status,
        ms,
        extra={"method": method, "route": route, "status": status, "ms": ms},
    )


def _label_method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else OTHER


def _undo_cancellation() -> None:
    """Undo the server's cancellation of this request, so that it can still be answered."""
    task = asyncio.current_task()
    assert task is not None  # a request runs in a task
    task.uncancel()


class HostNames(_HttpMiddleware):
    """Rejects requests whose `Host` has a name that the service does not have.

    A web page can point its own name at this machine (DNS rebinding), and the browser then lets it
    read the answers. Its requests still carry its name. An IP address is accepted: nobody can point
    it elsewhere, and the probes of Kubernetes send it.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        super().__init__(app)
        self._names = names

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = Headers(scope=scope).getlist("host") if self._names else ()
        for host in hosts:
            name = _PORT.sub("", host).rstrip(".").lower()
            if name and name not in self._names and not _is_address(name):  # HTTP/1.0 has no name
                answer = problem_response(_host_error(host), path=scope["path"])
                await answer(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _host_error(host: str) -> HostNotAllowed:
    error = FieldError(("header", "host"), "should be localhost, an IP address, or an allowed name")
    shown = host[:_LONGEST_NAME]
    return HostNotAllowed(
        f"the service does not answer to '{shown}'; TURNWISE_ALLOWED_HOSTS lists allowed names",
        [error],
    )


class BodyLimit(_HttpMiddleware):
    """Rejects bodies that are too large (by header or by count), too slow, or compressed."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        super().__init__(app)
        self._limits = limits

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Match the whole path: a session may be named `candidates`, and its bodies are not uploads.
        is_upload = scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"])
        limit = self._limits.max_upload_bytes if is_upload else self._limits.max_body_bytes
        body = _CheckedBody(scope, receive, limit, unread_limit=self._limits.max_body_bytes)
        await self.app(scope, body.receive, send)


class _CheckedBody:
    """The body of a request, which is checked while the route reads it.

    Errors are raised by `receive` rather than at once, so that the route checks the key first.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int, unread_limit: int) -> None:
        """Check the headers.

        Args:
            scope: The request.
            receive: Returns the parts of the body.
            limit: Most bytes of the body.
            unread_limit: Bytes that are read of a body whose headers are wrong.
        """
        self._receive = receive
        self._limit = limit
        self._unread_limit = unread_limit
        self._is_declared_too_large = _declared_length(scope) > limit
        self._encoding_error = _find_encoding_error(scope)
        self._seen = 0
        self._is_whole = False
        self._begin: float | None = None  # set when the first part is read

    async def receive(self) -> Message:
        if self._is_declared_too_large:
            raise self._too_large()
        message = await self._read()
        if self._encoding_error is None:
            return message
        # A client whose connection is closed with its body unread may lose the answer.
        while not self._is_whole and self._seen <= self._unread_limit:
            await self._read()
        raise self._encoding_error

    async def _read(self) -> Message:
        """Return the next part, which must come in time and not exceed the limit."""
        if self._begin is None:
            self._begin = asyncio.get_running_loop().time()
        until = None if self._is_whole else self._begin + BODY_SECONDS + self._seen / BODY_RATE
        try:
            async with asyncio.timeout_at(until):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow(f"only {self._seen} bytes of the body arrived in time") from None
        self._seen += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._seen > self._limit:
            raise self._too_large()
        return message

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body has more than the limit of {self._limit} bytes")


def _declared_length(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _find_encoding_error(scope: Scope) -> UnsupportedMedia | None:
    headers = Headers(scope=scope)
    for name, plain in (("content-encoding", "identity"), ("transfer-encoding", "chunked")):
        if headers.get(name, plain).strip().lower() != plain:
            message = f"should be {plain}, or left out"
            return UnsupportedMedia(f"{name}: {message}", [FieldError(("header", name), message)])
    return None


class Cancellation(_HttpMiddleware):
    """Cancels a request whose client disconnected, so that no queue keeps it.

    It watches requests with a body, and GETs. Others, such as deletions, run to their end.
    """

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = _Client(receive, send)
        if scope["method"] == "GET" and _BODY.isdisjoint(Headers(scope=scope)):
            await client.receive()  # the route does not: it expects no body
        try:
            await self.app(scope, client.receive, client.send)
        except asyncio.CancelledError:
            if not client.left:
                raise
            other_cancellations = client.task.uncancel()
            if other_cancellations:
                raise
        finally:
            client.forget()


class _Client:
    """Watches the client of a request from the end of the body to the end of the answer."""

    def __init__(self, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None  # a request runs in a task
        self.task = task
        self.left = False
        self._receive = receive
        self._send = send
        self._watch: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        if self._watch:
            await asyncio.wait([self._watch])  # does not raise if the watch was cancelled
            return _DISCONNECT
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()
            await asyncio.sleep(0)  # the cancellation takes effect here
        elif not message.get("more_body", False):
            self._watch = asyncio.create_task(self._wait_until_left())
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.forget()
        await self._send(message)

    def forget(self) -> None:
        if self._watch:
            self._watch.cancel()

    async def _wait_until_left(self) -> None:
        await self._receive()
        self._leave()

    def _leave(self) -> None:
        self.left = True
        self.task.cancel()

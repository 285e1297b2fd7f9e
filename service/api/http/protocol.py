"""HTTP/1.1 with bounds, as a protocol class for uvicorn's option `http`.

uvicorn's own classes read on while a request is answered, so that a client which sends requests
without an end fills the memory. This class bounds what a connection may hold and how long it may
take. It parses with httptools, and answers one request after the other.

- At most `WAITING` requests wait behind the one that is answered, and at most about `BODY_BYTES` of
  their bodies. Beyond that, the connection is not read until the application catches up.
- A head, which is the request line and the headers, has `HEAD_BYTES` and `HEAD_SECONDS`.
- A connection older than `CONNECTION_SECONDS` closes after its next answer, which says so
  (`Connection: close`). Clients connect again, and new replicas get their share of them.

A request that is not HTTP also gets a problem document. A request to upgrade (`Upgrade: h2c`, which
Java's client sends each time) gets its answer in HTTP/1.1.
"""

import asyncio
import logging
import random
from asyncio.events import TimerHandle
from collections import deque
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from starlette.types import Scope
from uvicorn import Config
from uvicorn.server import ServerState

from turnwise.service.api.http.exchange import Exchange
from turnwise.service.api.http.problems import problem_response
from turnwise.service.errors import HeadTooLarge, Malformed, ServiceError
from turnwise.service.wire.problems import FieldError

WAITING = 8
"""Requests that may wait on a connection for the answers before theirs."""
BODY_BYTES = 65_536
"""Bytes of bodies that may wait for the application, before reading stops."""
HEAD_BYTES = 131_072
"""Limit of a head."""
URL_BYTES = 65_535
"""Limit of a URL, the parser's own."""
HEAD_SECONDS = 10.0
CONNECTION_SECONDS = 300.0
"""Age at which a connection closes, give or take a fifth: not all at the same moment."""

_HEAD_END = b"\r\n\r\n"
_MALFORMED = Malformed("not an HTTP request", [FieldError(("request",), "should be HTTP/1.1")])
_TOO_LARGE = f"may have {HEAD_BYTES} bytes, and its URL {URL_BYTES}"

_log = logging.getLogger("turnwise.api")


class BoundedProtocol(asyncio.Protocol):
    """One connection. uvicorn creates it, and calls `shutdown` when it stops."""

    _transport: asyncio.Transport

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Take uvicorn's configuration, its connections and tasks, and the state of scopes."""
        self._app = config.loaded_app
        self._idle_seconds = config.timeout_keep_alive
        self._server = server_state
        self._state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = HttpRequestParser(self)
        self._unparsed = bytearray()
        self._unread = 0  # bytes since the last complete part: of a head, or of chunk framing
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._receiving: Exchange | None = None
        self._exchanges: deque[Exchange] = deque()  # the first one is being answered
        self._accepts_more = True
        self._failure: ServiceError | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._timer: TimerHandle | None = None
        self._awaits_head = False
        self._closes_at = 0.0

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first head."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        age = CONNECTION_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        self._closes_at = self._loop.time() + age
        self._server.connections.add(self)  # type: ignore[arg-type] # uvicorn names its own classes
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """Tell the application that the client has left."""
        self._server.connections.discard(self)
        self._stop_timer()
        self._accepts_more = False
        for exchange in self._exchanges:
            exchange.leave()
        self._exchanges.clear()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Parse the data, as far as requests may wait."""
        if self._accepts_more:
            self._unparsed += data
            self._parse()
            if not self._exchanges and not self._awaits_head:
                self._await_head()

    def pause_writing(self) -> None:
        """Let answers wait: the client does not read them."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue to write answers."""
        self._writable.set()

    # Called by uvicorn.

    def shutdown(self) -> None:
        """Close the connection, after the answer in progress if there is one."""
        for exchange in self._exchanges:
            exchange.keep_alive = False
        if not self._exchanges:
            self._transport.close()

    # Called by httptools.

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._url = b""
        self._headers = []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; drop a trailer, which comes after the body."""
        if self._in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Start the request, or let it wait for the answers before its own."""
        self._in_head = False
        self._unread = 0
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > HEAD_BYTES or len(self._url) > URL_BYTES:
            self._failure = _head_too_large()
            raise ValueError("the head is too large")
        if self._parser.get_method() == b"CONNECT":
            raise ValueError("this server is not a proxy")
        if not self._parser.should_upgrade():
            self._add_exchange()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._unread = 0
        if self._receiving:
            self._receiving.add_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._unread = 0
        if self._receiving:
            self._receiving.end_body()
            self._accepts_more = self._receiving.keep_alive
            self._receiving = None

    # Parsing.

    def _parse(self) -> None:
        """Parse what has arrived, up to the bounds; read on if all of it is parsed."""
        while self._unparsed and self._accepts_more and self._has_room:
            # The parser does not stop before its data end. A piece ends where a head may end, so
            # that it completes two requests at most.
            end = self._unparsed.find(_HEAD_END)
            piece = bytes(self._unparsed if end < 0 else self._unparsed[: end + len(_HEAD_END)])
            del self._unparsed[: len(piece)]
            self._unread += len(piece)
            self._feed(piece)
        if not self._accepts_more:
            self._unparsed.clear()
        if self._transport.is_closing():
            return
        if self._unparsed:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def _has_room(self) -> bool:
        waits = sum(exchange.buffered for exchange in self._exchanges)
        return len(self._exchanges) <= WAITING and waits <= BODY_BYTES

    def _feed(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade as upgrade:
            self._feed(self._head_without_upgrade() + piece[upgrade.args[0] :])
        except HttpParserError:
            if self._accepts_more:
                self._fail(self._failure or _MALFORMED)
        else:
            if self._unread > HEAD_BYTES:
                self._fail(_head_too_large())

    def _head_without_upgrade(self) -> bytes:
        """Return the current head without its `Upgrade`, for a new parser."""
        version = self._parser.get_http_version().encode()
        line = b"%s %s HTTP/%s" % (self._parser.get_method(), self._url, version)
        fields = [name + b": " + value for name, value in self._headers if name != b"upgrade"]
        self._parser = HttpRequestParser(self)  # the old one parses no more HTTP
        return b"\r\n".join([line, *fields, b"", b""])

    # Answering.

    def _add_exchange(self) -> None:
        version = self._parser.get_http_version()
        exchange = Exchange(
            self._scope(version),
            self._transport,
            self._writable,
            self._server.default_headers,
            on_read=self._parse,
            on_complete=self._end_answer,
            keep_alive=version == "1.1" and self._parser.should_keep_alive(),
        )
        self._receiving = exchange
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            self._start_next()

    def _scope(self, version: str) -> Scope:
        url = parse_url(self._url)
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": self._parser.get_method().decode(),
            "scheme": "http",
            "path": unquote(url.path.decode("ascii")),
            "raw_path": url.path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self._headers,
            "client": self._transport.get_extra_info("peername"),
            "server": self._transport.get_extra_info("sockname"),
            "state": self._state.copy(),
        }

    def _start_next(self) -> None:
        self._awaits_head = False
        self._stop_timer()
        exchange = self._exchanges[0]
        if self._loop.time() >= self._closes_at:
            exchange.keep_alive = False
        task = self._loop.create_task(self._answer(exchange))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except Exception:
            _log.exception("the application failed")
        finally:
            if not exchange.is_over:
                self._transport.close()

    def _end_answer(self) -> None:
        """Start the next request, or wait for it."""
        exchange = self._exchanges.popleft()
        if not exchange.keep_alive:
            self._accepts_more = False
            self._transport.close()
        elif self._exchanges:
            self._start_next()
            self._parse()
        elif self._failure:
            self._refuse(self._failure)
        else:
            self._close_in(self._idle_seconds)
            self._parse()
            if self._unread and not self._exchanges:
                self._await_head()

    # Errors and timers.

    def _fail(self, error: ServiceError) -> None:
        """Read no further, and answer with the error after the answers that come before it."""
        self._accepts_more = False
        broken = self._receiving  # the request in whose body the error is, if any
        others = [exchange for exchange in self._exchanges if exchange is not broken]
        if broken and broken.is_started:
            self._transport.close()
        elif others:
            self._exchanges = deque(others)
            self._failure = error
        else:
            self._refuse(error)

    def _refuse(self, error: ServiceError) -> None:
        response = problem_response(error, {"Connection": "close"})
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()
        head = [status, *(name + b": " + value for name, value in response.raw_headers)]
        self._transport.write(b"\r\n".join(head) + _HEAD_END + bytes(response.body))
        self._transport.close()

    def _await_head(self) -> None:
        self._awaits_head = True
        self._close_in(HEAD_SECONDS)

    def _close_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._transport.close)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the head {_TOO_LARGE}", [FieldError(("header",), _TOO_LARGE)])

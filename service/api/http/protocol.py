"""HTTP/1.1 of uvicorn, with limits for the size and time of a request's head.

A connection that has been open for some minutes closes after its next answer, which says so
(`Connection: close`): clients connect again, and new replicas get their share of them.

The head is the request line and the headers. A request that is not HTTP also gets a problem
document. A request to upgrade (`Upgrade: h2c`, which Java's client sends each time) gets its answer
in HTTP/1.1.
"""

import random
from asyncio import Transport
from asyncio.events import TimerHandle
from http import HTTPStatus
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnwise.service.api.http.problems import problem_response
from turnwise.service.errors import HeadTooLarge, Malformed, ServiceError
from turnwise.service.wire.problems import FieldError

HEAD_BYTES = 131_072
"""Limit of a head."""
URL_BYTES = 65_535
"""Limit of a URL, the parser's own."""
HEAD_SECONDS = 10.0
CONNECTION_SECONDS = 300.0
"""Age at which a connection closes, give or take a fifth: not all at the same moment."""

_NO_HTTP = [FieldError(("request",), "should be HTTP/1.1")]


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _deadline: TimerHandle | None = None
    _unread = 0
    """Bytes received since the last complete part: of an unfinished head, or of chunk framing."""
    _in_head = True

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **options)
        self.parser = _Parser(self)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head."""
        super().connection_made(transport)
        self._until = self.loop.time() + CONNECTION_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; reject a head that is too large."""
        self._unread += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unread > HEAD_BYTES:
            self._refuse(_head_too_large())
        elif self.timeout_keep_alive_task is None and self._is_idle and not self._deadline:
            self._expect_head()

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; drop a trailer, which comes after the body."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, if its head is not too large."""
        self._expect_nothing()
        self._in_head, self._unread = False, 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES or len(self.url) > URL_BYTES:
            self._unread = HEAD_BYTES + 1  # tells `send_400_response` why
            raise ValueError("the head is too large")
        if not self._upgrades:
            super().on_headers_complete()
            if self.loop.time() >= self._until:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._unread = 0
        if not self._upgrades:
            super().on_message_complete()

    def read_without_upgrade(self, rest: bytes) -> None:
        """Parse the current request again without its `Upgrade` header.

        Args:
            rest: The bytes after its head.
        """
        version = self.parser.get_http_version().encode()
        line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
        fields = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = _Parser(self)
        self.parser.feed_data(b"\r\n".join([line, *fields, b"", rest]))

    def send_400_response(self, msg: str) -> None:
        """Reject a request that is not HTTP, and close the connection."""
        if self._unread > HEAD_BYTES:
            self._refuse(_head_too_large())
        else:
            self._refuse(Malformed(msg, _NO_HTTP))

    @property
    def _upgrades(self) -> bool:
        """Whether the parser stops after the head, for another protocol."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _expect_nothing(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, error: ServiceError) -> None:
        if (
            self._is_idle or not self.cycle.response_started
        ):  # else it would become part of that answer
            response = problem_response(error, {"Connection": "close"})
            status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()
            head = [status, *(name + b": " + value for name, value in response.raw_headers)]
            self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()


class _Parser(HttpRequestParser):
    """Parses requests. Unlike httptools, it also reads the bodies of requests to upgrade."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        # As uvicorn does, answer a request even if garbage follows it.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # bytes, from uvicorn
        """Parse the data, and continue after a request to upgrade."""
        try:
            super().feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._protocol.read_without_upgrade(data[upgrade.args[0] :])


def _head_too_large() -> HeadTooLarge:
    limit = f"may have {HEAD_BYTES} bytes, and its URL {URL_BYTES}"
    return HeadTooLarge(f"the head {limit}", [FieldError(("header",), limit)])

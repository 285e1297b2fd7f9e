"""HTTP/1.1 as uvicorn speaks it, with the bounds that it leaves out.

A head (the request's line and headers) may have so many bytes and take so many seconds, and what
is no HTTP is answered with a problem document, too. Who asks for another protocol (`Upgrade: h2c`,
as Java's client does with each request) is answered in this one.
"""

from asyncio import Transport
from asyncio.events import TimerHandle
from http import HTTPStatus
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnwise.service.api.problems import problem_response
from turnwise.service.errors import HeadTooLarge, Malformed, ServiceError
from turnwise.service.wire.problems import FieldError

HEAD_BYTES = 131_072
"""The parser takes half of it for the URL."""
HEAD_SECONDS = 10.0

_NO_HTTP = [FieldError(("request",), "should be HTTP/1.1")]


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _deadline: TimerHandle | None = None
    _unread = 0
    """Bytes since something of a request was whole: part of a head, or of what frames chunks."""
    _in_head = True

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **options)
        self.parser = _Parser(self)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Give the first head its time."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timer."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, where not too much is left unread."""
        self._unread += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unread > HEAD_BYTES:
            self._refuse(_head_too_large())
        elif self.timeout_keep_alive_task is None and self._is_idle and not self._deadline:
            self._expect_head()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer, which came too late to be one, is dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the request begin, if its head is not too large."""
        self._expect_nothing()
        self._in_head, self._unread = False, 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES:
            self._unread = size
            raise ValueError("the head is too large")
        if not self._upgrades:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take some of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unread = 0
        if not self._upgrades:
            super().on_message_complete()

    def read_without_upgrade(self, rest: bytes) -> None:
        """Begin the request at hand anew, as one that does not ask for another protocol.

        Args:
            rest: What came behind its head.
        """
        version = self.parser.get_http_version().encode()
        line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
        fields = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = _Parser(self)
        self.parser.feed_data(b"\r\n".join([line, *fields, b"", rest]))

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read, and hang up."""
        if self._unread > HEAD_BYTES:
            self._refuse(_head_too_large())
        else:
            self._refuse(Malformed(msg, _NO_HTTP))

    @property
    def _upgrades(self) -> bool:
        """Whether the parser leaves what follows the head to another protocol."""
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
        if self._is_idle or not self.cycle.response_started:  # else it would land in the answer
            response = problem_response(error, {"Connection": "close"})
            status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()
            head = [status, *(name + b": " + value for name, value in response.raw_headers)]
            self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()


class _Parser(HttpRequestParser):
    """Reads requests, also those to which httptools gives no body, since they ask to upgrade."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        # As uvicorn has it: so that a request with garbage behind it is answered.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # what uvicorn feeds
        """Read on."""
        try:
            super().feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._protocol.read_without_upgrade(data[upgrade.args[0] :])


def _head_too_large() -> HeadTooLarge:
    error = FieldError(("header",), f"may have {HEAD_BYTES} bytes")
    return HeadTooLarge(f"the head has more than {HEAD_BYTES} bytes", [error])

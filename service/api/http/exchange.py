"""A request and its answer, between a connection and an ASGI application."""

import asyncio
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus

from starlette.types import Message, Scope

Headers = Iterable[tuple[bytes, bytes]]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Exchange:
    """The `receive` and `send` of one request.

    It becomes complete with the last part of the answer. It is over when it is complete or when
    the client has left; `receive` then returns `http.disconnect`, and `send` does nothing.
    """

    def __init__(
        self,
        scope: Scope,
        transport: asyncio.Transport,
        writable: asyncio.Event,
        default_headers: Headers,
        *,
        on_read: Callable[[], None],
        on_complete: Callable[[], None],
        keep_alive: bool,
    ) -> None:
        """Prepare the exchange of a request whose head has arrived.

        Args:
            scope: The request.
            transport: The connection.
            writable: Set while the transport's buffer has room.
            default_headers: Headers that the server adds to every answer.
            on_read: Called after the application has read a part of the body.
            on_complete: Called after the last part of the answer is written.
            keep_alive: Whether the connection stays open after the answer.
        """
        self.scope = scope
        self.keep_alive = keep_alive
        self.is_whole = False
        self.is_started = False
        self.is_complete = False
        self._transport = transport
        self._writable = writable
        self._default_headers = default_headers
        self._on_read = on_read
        self._on_complete = on_complete
        self._body = bytearray()
        self._changed = asyncio.Event()
        self._is_read = False
        self._has_left = False
        self._must_continue = any(
            (name, value.lower()) == (b"expect", b"100-continue")
            for name, value in scope["headers"]
        )
        self._head = b""
        """The head of an answer of known length, until it goes out with the body."""
        self._has_body = True
        self._is_chunked = False
        self._unsent: int | None = None
        """Bytes of the answer that are still to come; None without a `Content-Length`."""

    @property
    def buffered(self) -> int:
        """Bytes of the body that the application has not read yet."""
        return len(self._body)

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete or the client has left."""
        return self.is_complete or self._has_left

    def add_body(self, part: bytes) -> None:
        """Add a part of the body. After the answer, nobody reads it."""
        if not self.is_over:
            self._body += part
            self._changed.set()

    def end_body(self) -> None:
        """Note that the request is whole."""
        self.is_whole = True
        self._changed.set()

    def leave(self) -> None:
        """Note that the client has closed the connection."""
        self._has_left = True
        self._changed.set()

    async def receive(self) -> Message:
        """Return the next part of the body; after the last one, wait for the disconnect."""
        if self._must_continue and not self.is_started and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._must_continue = False
        while not (self.is_over or self._body or (self.is_whole and not self._is_read)):
            self._changed.clear()
            await self._changed.wait()
        if self.is_over:
            return {"type": "http.disconnect"}
        part = bytes(self._body)
        more = not self.is_whole
        self._body.clear()
        self._is_read = not more
        self._on_read()
        return {"type": "http.request", "body": part, "more_body": more}

    async def send(self, message: Message) -> None:
        """Write the next part of the answer, once the transport's buffer has room."""
        await self._writable.wait()
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            self._begin_answer(message["status"], message.get("headers", ()))
        else:
            self._write_body(message.get("body", b""), more=message.get("more_body", False))

    def _begin_answer(self, status: int, headers: Headers) -> None:
        """Write the head, or let it wait for a body of known length, which follows at once."""
        self.is_started = True
        lines = [_STATUS_LINES[status]]
        names = set()
        for name, value in (*self._default_headers, *headers):
            if _CONTROL.search(name) or _CONTROL.search(value):
                raise ValueError("a header holds a control character")
            names.add(name.lower())
            lines.append(b"%s: %s\r\n" % (name, value))
            if name.lower() == b"content-length":
                self._unsent = int(value)
            if (name.lower(), value.lower()) == (b"connection", b"close"):
                self.keep_alive = False
        self._has_body = self.scope["method"] != "HEAD" and status not in {204, 304}
        if self._has_body and self._unsent is None:
            self._is_chunked = self.scope["http_version"] == "1.1"
            lines.append(b"transfer-encoding: chunked\r\n" if self._is_chunked else b"")
        if not self.keep_alive and b"connection" not in names:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if self._unsent is None:
            self._transport.write(head)
        else:
            self._head = head  # one system call for both, and the client wakes up once

    def _write_body(self, part: bytes, *, more: bool) -> None:
        sent = part if self._has_body else b""
        if self._is_chunked and part:
            sent = b"%x\r\n%s\r\n" % (len(part), part)
        self._transport.writelines([self._head, sent])
        self._head = b""
        if self._unsent is not None:
            self._unsent -= len(part)
        if more:
            return
        if self._is_chunked:
            self._transport.write(b"0\r\n\r\n")
        if self._has_body and self._unsent:
            self.keep_alive = False  # the client would take the next answer for the rest of this
        self.is_complete = True
        self._changed.set()
        self._on_complete()

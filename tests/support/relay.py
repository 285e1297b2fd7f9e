"""A server in front of services, which answers for them, or loses their answers."""

import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import httpx

from tests.support.waiting import PATIENCE

LOST: Literal["lost"] = "lost"
"""The service gets the request, and its answer is lost: the connection is reset."""


@dataclass(slots=True)
class Relay:
    """What happens to the next requests, one after the other; the rest go to the services in turn.

    Attributes:
        url: Of the relay.
        services: URLs.
        faults: An answer of the relay's own, or LOST; None lets one through.
        seen: Method and path of each request.
    """

    url: str
    services: deque[str]
    faults: deque[httpx.Response | Literal["lost"] | None] = field(default_factory=deque)
    seen: list[str] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response | None:
        """Return what goes back; None resets the connection."""
        fault = self.faults.popleft() if self.faults else None
        self.seen.append(f"{request.method} {request.url.raw_path.decode()}")
        if isinstance(fault, httpx.Response):
            return fault
        with httpx.Client(base_url=self.services[0], timeout=PATIENCE) as client:
            self.services.rotate(-1)
            passed = client.request(
                request.method,
                request.url.raw_path.decode(),
                content=request.content,
                headers={name: value for name, value in request.headers.items() if name != "host"},
            )
        return None if fault == LOST else passed


@contextmanager
def relaying(*services: str) -> Iterator[Relay]:
    """Run a relay on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            request = httpx.Request(
                self.command, relay.url + self.path, headers=dict(self.headers), content=body
            )
            response = relay.answer(request)
            if response is None:
                _reset(self.connection)
                self.close_connection = True
                return
            self.send_response_only(response.status_code)
            for name, value in response.headers.items():
                if name not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the server looks them up

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        relay = Relay(f"http://127.0.0.1:{server.server_port}", deque(services))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join()


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()

"""The server process: binds the port, runs the app in uvicorn, and shuts down in order."""

import asyncio
import gc
import json
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
import uvicorn
import uvloop
from fastapi import FastAPI

from turnwise.models.card import model_name
from turnwise.models.errors import TurnwiseError
from turnwise.service.api.http.protocol import BoundedProtocol
from turnwise.service.api.services import EncoderServices
from turnwise.service.app.encoder_only import create_encoder_app
from turnwise.service.app.wiring import create_app
from turnwise.service.observe.descriptors import watch_descriptors
from turnwise.service.observe.tracing import end_tracing
from turnwise.service.settings import Settings, local_url

_KEEP_ALIVE = 75
"""Seconds that idle connections stay open: longer than in load balancers (60), so that these do not
send a request on a connection that closes."""
_ALLOCATIONS = 20_000
"""New objects before the next collection. With Python's 700, collections took 3.5 % of the time of
the event loop."""
_TURN = (
    "/sessions/me/turn",
    '{"speaker": "user", "text": "Hello, can I change the date of my booking?"}',
)
"""An example of a request: its path and its body."""

_log = logging.getLogger("turnwise")


def run(settings: Settings, *, encoder_only: bool = False) -> NoReturn:
    """Serve until SIGTERM or Ctrl-C, then answer the requests in progress and end the process.

    Args:
        settings: The settings.
        encoder_only: Whether to serve embeddings instead of turns.

    Raises:
        TurnwiseError: The port is taken, or a part does not start.
    """
    app = create_encoder_app(settings) if encoder_only else create_app(settings)
    embedding = json.dumps({"model": model_name(settings.model), "input": "[AFTER] Hello"})
    example = ("/v1/embeddings", embedding) if encoder_only else _TURN
    with _bind(settings.host, settings.port) as listener:
        uvloop.run(_serve(Server(app, settings, example), listener))
    end_tracing()
    _end_process()


def _end_process() -> NoReturn:
    """End the process at once; every part has stopped.

    A normal exit would free every object, which takes seconds on a busy machine, and would wait
    for a thread that loads or converts a model.
    """
    _log.info("stopped")
    logging.shutdown()  # writes the last lines
    os._exit(0)


async def _serve(server: "Server", listener: socket.socket) -> None:
    try:
        with _signals(server):
            async with server.app.router.lifespan_context(server.app):
                # Loaded objects stay: exclude them from full collections, which would delay turns.
                gc.collect()
                gc.freeze()
                gc.set_threshold(_ALLOCATIONS)
                watching = asyncio.create_task(watch_descriptors())
                try:
                    await server.serve(sockets=[listener])
                finally:
                    watching.cancel()
    except asyncio.CancelledError:
        _end_process()  # it may have been stopped while a model was loaded


class Server(uvicorn.Server):
    """A uvicorn server for an app whose components have already started."""

    def __init__(self, app: FastAPI, settings: Settings, example: tuple[str, str]) -> None:
        """Take an app, and the path and the body of an example request."""
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
        )
        super().__init__(config)
        self.app = app
        self._settings = settings
        self._example = example

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `_signals` handles signals, also while the components start and stop."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and announce the URL."""
        await super().startup(sockets)
        for listener in sockets or ():
            host, port, *_ = listener.getsockname()
            announce(local_url(host, port), self._settings, self._example)

    def stop(self, number: int) -> None:
        """Begin to drain, and fail readiness; a second Ctrl-C ends the process at once."""
        services: EncoderServices = self.app.state.services
        services.draining.set()
        # SIGTERM may arrive twice: for the process and for its group.
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit = True


@contextmanager
def _signals(server: Server) -> Iterator[None]:
    """Stop the server on SIGTERM and Ctrl-C; cancel its start if it does not serve yet."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # a coroutine runs in a task

    def stop(number: int) -> None:
        if not server.should_exit:
            _log.info("stopping")
        if server.started:
            server.stop(number)
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the port. The server listens on it once the app is ready."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise TurnwiseError(
            f"cannot listen on {host} port {port}: {error.strerror}; set --port or TURNWISE_PORT "
            "(0 takes a free port)"
        ) from None
    return listener


def announce(url: str, settings: Settings, example: tuple[str, str]) -> None:
    """Log the URL; at a terminal, also show a request to try."""
    _log.info("ready on %s", url, extra={"url": url})
    if not sys.stderr.isatty():
        return
    key = " -H 'authorization: Bearer KEY'" if settings.keyed else ""
    docs = f"Documentation of the API: {url}/docs\n" if settings.pages else ""
    path, body = example
    typer.echo(
        f"\nTry this in another terminal:\n\n"
        f"  curl {url}{path} -H 'content-type: application/json'{key} \\\n"
        f"    -d '{body}'\n\n"
        f"{docs}Ctrl-C stops the service.\n",
        err=True,
    )

"""The way between one replica and its Redis, which may be cut while others reach that Redis."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from tests.support.redis_server import RedisServer


class Wire:
    """Passes on what goes either way, until it is cut; connections that were made stay open.

    Attributes:
        url: Of the replica's end.
        deaf: While it is set, what Redis answers is withheld.
        mute: While it is set, what the replica asks is withheld.
        mark: The command that holds this makes the wire deaf.
    """

    def __init__(self, server: Path, path: Path) -> None:
        self.url = f"unix://{path}"
        self.deaf = Event()
        self.mute = Event()
        self.mark = b""
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through from now on."""
        self.deaf.set()
        self.mute.set()

    def mend(self) -> None:
        """Let connections through that are made from now on; what was withheld is gone."""
        self.mark = b""
        self.deaf.clear()
        self.mute.clear()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            redis = socket.socket(socket.AF_UNIX)
            redis.connect(str(self._server))
            for ends in ((client, redis, self.mute), (redis, client, self.deaf)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, withheld: Event) -> None:
        lost = False
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.mark and self.mark in data:
                    self.deaf.set()
                lost |= withheld.is_set()  # for good: the rest would not fit what came before
                if not lost:
                    target.sendall(data)
        target.close()


@contextmanager
def wired(server: RedisServer) -> Iterator[Wire]:
    """Lay a wire to a server."""
    wire = Wire(server.socket, server.folder / "wire")
    try:
        yield wire
    finally:
        wire.close()

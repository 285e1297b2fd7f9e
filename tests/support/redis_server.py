"""A real Redis server: the bundled binary on a unix socket in a short folder, without any files."""

import resource
import secrets
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import redis as blocking
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.waiting import eventually
from turnwise.service.redis.private import server_program


class RedisServer:
    """A Redis that a test may kill and start again; it forgets its data, and leaves nothing."""

    def __init__(self, *options: str, program: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tw-"))
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}"
        self._program = program or str(server_program())
        self._options = options
        self.start()

    def start(self) -> None:
        configuration = self.folder / "redis.conf"  # which a Sentinel keeps what it learns in
        configuration.touch()
        self._process = Popen(
            [
                self._program,
                str(configuration),
                "--port",
                "0",
                "--unixsocket",
                str(self.socket),
                "--dir",
                str(self.folder),
                "--save",
                "",
                "--appendonly",
                "no",
                "--loglevel",
                "warning",
                "--enable-debug-command",
                "local",
                *self._options,
            ],
            stdin=DEVNULL,
            stdout=DEVNULL,
            restore_signals=False,  # so that a full disk is an error to it, and no signal
        )
        while True:
            try:
                self.command("PING")  # refused also while it reads its file
            except blocking.ConnectionError:
                assert self._process.poll() is None, "redis-server did not start"
                time.sleep(0.01)
            else:
                return

    def command(self, *args: str) -> Any:
        once = Retry(NoBackoff(), 0)
        with blocking.Redis(unix_socket_path=str(self.socket), retry=once) as client:
            return client.execute_command(*args)

    def wait_for(self, command: str, what: bytes) -> None:
        eventually(lambda: what in self.command(*command.split()))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def limit_files(self, size: int) -> None:
        """Let no file grow beyond a size in bytes, as a full disk would."""
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size, hard))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.socket.unlink(missing_ok=True)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)


def start_cluster() -> RedisServer:
    port = free_port()
    server = RedisServer("--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes")
    server.url = f"redis://127.0.0.1:{port}"
    server.command("CLUSTER", "ADDSLOTS", *map(str, range(16384)))
    server.wait_for("CLUSTER INFO", b"cluster_state:ok")
    return server


def free_port() -> int:
    """Return a port that is free, as is that of its cluster bus, 10,000 above it."""
    while True:
        port = 12_000 + secrets.randbelow(10_000)  # systems hand out neither by themselves
        with socket.socket() as client, socket.socket() as bus, suppress(OSError):
            client.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port

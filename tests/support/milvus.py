"""A Milvus server of the wheel `milvus`, which all test processes of a machine share.

A machine can run only one: some of its ports are fixed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import IO, TYPE_CHECKING

from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymilvus import MilvusClient

MISSING = None if find_spec("milvus") else "the wheel `milvus`, which is for Linux on x86-64"
"""What a test that needs the server lacks here, if anything."""
_START_SECONDS = 180.0
_SHARED = Path(tempfile.gettempdir()) / f"turnwise-milvus-{os.getuid()}"


class MilvusServer:
    """The server, which a test may halt for a moment; its data go when the last test ends."""

    def __init__(self, pid: int, url: str) -> None:
        self.url = url
        self._pid = pid

    def client(self) -> MilvusClient:
        """Return a client of Milvus itself."""
        from pymilvus import MilvusClient

        return MilvusClient(self.url.replace("milvus://", "http://"))

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Let it hold its connections, and answer nothing."""
        os.killpg(self._pid, signal.SIGSTOP)
        try:
            eventually(self._is_halted)  # a thread on another core runs on for a moment
            yield
        finally:
            os.killpg(self._pid, signal.SIGCONT)

    def _is_halted(self) -> bool:
        """Whether all threads of its processes have stopped."""
        try:
            stats = [file.read_text() for file in Path("/proc").glob("[0-9]*/task/[0-9]*/stat")]
        except OSError:  # another process has ended meanwhile
            return False
        fields = [stat.rpartition(")")[2].split() for stat in stats]
        return all(state == "T" for state, _, group, *_ in fields if int(group) == self._pid)


@contextmanager
def running() -> Iterator[MilvusServer]:
    """Join the server of this machine, or start it; the last one who leaves ends it."""
    _SHARED.mkdir(exist_ok=True)
    with (_SHARED / "users").open("w") as users:
        with _alone():
            if not (_SHARED / "server").exists():
                (_SHARED / "server").write_text(_start())
            fcntl.flock(users, fcntl.LOCK_SH)
            pid, port, folder = (_SHARED / "server").read_text().split()
        try:
            yield MilvusServer(int(pid), f"milvus://127.0.0.1:{port}")
        finally:
            with _alone():
                if _is_last(users):
                    (_SHARED / "server").unlink()
                    _end(int(pid), Path(folder))


@contextmanager
def none_running() -> Iterator[None]:
    """Keep the machine free for a server of the block's own; wait until the shared one has ended.

    Raises:
        TimeoutError: Other tests need the shared one for long.
    """
    _SHARED.mkdir(exist_ok=True)
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with _alone():
            if not (_SHARED / "server").exists():
                yield
                return
        time.sleep(0.5)
    raise TimeoutError("other tests use the Milvus of this machine")


@contextmanager
def _alone() -> Iterator[None]:
    with (_SHARED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_last(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start() -> str:
    """Start the server; return its process group, its port and its folder."""
    folder = Path(tempfile.mkdtemp(prefix="tw-milvus-"))
    process = Popen(
        [Path(sys.executable).with_name("milvus-server"), "--data", folder],
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        port = _port(folder, process)
        eventually(lambda: _answers(port))
    except BaseException:
        _end(process.pid, folder)
        raise
    process.returncode = 0  # whoever leaves last ends it
    return f"{process.pid} {port} {folder}"


def _end(pid: int, folder: Path) -> None:
    os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _port(folder: Path, process: Popen[bytes]) -> int:
    """Return the port that it chose, from the file in which it writes its settings."""
    settings = folder / "configs" / "milvus.yaml"
    end = time.monotonic() + _START_SECONDS
    while True:
        assert process.poll() is None, "milvus-server did not start"
        assert time.monotonic() < end, "milvus-server did not come up"
        text = settings.read_text() if settings.exists() else ""
        if "\nproxy:\n" in text:
            lines = text.split("\nproxy:\n")[1].splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("  port:"))
        time.sleep(0.05)


def _answers(port: int) -> bool:
    from pymilvus import MilvusClient, MilvusException

    try:
        MilvusClient(f"http://127.0.0.1:{port}", timeout=5).list_collections()
    except MilvusException:
        return False
    return True

"""A service for the benchmarks over HTTP, a lean client, and the resources of a process.

The service is `turnwise serve` with its private Redis. Its pool is a file of candidates, or a
number of generated ones (`pools.py`), which `turnwise pool import` loads.
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from benchmarks.pools import write_parts
from turnwise.service.redis.private import running_url
from turnwise.service.settings import Settings

_READY_SECONDS = 900
_BUSY_SECONDS = 0.05
_EXACT = Settings.model_fields["exact_limit"].default
_TURNWISE = Path(sys.executable).with_name("turnwise")
_UNAUDITED = "import logging; logging.getLogger('turnwise.audit').addFilter(lambda _: False)"
"""The log level leaves the audit log on, which would fill the terminal with lines."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A kept-alive connection. It is lean because the client shares the machine's cores."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: str = ""
    """The API key to send; empty for none."""

    @classmethod
    async def open(cls, port: int, key: str = "") -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port), key)

    async def post(self, path: str, body: object) -> dict[str, Any]:
        """Return the answer. If the service is busy (429), send the request again."""
        status, answer = await self.request("POST", path, body)
        while status == 429:
            await asyncio.sleep(_BUSY_SECONDS)
            status, answer = await self.request("POST", path, body)
        if status != 200:
            raise SystemExit(f"the service said {answer.decode()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        self.send(method, path, body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        found = re.search(rb"content-length: (\d+)", head)
        content = await self.reader.readexactly(int(found[1])) if found else b""
        return int(head.split(b" ", 2)[1]), content

    def send(self, method: str, path: str, body: object = None) -> None:
        """Send a request, and do not wait for the answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        access = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        self.writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"{access}Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )


@dataclass(frozen=True, slots=True)
class Process:
    """The resources of a process, read from `/proc`."""

    pid: int

    @property
    def cpu_seconds(self) -> float:
        return self._cpu_seconds("stat")

    @property
    def main_cpu_seconds(self) -> float:
        """Those of its main thread, in which a service runs the event loop."""
        return self._cpu_seconds(f"task/{self.pid}/stat")

    @property
    def resident(self) -> int:
        """Its bytes of memory."""
        return 1024 * self._number("VmRSS")

    @property
    def most_resident(self) -> int:
        """The most bytes of memory that it has had."""
        return 1024 * self._number("VmHWM")

    @property
    def threads(self) -> int:
        return self._number("Threads")

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _cpu_seconds(self, file: str) -> float:
        fields = self._read(file).rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _number(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+)", self._read("status"), re.M)
        return int(found[1]) if found else 0

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Served:
    """A running service, and its Redis."""

    port: int
    redis: Redis
    redis_url: str
    process: Process
    redis_process: Process

    async def get(self, path: str) -> str:
        connection = await Connection.open(self.port)
        try:
            return (await connection.request("GET", path))[1].decode()
        finally:
            connection.writer.close()

    async def metric(self, name: str) -> float:
        """Return the sum of a metric's series."""
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", await self.get("/metrics"), re.M)
        return sum(map(float, found))


def busy_seconds() -> float:
    """Return the CPU seconds of the whole machine, including those that its host took away."""
    line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    user, nice, system, _idle, _waiting, *rest = map(int, line.split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def pool(text: str) -> Path | int:
    """Return the pool that the command line names: a file, or a number of candidates."""
    return int(text) if text.isdigit() else Path(text)


@contextmanager
def served(
    pool: Path | int, folder: Path | None = None, before: str = "", **settings: str
) -> Iterator[Served]:
    """Run the service until the block ends.

    Args:
        pool: A file of candidates, or how many to generate.
        folder: Keeps generated pools for the next run.
        before: Python code that the service runs first.
        settings: More settings of the service, by variable.
    """
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary)
        if isinstance(pool, int):
            data = generate_pool(pool, folder or data)
        else:
            settings["TURNWISE_DEFAULT_POOL"] = str(pool)
        link_models(data)
        port = free_port()
        named = {
            "TURNWISE_PORT": str(port),
            "TURNWISE_DATA_DIR": str(data),
            "TURNWISE_LOG_LEVEL": "warning",
        }
        process = subprocess.Popen(  # noqa: S603 - our own command
            [
                sys.executable,
                "-c",
                f"{before}\n{_UNAUDITED}\nfrom turnwise.service.cli.main import main; main()",
                "serve",
            ],
            env=os.environ | named | settings,
            stdout=subprocess.DEVNULL,
        )
        with answering(port, process, pool if isinstance(pool, int) else 0):
            url = running_url(data / "redis") or ""
            with Redis.from_url(url) as redis:
                pid = redis.info("server")["process_id"]
                yield Served(port, redis, url, Process(process.pid), Process(pid))


def link_models(data: Path) -> None:
    """Link the models that were exported before into a service's data folder."""
    exported = Settings().data_dir.resolve() / "models"
    exported.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    if not (data / "models").exists():
        (data / "models").symlink_to(exported)


def generate_pool(size: int, folder: Path) -> Path:
    """Return the data folder of a service with a generated pool; generate it if needed."""
    data = folder / f"pool-{size}"
    if not data.exists():
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            parts = Path(temporary) / "parts"
            fresh = Path(temporary) / "data"
            write_parts(size, parts)
            import_pool(fresh, parts)
            fresh.rename(data)
    return data


def import_pool(
    data: Path, parts: Path, *words: str, pool: str = "default", **settings: str
) -> None:
    """Import parts as a pool of a data folder, or of a store."""
    link_models(data)
    command = [str(_TURNWISE), "pool", "import", str(parts), "--pool", pool, *words]
    named = {"TURNWISE_DATA_DIR": str(data)} | settings
    subprocess.run(command, env=os.environ | named, check=True)  # noqa: S603


def free_port() -> int:
    """Return a port that no process uses now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def answering(port: int, process: "subprocess.Popen[bytes]", size: int = 0) -> Iterator[int]:
    """Wait until a service is ready; yield its port, and end it with the block."""
    try:
        asyncio.run(until_ready(port, process, size))
        yield port
    finally:
        process.terminate()
        process.wait()


async def until_ready(port: int, process: subprocess.Popen[bytes], size: int = 0) -> None:
    """Wait until a service is ready, and has indexed a large pool."""
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            connection = await Connection.open(port)
            status, _ = await connection.request("GET", "/readyz")
            indexed = status == 200 and (size <= _EXACT or await _has_index(connection))
            connection.writer.close()
            if indexed:
                return
        except OSError:
            pass
        await asyncio.sleep(0.2)
    raise SystemExit("the service did not become ready")


async def _has_index(connection: Connection) -> bool:
    pool = json.loads((await connection.request("GET", "/pools/default"))[1])
    return bool(pool["index"] != "flat")

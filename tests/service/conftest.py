"""Real Redis servers: the bundled binary on unix sockets in a short folder, without any files."""

import io
import json
import logging
import resource
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest
import redis as blocking
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.service import milvus
from tests.service.milvus import MilvusServer
from tests.waiting import eventually
from turnwise.service.observe import tracing
from turnwise.service.observe.logs import JsonFormatter
from turnwise.service.redis.connection import connect
from turnwise.service.redis.private import server_program


class RedisServer:
    """A Redis that a test may kill and start again; it forgets its data, and leaves nothing."""

    def __init__(self, *options: str, program: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tw-"))
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}"
        self._program, self._options = program or str(server_program()), options
        self.start()

    def start(self) -> None:
        configuration = self.folder / "redis.conf"  # which a Sentinel keeps what it learns in
        configuration.touch()
        self._process = Popen(  # noqa: S603 - our own words
            [
                self._program, str(configuration),
                "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder),
                "--save", "", "--appendonly", "no", "--loglevel", "warning",
                "--enable-debug-command", "local", *self._options,
            ],
            stdin=DEVNULL, stdout=DEVNULL,
            restore_signals=False,  # so that a full disk is an error to it, and no signal
        )  # fmt: skip
        while True:
            try:
                self.command("PING")  # refused also while it reads its file
            except blocking.ConnectionError:
                assert self._process.poll() is None, "redis-server did not start"
                time.sleep(0.01)
            else:
                return

    def command(self, *args: str) -> Any:  # noqa: ANN401 - whatever Redis answers
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


@pytest.fixture(scope="session")
def _shared_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.remove()


@pytest.fixture
def redis_url(_shared_server: RedisServer) -> str:
    """URL of an empty Redis, which the tests of a worker use one after the other."""
    _shared_server.command("FLUSHALL")
    return _shared_server.url


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A server of the test's own, to kill."""
    server = RedisServer()
    yield server
    server.remove()


@pytest.fixture
def lasting_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of the test's own that keeps its data in a file; its parameter is `appendfsync`."""
    fsync = getattr(request, "param", "everysec")
    server = RedisServer("--appendonly", "yes", "--appendfsync", fsync)
    yield server
    server.remove()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of an empty Redis, for async tests."""
    async with connect(redis_url, cluster=False, timeout=5.0) as client:
        yield client


@pytest.fixture(scope="session")
def _shared_cluster() -> Iterator[RedisServer]:
    server = _cluster()
    yield server
    server.remove()


@pytest.fixture
def cluster_url(_shared_cluster: RedisServer) -> str:
    """URL of an empty Redis Cluster of one node, which owns every slot."""
    _shared_cluster.command("FLUSHALL")
    return _shared_cluster.url


@pytest.fixture
def redis_cluster() -> Iterator[RedisServer]:
    """A cluster of the test's own, to kill."""
    server = _cluster()
    yield server
    server.remove()


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider
    provider.shutdown()


@pytest.fixture
def spans(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the provider's spans, and those of Turnwise itself, are exported to."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    return exporter


@pytest.fixture
def log_lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Return what was logged as JSON since the test began."""
    stream, logger = io.StringIO(), logging.getLogger("turnwise")
    handler, level = logging.StreamHandler(stream), logger.level
    handler.setFormatter(JsonFormatter(text=False))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _cluster() -> RedisServer:
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


@pytest.fixture(scope="session")
def milvus_server() -> Iterator[MilvusServer]:
    """A Milvus, which all tests share; collections have names of their own."""
    if milvus.MISSING:
        pytest.skip(f"needs {milvus.MISSING}")
    with milvus.running() as server:
        yield server

"""Starts a whole Turnwise on one machine, in parts that a benchmark may kill and start again.

Three replicas and an encoder tier of two are behind HAProxy (`docker/haproxy.cfg`). Their state
is in a Redis Cluster of three primaries and in a Milvus.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from math import ceil
from pathlib import Path

import httpx
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.crc import key_slot
from redis.retry import Retry

from benchmarks.engines import milvus_command, wait_for_milvus
from benchmarks.part import Part, Serves, all_say, small_model, turnwise
from benchmarks.record import ROOT
from benchmarks.serving import free_port
from turnwise.service.redis.private import server_program
from turnwise.service.settings import Settings

REPLICAS = ("replica-1", "replica-2", "replica-3")
ENCODERS = ("encoder-1", "encoder-2")
PRIMARIES = 3
_PROXY = ROOT / "docker" / "haproxy.cfg"
_SLOTS = 16_384
_SLOTS_EACH = ceil(_SLOTS / PRIMARIES)


@dataclass
class Fleet:
    """The running parts.

    Attributes:
        url: The URL of the proxy.
        replicas: The URLs of the replicas themselves.
        parts: The parts by name, in the order in which they were started.
    """

    url: str
    replicas: list[str]
    parts: dict[str, Part]


@asynccontextmanager
async def running(folder: Path, appendfsync: str, store_url: str | None) -> AsyncIterator[Fleet]:
    """Start everything; kill it at the end.

    Args:
        folder: For data and logs.
        appendfsync: When Redis writes its append-only file to disk: `always` or `everysec`.
        store_url: A Milvus that runs already, which is no part then.
    """
    parts = dict[str, Part]()
    http = httpx.AsyncClient(timeout=15)
    try:
        yield await _start(folder, appendfsync, store_url, parts, http)
    finally:
        for part in parts.values():
            part.kill()
        await http.aclose()


async def _start(
    folder: Path,
    appendfsync: str,
    store_url: str | None,
    parts: dict[str, Part],
    http: httpx.AsyncClient,
) -> Fleet:
    proxy = f"http://127.0.0.1:{free_port()}"
    encoder = f"http://127.0.0.1:{free_port()}"
    ports = {name: free_port() for name in (*ENCODERS, *REPLICAS)}
    fleet = Fleet(proxy, [f"http://127.0.0.1:{ports[name]}" for name in REPLICAS], parts)

    def start_turnwise(name: str, *words: str, **settings: str) -> None:
        parts[name] = turnwise(name, ports[name], folder, http, *words, **settings)
        parts[name].start()

    async def searches() -> bool:
        body = {"text": "Hello", "top_k": 1}
        return (await http.post(f"{proxy}/pools/far/search", json=body)).status_code == 200

    for name in ENCODERS:
        start_turnwise(name, "--encoder-only")
    nodes = _start_cluster(folder, appendfsync, parts, http, fleet.replicas)
    if store_url is None:
        store_url = await _start_milvus(folder, parts, searches)
    configuration = folder / "haproxy.cfg"
    configuration.write_text(_proxy_configuration(proxy, encoder, ports), encoding="utf-8")
    command = [_program("haproxy"), "-db", "-f", str(configuration)]
    parts["proxy"] = Part("proxy", command, all_say(http, 200, f"{proxy}/livez"), folder)
    parts["proxy"].start()
    small = small_model(folder, Settings().model)
    for name, node in zip(REPLICAS, nodes, strict=True):
        start_turnwise(
            name,
            TURNWISE_MODEL=small,
            TURNWISE_ENCODER_URL=encoder,
            TURNWISE_REDIS_URL=f"redis://127.0.0.1:{node}",
            TURNWISE_REDIS_CLUSTER="true",
            TURNWISE_STORE_URL=store_url,
        )
    for name in (*ENCODERS, *REPLICAS, "proxy"):
        await parts[name].served()
    return fleet


def _program(name: str) -> str:
    if found := shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin"):
        return found
    raise SystemExit(f"this benchmark needs {name}")


def _proxy_configuration(proxy: str, encoder: str, ports: Mapping[str, int]) -> str:
    """Return the configuration that users copy, with the addresses of this machine."""
    text = _PROXY.read_text(encoding="utf-8")
    for public, url in ((":8000", proxy), (":8001", encoder)):
        text = text.replace(f"bind {public}", f"bind 127.0.0.1:{url.rpartition(':')[2]}")
    for name, port in ports.items():
        text = text.replace(f"{name}:8000", f"127.0.0.1:{port}")
    return text


def _start_cluster(
    folder: Path,
    appendfsync: str,
    parts: dict[str, Part],
    http: httpx.AsyncClient,
    replicas: Sequence[str],
) -> list[int]:
    """Start the primaries, each with a third of the slots; return their ports."""
    ports = [free_port() for _ in range(PRIMARIES)]
    buses = [free_port() for _ in range(PRIMARIES)]
    for number, (port, bus) in enumerate(zip(ports, buses, strict=True)):
        name = f"redis-{number + 1}"
        (folder / name).mkdir()
        command = _primary_command(folder / name, port, bus, appendfsync)
        session = _find_session(number)
        urls = [f"{replica}/sessions/{session}" for replica in replicas]
        parts[name] = Part(name, command, all_say(http, 404, *urls), folder)
        parts[name].start()
    _join_primaries(ports, buses)
    return ports


def _primary_command(folder: Path, port: int, bus: int, appendfsync: str) -> list[str]:
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "save": "",
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "cluster-enabled": "yes",
        "cluster-port": str(bus),
        # The other two go on without the third: their sessions are whole.
        "cluster-require-full-coverage": "no",
        "cluster-node-timeout": "5000",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return [str(server_program()), *words]


def _find_session(primary: int) -> str:
    """Return the name of a session whose key is in a slot of this primary."""
    names = map("probe-{}".format, count())
    return next(
        name for name in names if key_slot(f"{{default/{name}}}".encode()) // _SLOTS_EACH == primary
    )


def _join_primaries(ports: Sequence[int], buses: Sequence[int]) -> None:
    """Give each primary its slots, and let them know each other."""
    retry = Retry(ConstantBackoff(0.05), 200)  # until they have started
    for number, port in enumerate(ports):
        with Redis(port=port, retry=retry) as node:
            first = number * _SLOTS_EACH
            last = min(first + _SLOTS_EACH, _SLOTS) - 1
            node.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
            node.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            if number:
                node.execute_command("CLUSTER MEET", "127.0.0.1", ports[0], buses[0])


async def _start_milvus(folder: Path, parts: dict[str, Part], serves: Serves) -> str:
    """Start Milvus; return its URL."""
    port = free_port()
    data = folder / "milvus-data"
    part = parts["milvus"] = Part("milvus", milvus_command(data, port), serves, folder)
    part.start()
    await asyncio.to_thread(wait_for_milvus, f"http://127.0.0.1:{port}")
    # The program of the wheel writes a configuration with free ports, and would not take the same
    # ports again while the kernel remembers connections of the killed server.
    part.command = [str(data / "bin" / "milvus"), "run", "standalone"]
    part.folder = data
    part.environment = {
        "DEPLOY_MODE": "STANDALONE",
        "METRICS_PORT": str(free_port()),
        "MILVUS_RUN_DIR": str(data / "run"),
        "LD_LIBRARY_PATH": str(data / "bin"),
    }
    return f"milvus://127.0.0.1:{port}"

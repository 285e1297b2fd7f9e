"""A service over HTTP: what it adds to a turn, and what batching gains under load.

Starts `turnwise serve` with its private Redis and the given pool, twice: as it is, and with batches
of one text. One client posts turns one after the other; then 32 sessions at once do.

    python benchmarks/load.py [--turns 300] [--sessions 32] [--pool examples/replies.jsonl]
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from sayings import sayings

_READY_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Connection:
    """A kept-alive connection, as lean as can be: the client shares the machine's cores."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, which must be a good one."""
        status, answer = await self._exchange(path, body)
        if status != 200:
            raise SystemExit(f"the service said {answer.decode()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    async def status(self, path: str, body: dict[str, Any]) -> int:
        """Return the status of the answer, whatever it is."""
        return (await self._exchange(path, body))[0]

    async def _exchange(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        payload = json.dumps(body).encode()
        self.writer.write(
            f"POST {path} HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split(" ", 2)[1]), await self.reader.readexactly(length)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=300, help="of the one client")
    parser.add_argument("--sessions", type=int, default=32, help="that talk at once")
    parser.add_argument("--each", type=int, default=40, help="turns of each of them")
    parser.add_argument("--pool", type=Path, default=Path("examples/replies.jsonl"))
    options = parser.parse_args()
    with served(options.pool) as port:
        asyncio.run(one_client(port, options.turns))
        batched = asyncio.run(many_clients(port, options.sessions, options.each))
    with served(options.pool, TURNWISE_BATCH_TOKENS="1") as port:
        single = asyncio.run(many_clients(port, options.sessions, options.each))
    print(f"\n{options.sessions} sessions at once      turns/s   median ms   p99 ms")
    for name, load in (("batching", batched), ("one text a batch", single)):
        print(f"{name:22} {load.rate:10.1f} {load.median:11.1f} {load.p99:8.1f}")
    print(f"batching gains a factor of {batched.rate / single.rate:.2f}")


async def one_client(port: int, turns: int) -> None:
    connection = await Connection.open(port)
    totals, overheads = [], []
    for number, text in enumerate(islice(sayings(), turns + 20)):
        speaker = "user" if number % 2 == 0 else "bot"  # runs of one would be one long utterance
        body = {"speaker": speaker, "text": text, "respond": True}
        begin = time.perf_counter()
        answer = await connection.post(f"/sessions/one-{number // 10}/turn", body)
        total = (time.perf_counter() - begin) * 1e3
        stages = answer["timings_ms"]
        if number >= 20:
            totals.append(total)
            overheads.append(total - stages["encode"] - stages["retrieve"])
        await asyncio.sleep(0.03)  # as people do, so that the idle work is done
    print("one client, a turn at a time, ms        median      p95")
    for name, values in (("whole turn", totals), ("beyond encoding and search", overheads)):
        print(f"{name:36} {median(values):9.2f} {quantiles(values, n=20)[-1]:8.2f}")


@dataclass(frozen=True, slots=True)
class Load:
    rate: float
    median: float
    p99: float


async def many_clients(port: int, sessions: int, turns: int) -> Load:
    async def talk(number: int, count: int) -> list[float]:
        connection, took = await Connection.open(port), []
        for place, text in enumerate(islice(sayings(number + 1), count)):
            begin = time.perf_counter()
            body = {"speaker": "user" if place % 2 == 0 else "bot", "text": text, "respond": True}
            await connection.post(f"/sessions/many-{count}-{number}/turn", body)
            took.append((time.perf_counter() - begin) * 1e3)
        return took

    await asyncio.gather(*(talk(number, 3) for number in range(sessions)))
    begin = time.perf_counter()
    took = await asyncio.gather(*(talk(number, turns) for number in range(sessions)))
    seconds = time.perf_counter() - begin
    every = [value for values in took for value in values]
    return Load(len(every) / seconds, median(every), quantiles(every, n=100)[-1])


@contextmanager
def served(pool: Path, **settings: str) -> Iterator[int]:
    """Run the service until the block ends; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        named = {
            "TURNWISE_PORT": str(port),
            "TURNWISE_DATA_DIR": folder,
            "TURNWISE_DEFAULT_POOL": str(pool),
            "TURNWISE_LOG_LEVEL": "warning",
        }
        command = [Path(sys.executable).with_name("turnwise"), "serve"]
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, env=os.environ | named | settings, stdout=subprocess.DEVNULL
        )
        try:
            asyncio.run(_until_ready(port, process))
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


async def _until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
            if b" 200 " in await reader.readline():
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the service did not become ready")


if __name__ == "__main__":
    main()

"""A part of a system: a process that benchmarks start, wait for, kill, and may start again."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Self

import httpx

from benchmarks.serving import link_models

TURNWISE = str(Path(sys.executable).with_name("turnwise"))
_SERVED_SECONDS = 300.0
_SHOWN = 2000
"""Characters of the log of a part that does not serve."""

Serves = Callable[[], Awaitable[bool]]


@dataclass
class Part:
    """A process, and a request that succeeds when it does its work.

    As a context manager, it starts with the block and is killed with it.
    """

    name: str
    command: Sequence[str]
    serves: Serves
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own commands
                self.command,
                env={**os.environ, **self.environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    @property
    def pid(self) -> int:
        assert self.process  # it was started
        return self.process.pid

    async def served(self) -> float:
        """Wait until it does its work; return the seconds."""
        begin = monotonic()
        while not await self._serves():
            ended = self.process is None or self.process.poll() is not None
            if ended or monotonic() > begin + _SERVED_SECONDS:
                said = self.log.read_text(encoding="utf-8", errors="replace")
                raise SystemExit(f"{self.name} does not serve:\n{said[-_SHOWN:]}")
            await asyncio.sleep(0.05)
        return monotonic() - begin

    async def _serves(self) -> bool:
        try:
            return await self.serves()
        except (httpx.TransportError, OSError):
            return False


def all_say(http: httpx.AsyncClient, status: int, *urls: str) -> Serves:
    """Return a check whether all URLs answer with a status."""

    async def serves() -> bool:
        return all([(await http.get(url)).status_code == status for url in urls])

    return serves


def port_opens(port: int) -> Serves:
    """Return a check whether a port of this machine takes connections."""

    async def serves() -> bool:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True

    return serves


def turnwise(
    name: str, port: int, folder: Path, http: httpx.AsyncClient, *words: str, **settings: str
) -> Part:
    """Return a `turnwise serve` that keeps its data in a folder of its name."""
    data = folder / name
    link_models(data)
    about = {
        "TURNWISE_PORT": str(port),
        "TURNWISE_DATA_DIR": str(data),
        "TURNWISE_LOG_LEVEL": "warning",
    }
    ready = all_say(http, 200, f"http://127.0.0.1:{port}/readyz")
    return Part(name, [TURNWISE, "serve", *words], ready, folder, about | settings)


def small_model(folder: Path, model: str) -> str:
    """Write what a replica with an encoder tier needs of a model; return its folder."""
    small = folder / "small" / Path(model).name
    subprocess.run([TURNWISE, "card", model, "--out", small], check=True)  # noqa: S603
    return str(small)


def infinity(program: Path, model: str, port: int, folder: Path, http: httpx.AsyncClient) -> Part:
    """Return an Infinity that answers at `/embeddings` for the model `default`."""
    options = {
        "--model-id": str(Path(model).absolute()),
        "--served-model-name": "default",
        "--port": str(port),
        "--device": "cpu",
        "--engine": "torch",
    }
    arguments = [*chain.from_iterable(options.items()), "--no-model-warmup"]
    command = [str(program.absolute()), "v2", *arguments]
    environment = {"PYTHONPATH": "", "DO_NOT_TRACK": "1"}  # it has packages of its own
    ready = all_say(http, 200, f"http://127.0.0.1:{port}/health")
    return Part("infinity", command, ready, folder, environment)

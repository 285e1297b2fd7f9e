"""Services with a tiny model on a real Redis; and a naive oracle."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import REPLIES
from tests.support.oracle import Oracle
from tests.support.redis_server import RedisServer
from tests.support.rerankers import save_tiny_pairwise, tiny_ioi
from tests.support.service import (
    CALIBRATION,
    WAITS,
    Ended,
    InNamespace,
    Launch,
    Live,
    Turnwise,
    launching,
    with_replies,
)
from tests.support.waiting import PATIENCE
from turnwise.models.card import update_card
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind
from turnwise.service.app import loading
from turnwise.service.cli.doctor import Finding
from turnwise.service.cli.doctor.examine import examine
from turnwise.service.cli.main import main
from turnwise.service.pools import followed
from turnwise.service.selection import reranking
from turnwise.service.settings import Settings

Examined = Callable[..., dict[str, Finding]]
Command = Callable[..., str]
"""Runs `turnwise pool` with some words; returns what it says."""


@pytest.fixture(scope="session", autouse=True)
def long_waits() -> Iterator[None]:
    """Let what a turn waits for take longer than a second, as it may on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "CALL_SECONDS", PATIENCE)
        patch.setattr(followed, "FIRST_READ_SECONDS", PATIENCE)
        patch.setattr(reranking, "CASCADE_SECONDS", PATIENCE)
        yield


@pytest.fixture(scope="session")
def defaults(
    tiny_encoder_folder: Callable[[EncoderKind], Path],
    data_folder: Path,
    served_encoder: UtteranceEncoder,  # noqa: ARG001 - exported, so that no service does it
) -> dict[str, object]:
    """Settings of the tests' services."""
    model = str(tiny_encoder_folder(EncoderKind.TRIPLE))
    return {"model": model, "device": "cpu", "data_dir": data_folder, **WAITS}


@pytest.fixture
def launch(redis_url: str, defaults: dict[str, object], data_folder: Path) -> Iterator[Launch]:
    """Services of the test's own, on an empty Redis."""
    shutil.rmtree(data_folder / "names", ignore_errors=True)  # of the pools of earlier tests
    with launching(redis_url=redis_url, **defaults) as start:
        yield start


@pytest.fixture
def own(launch: Launch) -> Live:
    """A service of the test's own, to break or to count, with a pool `default` of a few replies."""
    live = launch()
    live.fill()
    return live


@pytest.fixture(scope="session")
def share(defaults: dict[str, object]) -> Iterator[Launch]:
    """Services that tests share, each on a Redis of its own, which nobody empties."""
    # uvloop once crashed (a segmentation fault) where such a service ran beside other loops.
    given = {"api_keys": [InNamespace.KEY], **defaults}
    with ExitStack() as stack, launching("asyncio", **given) as start:

        def on_its_redis(**fields: object) -> Live:
            server = RedisServer()
            stack.callback(server.remove)
            return start(redis_url=server.url, **fields)

        yield on_its_redis


@pytest.fixture
def kind() -> EncoderKind:
    """The kind of encoder of `live` and of `oracle`."""
    return EncoderKind.TRIPLE


@pytest.fixture(scope="session")
def model_of(
    tiny_encoder_folder: Callable[[EncoderKind], Path], in_torch: Path
) -> Callable[[EncoderKind], dict[str, Any]]:
    """From a kind of encoder to the settings of a service that runs it in torch."""
    return lambda kind: {"model": str(tiny_encoder_folder(kind)), "data_dir": in_torch}


@pytest.fixture(scope="session")
def _live(
    share: Launch, model_of: Callable[[EncoderKind], dict[str, Any]]
) -> Callable[[EncoderKind], Live]:
    return cache(lambda kind: share(**({} if kind is EncoderKind.TRIPLE else model_of(kind))))


@pytest.fixture(scope="session")
def _calibrated(
    share: Launch,
    tiny_encoder_folder: Callable[[EncoderKind], Path],
    pairwise_folder: Path,
    ioi_folder: Path,
    in_torch: Path,
) -> Live:
    folder = ioi_folder.with_name("calibrated")
    shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), folder)
    update_card(folder, "confidence", CALIBRATION)
    models = {"model": str(folder), "pairwise": pairwise_folder, "reranker": ioi_folder}
    return share(data_dir=in_torch, **models)


@pytest.fixture
def live(_live: Callable[[EncoderKind], Live], kind: EncoderKind) -> Live:
    """A service with a pool `default` of a few replies; other tests have other namespaces of it."""
    return with_replies(_live(kind))


@pytest.fixture
def calibrated(_calibrated: Live) -> Live:
    """A shared service with all kinds of models, and a calibration; the same pool as `live`."""
    return with_replies(_calibrated)


@pytest.fixture
def by_pairs(calibrated: Live) -> Live:
    """The service `calibrated`, which has the same replies also in a pool of the pairwise model."""
    calibrated.put("/pools/pairs", {"encoder": "pairwise"})
    calibrated.fill(pool="pairs")
    return calibrated


@pytest.fixture(scope="session")
def pairwise_folder(
    tmp_path_factory: pytest.TempPathFactory, tiny_encoder_folder: Callable[[EncoderKind], Path]
) -> Path:
    folder = tmp_path_factory.mktemp("pairwise") / "model"
    return save_tiny_pairwise(folder, tiny_encoder_folder(EncoderKind.SINGLE))


@pytest.fixture(scope="session")
def ioi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = {word for text in REPLIES for word in text.lower().split()}
    folder = tmp_path_factory.mktemp("ioi") / "model"
    tiny_ioi(tuple(sorted(words))).save(folder)
    return folder


@pytest.fixture
def oracle(tiny_encoder: Callable[[EncoderKind], UtteranceEncoder], kind: EncoderKind) -> Oracle:
    return _oracle(tiny_encoder(kind))


@cache
def _oracle(encoder: UtteranceEncoder) -> Oracle:
    return Oracle(encoder)


@pytest.fixture
def turnwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Turnwise:
    """Run `turnwise` with some words."""

    def run(*words: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["turnwise", *map(str, words)])
        capsys.readouterr()  # what the service in this process printed before is not the command's
        with pytest.raises(SystemExit) as caught:
            main()
        return Ended(int(caught.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def examined(redis_url: str, defaults: dict[str, object]) -> Examined:
    """Examine settings for the tests' Redis and model, with some changed."""

    def run(**fields: object) -> dict[str, Finding]:
        given = defaults | {"redis_url": redis_url, "port": 0} | fields
        settings = Settings.model_validate(given)

        async def collected() -> list[Finding]:
            return [finding async for finding in examine(settings, lambda _: None)]

        return {finding.subject: finding for finding in asyncio.run(collected())}

    return run


@pytest.fixture
def pool_command(
    turnwise: Turnwise, monkeypatch: pytest.MonkeyPatch, live: Live, defaults: dict[str, object]
) -> Turnwise:
    """Run `turnwise pool` in the test's namespace."""
    for name, value in (defaults | {"redis_url": live.redis_url}).items():
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", str(value))

    def run(word: str, *words: object) -> Ended:
        where = ["--namespace", live.namespace] if word in {"snapshot", "restore", "import"} else []
        return turnwise("pool", word, *where, *words)

    return run


@pytest.fixture
def command(pool_command: Turnwise) -> Command:
    """Run `turnwise pool` with words that it takes; return what it says."""

    def run(*words: object) -> str:
        ended = pool_command(*words)
        assert not ended.status, ended.err
        return ended.out

    return run


@pytest.fixture
def refused(pool_command: Turnwise) -> Command:
    """Run `turnwise pool` with words that it rejects; return the one line that it says."""

    def run(*words: object) -> str:
        ended = pool_command(*words)
        assert ended.status == 2
        *place, line = ended.err.splitlines()
        assert len(place) <= 1
        assert all(", namespace " in each for each in place)  # whose pools the command is about
        return line

    return run

"""Marks by folder, skips as errors, and fixtures of tiny models, randomly initialised."""

# ruff: noqa: PLC0415

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.warm import warm_command

if TYPE_CHECKING:
    from turnwise.models.encoder.torch import UtteranceEncoder
    from turnwise.models.roles import EncoderKind

DIMENSION = 32

# Tests run side by side, and two threads of a tiny model would only wait for each other. Libraries
# of models take seconds to load: fixtures import them, so that xdist's controller need not.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"

# Settings of whoever runs the tests are not theirs: they might name a Redis that is in use.
for variable in [name for name in os.environ if name.startswith("TURNWISE_")]:
    del os.environ[variable]

settings.register_profile("half as many examples", max_examples=50)
settings.load_profile("half as many examples")

TESTS = Path(__file__).parent
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
"""Whether this process is one of several, which xdist started."""
MARKS = {
    "service/live": "live",
    "service/live/console": "browser",
    "service/state/test_private_redis.py": "live",
    "service/test_server.py": "live",
    "models/test_export.py": "train",
    "models/test_onnx.py": "train",
    "test_examples.py": "docs",
    "test_alerts.py": "deploy",
    "test_kubernetes.py": "deploy",
    "test_wheel.py": "deploy",
}
"""The marks of all tests in a file or folder."""
MOST_PROCESSORS = 8
"""That the tests use: each process takes about a gigabyte."""
SERVERS = {"_shared_server", "_shared_cluster", "redis_server", "redis_cluster", "milvus_server"}
"""Fixtures that start a server: what needs one is marked `live`."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes more than there are processors: half of the time, tests wait for services.

    With `-n logical`, for tests without services, as many as there are processors.
    """
    processors = min(os.cpu_count() or 1, MOST_PROCESSORS)
    return processors if config.option.numprocesses == "logical" else processors + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while modules are imported: that takes seconds and finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("live")
        place = item.path.relative_to(TESTS)
        for path, mark in MARKS.items():
            if place.is_relative_to(path):
                item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a skipped test fail where SKIPPED_TESTS=error: there, what tests need is installed."""
    report = yield
    if report.skipped and os.environ.get("SKIPPED_TESTS") == "error":
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model as a processor without VNNI runs it: without its graph in 8 bits.

    With it every processor computes the same. As it ships, the model is `DEFAULT_MODEL`.
    """
    from turnwise.models import DEFAULT_MODEL
    from turnwise.models.encoder.onnx import EIGHT_BITS_FILE

    folder = tmp_path_factory.mktemp("shipped") / DEFAULT_MODEL.name
    without = shutil.ignore_patterns(EIGHT_BITS_FILE)
    return Path(shutil.copytree(DEFAULT_MODEL, folder, ignore=without))


@pytest.fixture(scope="session")
def tiny_encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[EncoderKind], Path]:
    """From a kind to a folder of a two-layer BERT of dimension 32; each made once a session."""
    made: dict[EncoderKind, Path] = {}

    def folder(kind: EncoderKind) -> Path:
        if kind not in made:
            made[kind] = _save_encoder(tmp_path_factory.mktemp("encoder"), kind)
        return made[kind]

    return folder


@pytest.fixture(scope="session")
def tiny_encoder(
    tiny_encoder_folder: Callable[[EncoderKind], Path],
) -> Callable[[EncoderKind], UtteranceEncoder]:
    """From a kind to an encoder on the CPU; each loaded once a session."""
    from turnwise.models.encoder.torch import UtteranceEncoder

    loaded: dict[EncoderKind, UtteranceEncoder] = {}

    def encoder(kind: EncoderKind) -> UtteranceEncoder:
        if kind not in loaded:
            loaded[kind] = UtteranceEncoder(tiny_encoder_folder(kind), device="cpu")
        return loaded[kind]

    return encoder


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if IS_WORKER else own


@pytest.fixture(scope="session")
def data_folder(run_folder: Path) -> Path:
    """A data folder for services with exported models: to export even a tiny one takes seconds."""
    folder = run_folder / "data"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def warm_commands(run_folder: Path) -> Path:
    """A folder with a `turnwise` that begins at once."""
    return warm_command(run_folder / "warm", owner=os.getppid() if IS_WORKER else os.getpid())


@pytest.fixture(scope="session")
def in_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder without room for exported models: torch runs them, which is slower, at once."""
    folder = tmp_path_factory.mktemp("torch")
    (folder / "models").touch()
    return folder


@pytest.fixture(scope="session")
def onnx_cache(data_folder: Path) -> Path:
    """Where the exported models are."""
    return data_folder / "models"


@pytest.fixture(scope="session")
def served_encoder(
    tiny_encoder_folder: Callable[[EncoderKind], Path], onnx_cache: Path
) -> UtteranceEncoder:
    """A tiny triple encoder in ONNX Runtime."""
    from turnwise.models.encoder.torch import UtteranceEncoder
    from turnwise.models.roles import EncoderKind

    folder = tiny_encoder_folder(EncoderKind.TRIPLE)
    return UtteranceEncoder.for_serving(folder, device="cpu", cache=onnx_cache)


def _save_encoder(folder: Path, kind: EncoderKind) -> Path:
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    from turnwise.models.encoder.heads import RoleHeads
    from turnwise.models.roles import EncoderKind

    characters = [chr(code) for code in range(ord(" ") + 1, 127)]
    pieces = [*characters, *(f"##{character}" for character in characters)]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]))
    tokenizer = BertTokenizerFast(vocab=str(vocabulary), do_lower_case=True)
    tokenizer.add_special_tokens({"additional_special_tokens": list(kind.tokens)})
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=DIMENSION,
        intermediate_size=2 * DIMENSION,
        num_attention_heads=2,
        num_hidden_layers=2,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    plain = folder / "bert"
    BertModel(config).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    model = SentenceTransformer(str(plain), device="cpu")  # adds mean pooling
    model.max_seq_length = 128
    made = folder / f"tiny-{kind}"
    model.save(str(made), create_model_card=False)
    if kind is EncoderKind.HEADS:
        heads = RoleHeads(DIMENSION)
        torch.nn.init.normal_(heads.down, std=0.3)  # new heads would return the vector itself
        heads.save(made)
    return made

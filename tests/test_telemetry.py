"""Nothing that runs by default looks up a name in the network, or reports its use."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from turnwise.models import DEFAULT_MODEL
from turnwise.models.roles import EncoderKind

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")

SETTLE_SECONDS = 3.0
"""ONNX Runtime's telemetry looks up its host within these seconds of loading a model."""
RECIPE = """
kind = "triple"
base = {base}
epochs = 1
batch_windows = 4

[objectives]
c3l = 1.0

[validation]
paths = ["validation.jsonl"]

[[data]]
path = "training.jsonl"
"""


class Traced:
    """Commands whose connections are recorded; they have a home of their own."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"
        self._home.mkdir()
        self._folder = folder
        self._record = folder / "trace"
        offline = {"HF_HUB_OFFLINE", "ORT_DISABLE_TELEMETRY"}
        self._environment = {k: v for k, v in os.environ.items() if k not in offline}
        self._environment["HOME"] = str(self._home)

    def start(self, *words: str, **settings: str) -> Popen[str]:
        code = "from turnwise.service.cli.main import main; main()"
        strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", str(self._record)]
        return Popen(
            [*strace, "-e", "trace=connect", sys.executable, "-c", code, *words],
            env=self._environment | settings,
            cwd=self._folder,
            stderr=PIPE,
            text=True,
        )

    def check(self) -> None:
        """Check that no other machine was called, as a server of names is, and no id was made."""
        calls = re.findall(r"connect\(.*AF_INET.*", self._record.read_text())
        assert [call for call in calls if "127.0.0.1" not in call and '"::1"' not in call] == []
        assert list(self._home.rglob("*onnxruntime*")) == []


@pytest.fixture
def traced(tmp_path: Path) -> Traced:
    return Traced(tmp_path)


def test_an_idle_service_looks_up_no_name(traced: Traced, tmp_path: Path) -> None:
    settings = {"TURNWISE_MODEL": str(DEFAULT_MODEL), "TURNWISE_DATA_DIR": str(tmp_path / "data")}
    service = traced.start("serve", "--port", "0", **settings)
    assert service.stderr is not None
    assert any("ready on" in line for line in service.stderr)
    time.sleep(SETTLE_SECONDS)
    children = run(["pgrep", "-P", str(service.pid)], capture_output=True, text=True, check=True)  # noqa: S607
    os.kill(int(children.stdout.split()[0]), signal.SIGTERM)
    service.communicate()
    traced.check()


@pytest.mark.train
@pytest.mark.nightly
def test_a_training_looks_up_no_name(
    traced: Traced, tmp_path: Path, tiny_encoder_folder: Callable[[EncoderKind], Path]
) -> None:
    base = tiny_encoder_folder(EncoderKind.TRIPLE)
    (tmp_path / "recipe.toml").write_text(RECIPE.format(base=json.dumps(str(base))))
    for split in ("training", "validation"):
        said = [{"speaker": "ab"[turn % 2], "text": f"{split} {turn}"} for turn in range(12)]
        dialogues = [json.dumps({"id": f"{split}{n}", "utterances": said}) for n in range(4)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(dialogues))
    training = traced.start("train", "recipe.toml", "--out", "run")
    _, errors = training.communicate()
    assert training.returncode == 0, errors
    traced.check()

"""What tests of other libraries need: a service that is sometimes unsure, and environments."""

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.service import Launch, Live
from turnwise.models.card import CARD
from turnwise.models.confidence import Calibration
from turnwise.models.roles import EncoderKind
from turnwise.models.scores import Aggregation

ROOT = Path(__file__).parents[3]
CALIBRATION = Calibration(0.5, 0.8, 0.7, -0.2, 0.1, -1.5)

RunIn = Callable[..., str]
"""Runs a script with packages that are installed for it; returns what it prints."""


@pytest.fixture
def calibrated(
    launch: Launch,
    tmp_path: Path,
    tiny_encoder_folder: Callable[[EncoderKind], Path],
    in_torch: Path,
) -> Live:
    """A service whose confidences are all below 1."""
    folder = shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / "model")
    card = {"aggregation": asdict(Aggregation()), "confidence": asdict(CALIBRATION)}
    (folder / CARD).write_text(json.dumps(card))
    live = launch(model=str(folder), data_dir=in_torch)
    live.fill()
    return live


@pytest.fixture
def in_own_environment(tmp_path: Path) -> RunIn:
    """For packages that the environment of the tests lacks: they take long to install."""

    def run_in(packages: list[str], script: Path, *arguments: str) -> str:
        folder = tmp_path / "environment"
        venv.create(folder, with_pip=True)
        python = folder / "bin" / "python"
        _run([python, "-m", "pip", "install", "--quiet", *packages])
        return _run([python, script, *arguments], PYTHONPATH=str(ROOT / "src"))

    return run_in


def _run(command: list[str | Path], **environment: str) -> str:
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

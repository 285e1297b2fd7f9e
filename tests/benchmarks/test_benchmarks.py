"""Every benchmark runs at its toy size, with a tiny model, and writes a run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.service import milvus
from turnwise.models.roles import EncoderKind

ROOT = Path(__file__).parents[2]
NAMES = [
    pytest.param(path.stem, marks=() if path.stem == "search" else pytest.mark.nightly)
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if "run(parser, " in path.read_text()
]


@pytest.mark.live
@pytest.mark.parametrize("name", NAMES)
def test_a_toy_run_writes_rows_and_what_they_were_measured_with(
    name: str,
    tiny_encoder_folder: Callable[[EncoderKind], Path],
    data_folder: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "run.json"
    settings = {
        "TURNWISE_MODEL": str(tiny_encoder_folder(EncoderKind.TRIPLE)),
        "TURNWISE_DATA_DIR": str(data_folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    with ExitStack() as stack:
        if name == "replicas":
            if missing := milvus.MISSING or (None if shutil.which("haproxy") else "haproxy"):
                pytest.skip(f"needs {missing}")
            stack.enter_context(milvus.none_running())  # it kills its own
        if name in {"stores", "systems"} and not milvus.MISSING:
            settings["TURNWISE_STORE_URL"] = stack.enter_context(milvus.running()).url
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", f"benchmarks.{name}", "--toy", "--out", str(out)],
            cwd=tmp_path,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    run = json.loads(out.read_text())
    assert run["benchmark"] == name
    assert run["options"]["toy"] is True
    assert {"date", "commit", "processor", "cores", "load", "model"} <= run.keys()
    assert {"python", "torch", "onnxruntime", "faiss", "redis", "turnwise"} == set(run["versions"])
    assert run["rows"]

"""Every benchmark runs at its toy size, with a tiny model, and writes a record."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import milvus
from turnwise.models.roles import EncoderKind

ROOT = Path(__file__).parents[2]
PROGRAMS = [
    f"{folder}.{path.stem}"
    for folder in ("benchmarks", "research")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "run(parser, " in path.read_text()
]


@pytest.mark.live
@pytest.mark.nightly
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_toy_run_writes_rows_and_what_they_were_measured_with(
    program: str,
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
        if program == "research.replicas":
            if missing := milvus.MISSING or (None if shutil.which("haproxy") else "haproxy"):
                pytest.skip(f"needs {missing}")
            stack.enter_context(milvus.none_running())  # it kills its own
        if program in {"research.stores", "benchmarks.systems"} and not milvus.MISSING:
            settings["TURNWISE_STORE_URL"] = stack.enter_context(milvus.running()).url
        done = subprocess.run(
            [sys.executable, "-m", program, "--toy", "--out", str(out)],
            cwd=tmp_path,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    run = json.loads(out.read_text())
    assert run["benchmark"] == program.rpartition(".")[2]
    assert run["options"]["toy"] is True
    assert {"date", "commit", "processor", "cores", "load", "model"} <= run.keys()
    assert {"python", "torch", "onnxruntime", "faiss", "redis", "turnwise"} == set(run["versions"])
    assert run["rows"]

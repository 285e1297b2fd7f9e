"""Packs what a training on a rented GPU needs into one small folder.

    python research/gpu/pack.py RECIPE --data CORPORA --base models/default --out .gpu

The folder has the corpora that the recipe names and do not come with the project, the model that
the training starts from, and the wheels of packages that the machine lacks.
"""

import argparse
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from turnwise.models.encoder.eight_bits_file import store_in_8_bits
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE
from turnwise.models.training.config import EncoderConfig, read_stages
from turnwise.models.training.corpora import OWN_CORPORA, finder

MISSING = ("annotated-types", "pydantic", "pydantic-core", "typing-inspection")
"""Packages that a machine with torch and sentence-transformers need not have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--base", type=Path, default=Path("models/default"))
    parser.add_argument("--out", type=Path, default=Path(".gpu"))
    parser.add_argument("--python", default="3.12", help="version of Python on that machine")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    copy_corpora(options.recipe, options.data, options.out / "data")
    copy_model(options.base, options.out / "base")
    download_wheels(options.out / "wheels", options.python)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {size / 2**20:.1f} MiB")


def copy_corpora(recipe: Path, data: Path, out: Path) -> None:
    """Copy the corpora that a recipe's stages name, except those of the project."""
    find = finder([data])
    for name in dict.fromkeys(name for stage in read_stages(recipe) for name in named_in(stage)):
        if (OWN_CORPORA / name).is_file():
            continue
        copy = out / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(find(name), copy)


def copy_model(model: Path, out: Path) -> None:
    """Copy a model without its graphs, the matrices of its weights in 8 bits."""
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("*.onnx", "*.safetensors"))
    scales = load_file(model / SCALES_FILE) if (model / SCALES_FILE).is_file() else {}
    for file in model.glob("*.safetensors"):
        if file.name == SCALES_FILE:
            shutil.copy(file, out)
            continue
        weights = {name: array.astype(np.float32) for name, array in load_file(file).items()}
        matrices = [name for name, array in weights.items() if array.ndim == 2]
        own_scales = {name: array for name, array in scales.items() if scaled_by(name) in weights}
        save_file(store_in_8_bits(weights, own_scales, matrices), out / file.name)


def scaled_by(name: str) -> str:
    """Return the name of the matrix that has a scale."""
    return name.rpartition(".")[0] + ".weight"


def named_in(stage: object) -> Iterator[str]:
    """Yield the names of an encoder stage's files."""
    if not isinstance(stage, EncoderConfig):
        raise SystemExit("only recipes of encoders are trained on a GPU")
    for source in stage.data:
        yield source.path
        if source.leave_out:
            yield source.leave_out
    yield from stage.validation.paths
    if stage.nli:
        yield from stage.nli.paths


def download_wheels(folder: Path, python: str) -> None:
    """Download the missing packages, in the versions that run here, for another machine."""
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in (28, 27, 17)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for name in (*platforms, f"manylinux2014_{machine}"):
        command += ["--platform", name]
    command += ["--dest", str(folder), *(f"{name}=={version(name)}" for name in MISSING)]
    subprocess.run(command, check=True)  # noqa: S603 - pip, with names written above


if __name__ == "__main__":
    main()

"""Trains the last stage of a recipe for a given time, on a machine with a GPU that one rents.

    PYTHONPATH=src python research/gpu/train.py RECIPE --packed .gpu --out FOLDER --minutes 8

`pack.py` makes the folder `.gpu`. The learning rate falls to zero with the time that is left, not
with the steps, since nobody knows beforehand how many steps fit. Every two minutes, and at the end,
the best model so far comes into the folder as `model.tar.1`, `model.tar.2` and so on:

    cat FOLDER/model.tar.* | tar x
"""

import argparse
import io
import math
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from turnwise.models.encoder.eight_bits_file import restore
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE
from turnwise.models.training.config import EncoderConfig, read_stages
from turnwise.models.training.corpora import Find, finder
from turnwise.models.training.learners.encoder import EncoderLearner
from turnwise.models.training.trainer import StepReport, fit

MAX_EPOCHS = 1000
"""More than fit into the time."""
PART_BYTES = 15 * 2**20
"""Largest file that is brought back."""
SAVE_SECONDS = 120.0
LEAST_RATE = 0.02
"""Share of the learning rate at which the training ends."""


class TimeIsUp(Exception):  # noqa: N818 - no error: the way out of the training loop
    """The training has used its time."""


class TimedLearner(EncoderLearner):
    """An encoder whose learning rate rises with the first steps and falls with the time left."""

    def __init__(self, config: EncoderConfig, find: Find, seconds: float) -> None:
        """Read the data and load the base.

        Args:
            config: The stage.
            find: Returns the file that the stage names by a path.
            seconds: The time from the first step to the last.
        """
        super().__init__(config, find)
        self._seconds = seconds
        self._began = time.monotonic()

    def rate(self, steps: int) -> Callable[[int], float]:
        """Return the factor on the learning rate: 100 steps of warm-up, then a fall to zero."""
        del steps
        self._began = time.monotonic()
        return lambda step: min((step + 1) / 100, max(LEAST_RATE, self.share_left()))

    def share_left(self) -> float:
        """Return the share of the time that is left."""
        return 1.0 - (time.monotonic() - self._began) / self._seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--packed", type=Path, default=Path(".gpu"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--batch-windows", type=int, help="instead of the recipe's")
    parser.add_argument("--every", type=int, default=200, help="steps between validations")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    restore_model(options.packed / "base", work / "base")
    stage = read_stages(options.recipe)[-1]
    if not isinstance(stage, EncoderConfig):
        sys.exit("only recipes of encoders are trained here")
    validation = stage.validation.model_copy(update={"every": options.every})
    update = {"base": str(work / "base"), "epochs": MAX_EPOCHS, "validation": validation}
    if options.batch_windows:
        update["batch_windows"] = options.batch_windows
    stage = stage.model_copy(update=update)
    learner = TimedLearner(stage, finder([options.packed / "data"]), options.minutes * 60)
    train(learner, work / "run", options.out)


def restore_model(packed: Path, out: Path) -> None:
    """Copy a packed model, its weights in float16 again."""
    shutil.copytree(packed, out)
    for file in out.glob("*.safetensors"):
        if file.name != SCALES_FILE:
            weights = restore(load_file(file))
            save_file({name: array.astype(np.float16) for name, array in weights.items()}, file)


def train(learner: TimedLearner, run: Path, out: Path) -> None:
    """Train until the time is up; bring the best model out again and again."""
    brought = time.monotonic()
    best = math.inf

    def report(step: StepReport) -> None:
        nonlocal best, brought
        if step.validation or step.step % 100 == 0:
            losses = {name: round(loss, 3) for name, loss in step.losses.items()}
            print(step.step, round(step.texts_per_second), losses, step.validation, flush=True)
        if learner.share_left() <= 0:
            raise TimeIsUp
        if step.validation:
            best = min(best, next(iter(step.validation.values())))
        if step.validation and time.monotonic() - brought > SAVE_SECONDS:
            bring(run / "model", out)
            brought = time.monotonic()

    try:
        fit(learner, run, report=report)
    except TimeIsUp:
        last = learner.validate()
        print("last model:", last, flush=True)
        if next(iter(last.values())) <= best:
            learner.save(run / "model")
        bring(run / "model", out)


def bring(model: Path, out: Path) -> None:
    """Write a model's folder as a tar file in parts of a bounded size."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        file.add(model, "model")
    data = packed.getbuffer()
    out.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(data), PART_BYTES):
        part = out / f"model.tar.{start // PART_BYTES + 1}"
        part.write_bytes(data[start : start + PART_BYTES])


if __name__ == "__main__":
    main()

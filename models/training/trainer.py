"""The training loop of every kind of model: steps, validation, the best model, checkpoints."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.models.errors import TrainingError
from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.training.checkpoint import (
    State,
    drop_checkpoint,
    load_checkpoint,
    recipe_of,
    save_checkpoint,
)
from turnwise.models.training.config import Config
from turnwise.models.training.curves import Curves

Item = TypeVar("Item")


class Learner(Protocol[Item]):
    """One kind of model, as the training loop sees it."""

    @property
    def config(self) -> Config:
        """The configuration of the run."""

    @property
    def weights(self) -> nn.Module:
        """The module with everything that is learned, as a checkpoint keeps it."""

    @property
    def counts(self) -> list[int]:
        """The number of items of each file: a checkpoint is only for a run on the same data."""

    @property
    def clip(self) -> float:
        """Largest norm of the gradient."""

    def optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of the weights."""

    def rate(self, steps: int) -> Callable[[int], float]:
        """Return a function from a step, counted from 0, to the factor on the learning rates."""

    def batches(self, epoch: int) -> list[list[Item]]:
        """Return the batches of an epoch: as many in each epoch, the same for the same seed."""

    def loss(self, batch: list[Item], rng: np.random.Generator) -> tuple[dict[str, Tensor], int]:
        """Return the weighted parts of a step's loss, and the number of texts that were read.

        A step depends on earlier ones through the weights alone, so that a run can be resumed.
        """

    def validate(self) -> Metrics:
        """Return the metrics of the current model, if any; lower is better for the first."""

    def save(self, folder: Path) -> None:
        """Write the current model, which is the best so far."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """The state of a training run after a step, and its speed."""

    step: int
    steps: int
    losses: dict[str, float]
    seconds_left: float
    texts_per_second: float
    validation: Metrics | None


OnProgress = Callable[[StepReport], None]


def silent(_: StepReport) -> None:
    """Show nothing."""


def fit(
    learner: Learner[Item],
    out: Path,
    *,
    resume: bool = False,
    report: OnProgress = silent,
    successor: Path | None = None,
) -> Path:
    """Take all steps of a run; return the folder of its best model.

    Args:
        learner: The model, and how it learns.
        out: Folder for `model/` (the best by validation; without validation the last),
            `checkpoint/`, `curves.csv` and `curves.png`.
        resume: Whether to continue from `out/checkpoint`, where there is one.
        report: Called after every step.
        successor: Folder of the next stage, which starts from this one's model. Its checkpoint
            is dropped before this run's first step.

    Raises:
        TrainingError: The loss is no longer finite, or the checkpoint is not one of this run.
    """
    steps = learner.config.epochs * len(learner.batches(0))
    optimiser = learner.optimiser()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, learner.rate(steps))
    recipe = recipe_of(learner.config, learner.counts, out)
    state = State(learner.weights, optimiser, schedule, recipe, type(learner.config))
    begin(state, out, steps, resume=resume, successor=successor)
    curves = Curves(out, state.step)
    clock = Clock(steps - state.step)
    every = learner.config.validation.choose_interval(steps)
    for batch in islice(all_batches(learner), state.step, None):
        state.step += 1
        rng = np.random.default_rng([learner.config.seed, state.step])
        parts, texts = learner.loss(batch, rng)
        rate = schedule.get_last_lr()[0]
        take_step(state, parts, learner.clip)
        losses = {name: part.item() for name, part in parts.items()}
        metrics = None
        if state.step % every == 0 or state.step == steps:
            metrics = validate(learner, state, out)
        curves.add(state.step, float(rate), losses, metrics)
        report(StepReport(state.step, steps, losses, *clock.tick(texts), metrics))
    return out / "model"


def begin(state: State, out: Path, steps: int, *, resume: bool, successor: Path | None) -> None:
    """Resume a run, or start it from the beginning; drop checkpoints that are no longer its own."""
    if resume:
        load_checkpoint(out / "checkpoint", state)
    else:  # a run that is interrupted before its first checkpoint must not resume an earlier one
        drop_checkpoint(out / "checkpoint")
    if successor and state.step < steps:
        drop_checkpoint(successor / "checkpoint")


def all_batches(learner: Learner[Item]) -> Iterator[list[Item]]:
    """Yield the batches of all epochs."""
    for epoch in range(learner.config.epochs):
        yield from learner.batches(epoch)


def take_step(state: State, parts: dict[str, Tensor], clip: float) -> None:
    """Move the weights along the gradient of a loss, its norm limited.

    Raises:
        TrainingError: The loss or the gradient is not finite: the run has diverged.
    """
    loss = torch.stack(list(parts.values())).sum()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(state.learner.parameters(), clip)
    # Each may be finite where the other is not: a mean over nothing is NaN with a gradient of zero.
    if not (loss.isfinite() & norm.isfinite()):
        raise TrainingError("training diverged: try a smaller learning rate")
    state.optimiser.step()
    state.optimiser.zero_grad()
    state.schedule.step()


def validate(learner: Learner[Item], state: State, out: Path) -> Metrics:
    """Measure the model, keep it if it is the best so far, and write a checkpoint."""
    metrics = learner.validate()
    score = next(iter(metrics.values()), state.best)
    if score <= state.best:
        state.best = score
        learner.save(out / "model")
    save_checkpoint(out / "checkpoint", state)
    return metrics


def make_optimiser(
    parameters: Iterable[Tensor], *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Return AdamW for the parameters that learn; biases and norms do not decay."""
    learning = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in learning if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in learning if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)


def warm_up_and_decay(steps: int, warm_up: float) -> Callable[[int], float]:
    """Return the factor on the learning rate by step: linear warm-up, linear decay."""
    top = max(1, round(warm_up * steps))

    def factor(step: int) -> float:
        rising = (step + 1) / top
        falling = max(0.0, (steps - step) / (steps - top + 1))
        return min(rising, falling)

    return factor


class Clock:
    """Measures the time left and the texts a second, since training began or was resumed."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._done = 0
        self._texts = 0
        self._start = time.monotonic()

    def tick(self, texts: int) -> tuple[float, float]:
        """Count a step; return the seconds left and the texts a second."""
        self._left -= 1
        self._done += 1
        self._texts += texts
        seconds = time.monotonic() - self._start
        return seconds / self._done * self._left, self._texts / seconds

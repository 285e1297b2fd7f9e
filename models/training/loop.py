"""What all training runs do alike: steps, validation, the best model, checkpoints, curves."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from turnwise.models.errors import TrainingError
from turnwise.models.training.checkpoint import (
    Curves,
    Recipe,
    State,
    drop_checkpoint,
    load_checkpoint,
    save_checkpoint,
)

Losses = dict[str, float]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a caller may show after a step: where training stands, and how fast it is."""

    step: int
    steps: int
    losses: Losses
    seconds_left: float
    texts_per_second: float
    validation: dict[str, float] | None


Report = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Run:
    """What is particular to a run.

    Attributes:
        learner: All that has weights.
        recipe: What is learned, and how; a checkpoint of any other run is not taken up.
        optimiser: Optimiser of the weights that are learned.
        rate: Factor on the learning rates by step, from 0.
        steps: Number of steps of the whole run.
        every: Steps between validations; the last step has one too.
        gradients: Called with the number of steps done; for each further step it adds the
            gradients, then yields the losses and how many texts were read. A step must depend on
            those before it through the weights alone, so that a run can be taken up.
        validate: Metrics of the model as it stands, lower being better for the first; may be none.
        save: Writes the model as it stands, which is the best so far.
        clip: Largest norm of the gradient.
    """

    learner: nn.Module
    recipe: Recipe
    optimiser: torch.optim.Optimizer
    rate: Callable[[int], float]
    steps: int
    every: int
    gradients: Callable[[int], Iterator[tuple[Losses, int]]]
    validate: Callable[[], dict[str, float]]
    save: Callable[[], None]
    clip: float = 1.0


def fit(
    run: Run,
    out: Path,
    *,
    resume: bool = False,
    report: Report = silent,
    successor: Path | None = None,
) -> None:
    """Take all steps of a run.

    Args:
        run: The run.
        out: Folder for `checkpoint/`, `curves.csv` and `curves.png`.
        resume: Whether to go on from `out/checkpoint`, where there is one.
        report: Called after every step.
        successor: Folder of the run that starts from this one's model, where there is one; its
            checkpoint is dropped before this one's next step.

    Raises:
        TrainingError: The loss is no longer finite, or the checkpoint is not one of this run.
    """
    schedule = torch.optim.lr_scheduler.LambdaLR(run.optimiser, run.rate)
    state = State(run.learner, run.optimiser, schedule, run.recipe)
    if resume:
        load_checkpoint(out / "checkpoint", state)
    else:  # else a run that is interrupted before its first would resume an earlier one's
        drop_checkpoint(out / "checkpoint")
    if successor and state.step < run.steps:
        drop_checkpoint(successor / "checkpoint")
    curves = Curves(out, state.step)
    clock = Clock(run.steps - state.step)
    for losses, texts in run.gradients(state.step):
        state.step += 1
        limit_gradient(run.learner, run.clip)
        rate = schedule.get_last_lr()[0]
        run.optimiser.step()
        run.optimiser.zero_grad()
        schedule.step()
        metrics = None
        if state.step % run.every == 0 or state.step == run.steps:
            metrics = run.validate()
            score = next(iter(metrics.values()), state.best)
            if score <= state.best:
                state.best = score
                run.save()
            save_checkpoint(out / "checkpoint", state)
        curves.add(state.step, float(rate), losses, metrics)
        report(Progress(state.step, run.steps, losses, *clock.tick(texts), metrics))


def limit_gradient(learner: nn.Module, largest: float) -> None:
    """Scale the gradient down to the largest norm.

    Raises:
        TrainingError: It is not finite: the run has diverged.
    """
    norm = nn.utils.clip_grad_norm_(learner.parameters(), largest)
    if not torch.isfinite(norm):
        raise TrainingError("training diverged: try a smaller learning rate")


def warm_up_and_decay(steps: int, warm_up: float) -> Callable[[int], float]:
    """Return the factor on the learning rate by step: linear warm-up, linear decay."""
    first = max(1, round(warm_up * steps))
    return lambda step: min((step + 1) / first, max(0.0, (steps - step) / (steps - first + 1)))


class Clock:
    """Time left and texts a second, since training began or was taken up again."""

    def __init__(self, steps: int) -> None:
        self._left, self._done, self._texts = steps, 0, 0
        self._start = time.monotonic()

    def tick(self, texts: int) -> tuple[float, float]:
        """Count a step; return the seconds left and the texts a second."""
        self._left, self._done, self._texts = self._left - 1, self._done + 1, self._texts + texts
        seconds = time.monotonic() - self._start
        return seconds / self._done * self._left, self._texts / seconds

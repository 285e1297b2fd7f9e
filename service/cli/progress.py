"""Progress bars on a terminal, for training, evaluations and uploads."""

from time import monotonic
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from turnwise.models.training.trainer import StepReport

_SECONDS_A_LINE = 60.0
_BEFORE_STEPS = "reading the corpora and preparing the model"


class _Shown:
    """A bar that is on the terminal until the end of a `with` block; a file or a pipe gets none."""

    _bar: Bar

    def __enter__(self) -> Self:
        if self._bar.console.is_interactive:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.console.is_interactive:  # without a terminal it prints an empty line
            self._bar.stop()


class TrainingProgress(_Shown):
    """Shows each step that training reports, as a bar; validations stay as lines.

    Where the output is a file, a line says that the training begins, and from the first step on a
    line each minute says how far it is.
    """

    def __init__(self) -> None:
        self._next_line = 0.0
        self._bar = Bar(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
        )
        self._task = self._bar.add_task("training", total=None, shown=_BEFORE_STEPS)

    def __enter__(self) -> Self:
        if not self._bar.console.is_interactive:
            self._print(f"{_BEFORE_STEPS}, which may take minutes")
        return super().__enter__()

    def __call__(self, progress: "StepReport") -> None:
        """Show the progress of training."""
        shown = (
            f"loss {sum(progress.losses.values()):.3f}  "
            f"{progress.texts_per_second:.0f} texts/s  {_describe_rest(progress)}"
        )
        self._bar.update(self._task, total=progress.steps, completed=progress.step, shown=shown)
        if progress.validation:
            metrics = (f"{name} {value:.2f}" for name, value in progress.validation.items())
            self._print(f"step {progress.step}: {'  '.join(metrics)}")
        elif not self._bar.console.is_interactive and monotonic() >= self._next_line:
            self._next_line = monotonic() + _SECONDS_A_LINE
            self._print(f"step {progress.step} of {progress.steps}: {shown}")

    def _print(self, line: str) -> None:
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _describe_rest(progress: "StepReport") -> str:
    """Return how long a stage still takes; validating and saving take minutes after its steps."""
    if progress.step == progress.steps:
        return "all steps done, measuring and saving the model"
    minutes = round(progress.seconds_left / 60)
    return f"{minutes} min left" if minutes else "the last steps, then a validation"


class UploadProgress(_Shown):
    """Shows how many candidates are encoded, or loaded, as a bar."""

    def __init__(self, doing: str = "encoding") -> None:
        self._bar = Bar(TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._task = self._bar.add_task(doing, total=None)

    def __exit__(self, *raised: object) -> None:
        # Hide the bar if there was nothing to do.
        self._bar.update(self._task, visible=self._bar.tasks[0].total is not None)
        super().__exit__(*raised)

    def __call__(self, encoded: int, total: int) -> None:
        """Show how many candidates are encoded."""
        self._bar.update(self._task, completed=encoded, total=total)


class SystemProgress(_Shown):
    """Shows how many examples a system of an evaluation has done, as a bar."""

    def __init__(self) -> None:
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            transient=True,
        )
        self._task = self._bar.add_task("loading", total=None)
        self._system = ""

    def __call__(self, system: str, done: int, total: int) -> None:
        """Show how many examples a system has done, of the total."""
        if system != self._system:
            self._system = system
            self._bar.reset(self._task, total=total, description=system)
        self._bar.update(self._task, completed=done)

"""The progress bar of an evaluation."""

from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class SystemProgress:
    """Draws a bar for the current system."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            transient=True,
        )
        self._task = self._bar.add_task("loading", total=None)
        self._system = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, system: str, done: int, total: int) -> None:
        """Show how many examples a system has done, of the total."""
        if system != self._system:
            self._system = system
            self._bar.reset(self._task, total=total, description=system)
        self._bar.update(self._task, completed=done)

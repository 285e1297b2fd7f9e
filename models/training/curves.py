"""The curves of a run: losses, learning rate and validation metrics by step."""

import csv
from collections.abc import Mapping
from pathlib import Path

from turnwise.models.evaluation.report import Line, draw_lines, figure_height


class Curves:
    """Losses and metrics by step, as CSV and, after each validation, as a picture."""

    def __init__(self, folder: Path, step: int) -> None:
        """Start a folder's curves; a resumed run keeps those up to its step."""
        folder.mkdir(parents=True, exist_ok=True)
        self._csv = folder / "curves.csv"
        self._png = folder / "curves.png"
        kept = []
        if step and self._csv.is_file():
            with self._csv.open(encoding="utf-8", newline="") as file:
                # A full disk may have cut the last line.
                whole = (line for line in file if line.endswith("\n"))
                kept = [row for row in csv.DictReader(whole) if int(row["step"]) <= step]
        with self._csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ("step", "name", "value"))
            writer.writeheader()
            writer.writerows(kept)

    def add(
        self,
        step: int,
        learning_rate: float,
        losses: Mapping[str, float],
        metrics: Mapping[str, float] | None,
    ) -> None:
        """Append a step's rows (step, name, value); draw the picture if there are metrics."""
        rows = {"learning_rate": learning_rate}
        rows |= {f"loss/{name}": value for name, value in losses.items()}
        rows |= {f"validation/{name}": value for name, value in (metrics or {}).items()}
        with self._csv.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows((step, name, f"{value:.6g}") for name, value in rows.items())
        if metrics is not None:
            draw_curves(self._csv, self._png)


def draw_curves(source: Path, target: Path) -> None:
    """Draw losses above, validation below, from a `curves.csv`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra that only training needs

    series: dict[str, tuple[list[int], list[float]]] = {}
    with source.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            steps, values = series.setdefault(row["name"], ([], []))
            steps.append(int(row["step"]))
            values.append(float(row["value"]))
    parts = {part: _lines(series, f"{part}/") for part in ("loss", "validation")}
    inches = [figure_height(lines, 4) for lines in parts.values()]
    figure = Figure(figsize=(8, sum(inches)))
    both = figure.subplots(2, 1, sharex=True, height_ratios=inches)
    for axes, (part, lines) in zip(both, parts.items(), strict=True):
        draw_lines(axes, lines)
        axes.set(xlabel="step", ylabel=part)
    figure.savefig(target, dpi=120, bbox_inches="tight")


def _lines(series: Mapping[str, tuple[list[int], list[float]]], start: str) -> list[Line]:
    return [
        Line(name.removeprefix(start), *points)
        for name, points in series.items()
        if name.startswith(start)
    ]

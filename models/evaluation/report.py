"""What an evaluation hands out: a table for people, JSON for programs, and a plot."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.plots import Line, draw_lines, height

FULL_POOL = "full_pool_"
TIMES = "ms_"


@dataclass(frozen=True, slots=True)
class View:
    """How a task is shown.

    Attributes:
        overall: What the table of all contexts is called.
        metric: What is drawn, which names the file.
        settings: How the names of the settings on the x axis start.
        x: What these are.
        y: What the metric is.
    """

    overall: str = "Mean over all settings"
    metric: str = "average_rank"
    settings: str = "h="
    x: str = "setting"
    y: str = "average rank (lower is better)"


TURNS = "utterances of context"
VIEWS = {
    "next-utterance": View(x="history length h"),
    "short-term": View(x="history length h, goal distance d"),
    "long-term": View(x="history length h, goal distance d, first goal in f"),
    "ranking": View("All contexts", "p@1", "turns=", TURNS, "P@1 (higher is better)"),
    "similarity": View("All pairs", "spearman", "turns=", TURNS, "Spearman (higher is better)"),
    "multiple-choice": View("All questions", "accuracy", "turns=", TURNS, "accuracy"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one system reached.

    Attributes:
        system: Its name.
        metrics: From a name to a number; `METRIC/SETTING` for one setting of the task, such as
            `average_rank/h=2`.
        ms_per_context: Median milliseconds that one context costs online.
    """

    system: str
    metrics: Metrics
    ms_per_context: float


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first column names the systems."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table under a heading, as Markdown."""
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        written = (
            [cell.replace("|", r"\|") for cell in line] for line in (self.columns, *self.rows)
        )
        lines = ["| " + " | ".join(cells) + " |" for cells in written]
        return "\n".join([f"## {self.title}", "", lines[0], rule, *lines[1:]]) + "\n"


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of one task on some files, and what is to be known of these."""

    task: str
    data: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def view(self) -> View:
        """How the task is shown."""
        return VIEWS.get(self.task, View())

    def overall(self) -> list[Table]:
        """Return the means over all settings, and the full pool where the task has one."""
        names = [name for name in self.names() if "/" not in name]
        full_pool = [name for name in names if name.startswith(FULL_POOL)]
        means = [name for name in names if not name.startswith(FULL_POOL)]
        tables = [self._timed(self._table(self.view.overall, means, self.rows))]
        if full_pool:
            tables.append(self._table("Full pool", full_pool, self.rows))
        return tables

    def by_setting(self) -> list[Table]:
        """Return one table a metric with a column a setting."""
        by_metric: dict[str, list[str]] = {}
        for name in self.names():
            metric, slash, _ = name.partition("/")
            if slash:
                by_metric.setdefault(metric, []).append(name)
        return [
            self._table(_words(metric), names, [row for row in self.rows if metric in row.metrics])
            for metric, names in by_metric.items()
        ]

    def write(self, folder: Path) -> None:
        """Write `results.md`, `results.json` and a plot, `METRIC.png`, into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        heading = f"# {self.task}: {', '.join(self.data)}\n"
        tables = [table.markdown() for table in self.overall() + self.by_setting()]
        parts = [heading, f"{self.note}\n", *tables] if self.note else [heading, *tables]
        (folder / "results.md").write_text("\n".join(parts), encoding="utf-8")
        (folder / "results.json").write_text(
            json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        plot(self, folder / f"{self.view.metric}.png")

    def to_json(self) -> dict[str, object]:
        """Return `{"task", "data", "note"?, "rows": [{"system", "metrics", "ms_per_context"}]}`."""
        rows = [
            {"system": row.system, "metrics": row.metrics, "ms_per_context": row.ms_per_context}
            for row in self.rows
        ]
        note = {"note": self.note} if self.note else {}
        return {"task": self.task, "data": list(self.data), **note, "rows": rows}

    def names(self) -> list[str]:
        """Return the names of all metrics; what a row lacks stands where another has it."""
        names: list[str] = []
        for row in self.rows:
            place = len(names)
            for name in row.metrics:
                if name not in names:
                    names.insert(place, name)
                place = names.index(name) + 1
        return names

    def _timed(self, table: Table) -> Table:
        """Add the milliseconds of a context, where they do not stand among the metrics."""
        if any(name.startswith(TIMES) for name in self.names()):
            return table
        rows = zip(table.rows, self.rows, strict=True)
        timed = tuple((*cells, f"{row.ms_per_context:.2f}") for cells, row in rows)
        return Table(table.title, (*table.columns, "ms per context"), timed)

    def _table(self, title: str, names: list[str], rows: Sequence[Row]) -> Table:
        columns = tuple(_words(name.partition("/")[2] or name) for name in names)
        lines = tuple(
            (row.system, *(_number(name, row.metrics.get(name)) for name in names)) for row in rows
        )
        return Table(title, ("system", *columns), lines)


def plot(report: Report, path: Path) -> None:
    """Draw a metric of every system over the settings of the task."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load, and needed here alone

    view = report.view
    names = [name for name in report.names() if name.startswith(f"{view.metric}/{view.settings}")]
    ticks = [name.partition("/")[2].removeprefix("turns=") for name in names]
    lines = [
        Line(row.system, ticks, [row.metrics.get(name, math.nan) for name in names])
        for row in report.rows
        if view.metric in row.metrics
    ]
    figure = Figure(figsize=(9, height(lines, 5)))
    axes = figure.subplots()
    draw_lines(axes, lines)
    axes.set_xlabel(view.x)
    axes.set_ylabel(view.y)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.tick_params(axis="x", rotation=30 if len(ticks) > 9 else 0)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if "average_rank" in name or name.startswith(TIMES) else f"{value:.3f}"


def _words(metric: str) -> str:
    name = metric.removeprefix(FULL_POOL)
    return name if "@" in name else name.replace("_", " ")

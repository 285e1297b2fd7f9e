"""Reports: a table for people, JSON for programs, and plots."""

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from turnwise.models.arrays import Float32
from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.evaluation.significance import LEVEL, Outcomes, p_values

if TYPE_CHECKING:  # an extra, which scoring does not need
    from matplotlib.axes import Axes

FULL_POOL = "full_pool_"
TIMES = "ms_"

_COLOURS = "tab20"
_MARKERS = "os^DvPX"
"""20 colours and 7 markers have no common factor: the first 140 lines all look different."""
_MARKED = 20
"""Points of a line that have a marker, about; all if there are fewer."""
_LEGEND_INCHES = 0.27
"""Height of a line of the legend."""
_LABEL = 40
"""Characters of an utterance that a heat map shows."""
_HEAT_INCHES = 0.28
"""Side of the heat map that each named utterance takes."""
NAMED = 100
"""Utterances that a heat map names at most: of more, every second or third, and so on."""

NOTE = (
    "± standard error; ≈ no difference from the best row of its kind at "
    f"p < {LEVEL} (paired bootstrap)"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Tables and plot of a task.

    Attributes:
        overall: Title of the table of means.
        metric: The metric that is drawn, which names the file.
        settings: Start of the names of the settings on the x axis.
        x: Label of the x axis.
        y: Label of the y axis.
    """

    overall: str = "Mean over all settings"
    metric: str = "average_rank"
    settings: str = "h="
    x: str = "setting"
    y: str = "average rank (lower is better)"


TURNS = "utterances of context"
LAYOUTS = {
    "next-utterance": Layout(x="context length h"),
    "short-term": Layout(x="context length h, goal distance d"),
    "long-term": Layout(x="context length h, goal distance d, first goal in f"),
    "ranking": Layout("All contexts", "p@1", "turns=", TURNS, "P@1 (higher is better)"),
    "confidence": Layout("Confidence", "risk", "", "coverage", "risk (lower is better)"),
    "answers": Layout("All questions", "r@1", "examples=", "examples", "R@1 (higher is better)"),
    "conversational-search": Layout(
        "All questions", "r@1", "turns=", "utterances up to the question", "R@1 (higher is better)"
    ),
    "distances": Layout(
        "All distances", "cosine", "d=", "utterances from the first to the second", "cosine"
    ),
    "additivity": Layout(
        "All distances", "cosine", "d=", "utterances between both of a pair", "cosine"
    ),
    "pairs": Layout("All pairs", "both", "", "kind", "share of pairs (higher is better)"),
    "journal": Layout("All choices", "p@1", "turns=", TURNS, "P@1 (higher is better)"),
    "similarity": Layout("All pairs", "spearman", "turns=", TURNS, "Spearman (higher is better)"),
    "multiple-choice": Layout("All questions", "accuracy", "turns=", TURNS, "accuracy"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one system.

    Attributes:
        system: Its name.
        metrics: Values by name; `METRIC/SETTING` for one setting of the task, such as
            `average_rank/h=2`.
        ms_per_context: Median milliseconds that one context costs online.
        outcomes: The metric that is drawn, of each example; None where it is not a mean.
    """

    system: str
    metrics: Metrics
    ms_per_context: float
    outcomes: Outcomes | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, and a line under them; the first column names the systems."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Return the table under a heading, as Markdown."""
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        written = (
            [cell.replace("|", r"\|") for cell in line] for line in (self.columns, *self.rows)
        )
        lines = ["| " + " | ".join(cells) + " |" for cells in written]
        note = ["", self.note] if self.note else []
        return "\n".join([f"## {self.title}", "", lines[0], rule, *lines[1:], *note]) + "\n"


@dataclass(frozen=True)
class Report:
    """The rows of one task on some files, and a note on how they were made."""

    task: str
    data: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def layout(self) -> Layout:
        """Tables and plot of the task."""
        return LAYOUTS.get(self.task, Layout())

    @cached_property
    def p_against_best(self) -> dict[str, float]:
        """The p of each system's difference from the best one with as many candidates.

        Systems without outcomes, and the best ones themselves, have none.
        """
        higher_is_better = self.layout.metric != "average_rank"
        found = [(row.system, row.outcomes) for row in self.rows if row.outcomes]
        tested: dict[str, float] = {}
        for count in {outcomes.candidates for _, outcomes in found}:
            same = [(name, each) for name, each in found if each.candidates == count]
            same.sort(key=lambda one: one[1].mean, reverse=higher_is_better)
            (_, best), *others = same
            p = p_values(best, [outcomes for _, outcomes in others])
            tested |= zip((name for name, _ in others), p, strict=True)
        return tested

    def overall(self) -> list[Table]:
        """Return the means over all settings, and the full pool if the task has one."""
        names = [name for name in self.names() if "/" not in name]
        full_pool = [name for name in names if name.startswith(FULL_POOL)]
        means = [name for name in names if not name.startswith(FULL_POOL)]
        note = NOTE if any(row.outcomes for row in self.rows) else ""
        table = replace(self._make_table(self.layout.overall, means, self.rows), note=note)
        tables = [self._add_times(table)]
        if full_pool:
            tables.append(self._make_table("Full pool", full_pool, self.rows))
        return tables

    def by_setting(self) -> list[Table]:
        """Return a table for each metric, with a column for each setting."""
        by_metric: dict[str, list[str]] = {}
        for name in self.names():
            metric, slash, _ = name.partition("/")
            if slash:
                by_metric.setdefault(metric, []).append(name)
        return [
            self._make_table(
                _name_metric(metric), names, [row for row in self.rows if metric in row.metrics]
            )
            for metric, names in by_metric.items()
        ]

    def write(self, folder: Path) -> None:
        """Write `results.md`, `results.json` and a plot, `METRIC.png`, into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        parts = [f"# {self.task}: {', '.join(self.data)}\n"]
        if self.note:
            parts.append(f"{self.note}\n")
        parts += [table.markdown() for table in self.overall() + self.by_setting()]
        (folder / "results.md").write_text("\n".join(parts), encoding="utf-8")
        (folder / "results.json").write_text(
            json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        draw_report(self, folder / f"{self.layout.metric}.png")

    def to_json(self) -> dict[str, object]:
        """Return `{"task", "data", "note"?, "rows"}`.

        A row is `{"system", "metrics", "ms_per_context", "p_against_best"}`; its metrics include
        the `standard_error` of the one that is drawn.
        """
        note = {"note": self.note} if self.note else {}
        rows = [self._row_to_json(row) for row in self.rows]
        return {"task": self.task, "data": list(self.data), **note, "rows": rows}

    def _row_to_json(self, row: Row) -> dict[str, object]:
        error = _standard_error(row)
        return {
            "system": row.system,
            "metrics": row.metrics if error is None else row.metrics | {"standard_error": error},
            "ms_per_context": row.ms_per_context,
            "p_against_best": self.p_against_best.get(row.system),
        }

    def names(self) -> list[str]:
        """Return the names of all metrics, each after the one before it in its row."""
        names: list[str] = []
        for row in self.rows:
            index = len(names)
            for name in row.metrics:
                if name not in names:
                    names.insert(index, name)
                index = names.index(name) + 1
        return names

    def _add_times(self, table: Table) -> Table:
        """Add the milliseconds of a context, unless the metrics hold times or nothing was timed."""
        timed_elsewhere = any(name.startswith(TIMES) for name in self.names())
        if timed_elsewhere or not any(row.ms_per_context for row in self.rows):
            return table
        rows = zip(table.rows, self.rows, strict=True)
        timed = tuple((*cells, f"{row.ms_per_context:.2f}") for cells, row in rows)
        return replace(table, columns=(*table.columns, "ms per context"), rows=timed)

    def _make_table(self, title: str, names: list[str], rows: Sequence[Row]) -> Table:
        columns = tuple(_name_metric(name.partition("/")[2] or name) for name in names)
        lines = tuple((row.system, *(self._make_cell(row, name) for name in names)) for row in rows)
        return Table(title, ("system", *columns), lines)

    def _make_cell(self, row: Row, name: str) -> str:
        number = _format_number(name, row.metrics.get(name))
        if name != self.layout.metric:
            return number
        is_as_good = self.p_against_best.get(row.system, 0) >= LEVEL
        cell = f"≈ {number}" if is_as_good else number
        error = _standard_error(row)
        return cell if error is None else f"{cell} ± {_format_number(name, error)}"


def draw_report(report: Report, path: Path) -> None:
    """Draw a metric of every system over the settings of the task."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load

    layout = report.layout
    names = [
        name for name in report.names() if name.startswith(f"{layout.metric}/{layout.settings}")
    ]
    ticks = [name.partition("/")[2].removeprefix("turns=") for name in names]
    lines = [
        Line(row.system, ticks, [row.metrics.get(name, math.nan) for name in names])
        for row in report.rows
        if layout.metric in row.metrics
    ]
    figure = Figure(figsize=(9, figure_height(lines, 5)))
    axes = figure.subplots()
    draw_lines(axes, lines)
    axes.set_xlabel(layout.x)
    axes.set_ylabel(layout.y)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.tick_params(axis="x", rotation=30 if len(ticks) > 9 else 0)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150, bbox_inches="tight")


class Line(NamedTuple):
    """A named line and its points."""

    name: str
    x: Sequence[str] | Sequence[int]
    y: Sequence[float]


def figure_height(lines: Sequence[Line], least: float) -> float:
    """Return the size in inches of a figure with axes as high as the legend next to them."""
    return max(least, _LEGEND_INCHES * (len(lines) + 1))


def draw_lines(axes: "Axes", lines: Sequence[Line]) -> None:
    """Draw lines and, to the right of the axes, their legend.

    Save the figure with `bbox_inches="tight"`, or it cuts the legend.
    """
    from matplotlib import colormaps  # noqa: PLC0415 - slow to load

    colours = colormaps[_COLOURS]
    for index, line in enumerate(lines):
        axes.plot(
            line.x,
            line.y,
            color=colours(index % colours.N),
            marker=_MARKERS[index % len(_MARKERS)],
            markevery=max(1, len(line.x) // _MARKED),
        )
    if not lines:
        return
    # A legend leaves out lines whose own label starts with an underscore.
    names = [escape_dollars(line.name) for line in lines]
    axes.legend(axes.lines, names, loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")


def escape_dollars(text: str) -> str:
    """Return a text with its dollar signs escaped, which start mathematics in matplotlib."""
    return text.replace("$", r"\$")


def draw_heat_map(similarity: Float32, texts: Sequence[str], path: Path) -> None:
    """Draw a square of similarities between the utterances of a dialogue as a PNG.

    Args:
        similarity: (n, n), as `dialogue_heat_map` returns it.
        texts: n utterances.
        path: The file; its folder is made if it does not exist.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load

    named = range(0, len(texts), math.ceil(len(texts) / NAMED))
    side = 4 + _HEAT_INCHES * len(named)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(similarity, cmap="viridis")
    labels = [f"{index + 1}  {_shorten_label(texts[index])}" for index in named]
    axes.set_yticks(named, labels, fontsize=8)
    axes.set_xticks(named, [str(index + 1) for index in named], fontsize=8)
    axes.set(ylabel="context up to this utterance", xlabel="response")
    figure.colorbar(image, label="cosine", shrink=0.7)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # The picture shows a box for a character that the font lacks, such as an emoji.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(path, dpi=120)


def _shorten_label(text: str) -> str:
    return escape_dollars(text if len(text) <= _LABEL else text[: _LABEL - 1] + "…")


def _standard_error(row: Row) -> float | None:
    """Return the standard error of the metric that is drawn; None if it is unknown."""
    return row.outcomes.standard_error if row.outcomes else None


def _format_number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if "average_rank" in name or name.startswith(TIMES) else f"{value:.3f}"


def _name_metric(metric: str) -> str:
    name = metric.removeprefix(FULL_POOL)
    return name if "@" in name else name.replace("_", " ")

"""Lines in a picture: however many there are, told apart and named."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # an extra, which scoring needs not
    from matplotlib.axes import Axes

_COLOURS, _MARKERS = "tab20", "os^DvPX"
"""20 colours and 7 markers, which are coprime: the first 140 lines all look different."""
_MARKED = 20
"""Points of a line that have a marker, about; all where there are fewer."""
_NAMED = 0.27
"""Inches of a line of the legend."""


class Line(NamedTuple):
    """What a line is called, and its points."""

    name: str
    x: Sequence[str] | Sequence[int]
    y: Sequence[float]


def height(lines: Sequence[Line], least: float) -> float:
    """Return the inches of a figure whose axes are to be as high as the legend beside them."""
    return max(least, _NAMED * (len(lines) + 1))


def draw_lines(axes: "Axes", lines: Sequence[Line]) -> None:
    """Draw lines and, to the right of the axes, their legend.

    It has its place in a picture that is saved with `bbox_inches="tight"`.
    """
    from matplotlib import colormaps  # noqa: PLC0415 - slow to load

    colours = colormaps[_COLOURS]
    for place, line in enumerate(lines):
        axes.plot(
            line.x,
            line.y,
            color=colours(place % colours.N),
            marker=_MARKERS[place % len(_MARKERS)],
            markevery=max(1, len(line.x) // _MARKED),
        )
    if not lines:
        return
    # A line's own label would be left out of the legend where it starts with an underscore.
    names = [literal(line.name) for line in lines]
    axes.legend(axes.lines, names, loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")


def literal(text: str) -> str:
    """Return what matplotlib shows as the text: a dollar sign would start mathematics."""
    return text.replace("$", r"\$")

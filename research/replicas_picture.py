"""Draws a record of `replicas.py`, and prints its kills as the table of `docs/replicas.md`.

    python -m research.replicas_picture RECORD.json PICTURE.png

The picture shows the turns and failures of each second, and the kills. It needs matplotlib, which
is in the extra `bench`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.results import rows_table

FAILURES = {
    "failed_429": ("429", "#e6b422"),
    "failed_503": ("503 of the service", "#c0392b"),
    "failed_proxy": ("502 to 504 of the proxy", "#7d3c98"),
    "failed_not_accepted": ("no connection to the proxy", "#566573"),
    "failed_cut_off": ("connection lost", "#1f618d"),
}
"""Label and colour of each kind of failure, by its field."""
_AWAY = "#d6dbdf"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    rows = json.loads(options.record.read_text(encoding="utf-8"))["rows"]
    print(table(rows))
    with mpl.rc_context({"font.size": 9}):
        draw(rows).savefig(options.picture, dpi=130, bbox_inches="tight")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the kills as a table."""
    return rows_table(
        [
            {
                "killed": row["part"],
                "seconds to start": row["seconds_to_serve"],
                "seconds without any turn": row["seconds_without_turns"],
                **{label: row[name] or None for name, (label, _) in FAILURES.items()},
                "types of the 503": row["problems"],
            }
            for row in rows
            if "part" in row
        ]
    )


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Return the picture of a run."""
    seconds = [row for row in rows if "second" in row]
    x = [row["second"] for row in seconds]
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    turns, failures = figure.subplots(2, 1, sharex=True)
    turns.fill_between(x, [row["turn"] for row in seconds], step="mid", color="#148f77")
    turns.set_ylabel("turns a second")
    failures.stackplot(
        x,
        *([row[name] for row in seconds] for name in FAILURES),
        step="mid",
        labels=[label for label, _ in FAILURES.values()],
        colors=[colour for _, colour in FAILURES.values()],
    )
    failures.set_ylabel("failures a second")
    failures.set_xlabel("second; grey: from the kill until the part served again")
    failures.legend(loc="upper left", ncols=len(FAILURES), fontsize=8)
    failures.set_ylim(0, 1.3 * max(1, *(sum(row[name] for name in FAILURES) for row in seconds)))
    for row in rows:
        if "part" in row:
            for axes in (turns, failures):
                axes.axvspan(row["killed"], row["served"], color=_AWAY, zorder=0)
            turns.text(row["killed"], 1.02, row["part"], transform=turns.get_xaxis_transform())
    turns.set_xlim(0, max(x))
    turns.set_ylim(bottom=0)
    return figure


if __name__ == "__main__":
    main()

"""Writes the figures of speed in README and docs from recorded runs.

    python -m benchmarks.results [runs/benchmarks/*.json]

It joins runs of one commit on one machine into `benchmarks/results.json`; `make benchmarks` also
does these runs. Then it writes the README's three figures, and the tables of the pages from the
records that their markers name: `results.json`, or a record in a file of its own.
"""

import argparse
import json
import re
from collections.abc import Callable, Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, SAME, write

RESULTS = Path(__file__).with_name("results.json")
README = ROOT / "README.md"
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "encoder-tier", "how-far")]
_TABLE = re.compile(r"(<!-- benchmarks/results.json -->\n).*?(?=<!-- end -->)", re.S)
_JOINED = re.compile(r"(<!-- benchmarks/results.json: (\w+) -->\n).*?(?=<!-- end -->)", re.S)
_ALONE = re.compile(
    r"(<!-- ((?:benchmarks|research)/(?!results)[\w-]+.json) -->\n).*?(?=<!-- end -->)", re.S
)

_BUSY = """
Other programs kept the cores busy: on a quiet machine all times are shorter, and the ratios differ.
Run `make benchmarks` on yours."""

Rows = list[dict[str, Any]]
Figures = Iterator[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="*", help="files that the benchmarks wrote")
    if runs := parser.parse_args().runs:
        write(RESULTS, join_runs([read(path) for path in runs]))
    results = read(RESULTS)
    write_figures(README, FIRST, results)
    for page in PAGES:
        write_figures(page, FIGURES, results)


def write_figures(page: Path, names: Collection[str], results: dict[str, Any]) -> None:
    text = page.read_text("utf-8")
    page.write_text(fill_figures(text, names, results), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return recorded


def join_runs(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return runs by the name of the benchmark, under the facts that they share."""
    about = {name: runs[0][name] for name in SAME}
    for run in runs:
        if {name: run.pop(name) for name in SAME} != about:
            raise SystemExit(f"{run['benchmark']} ran on another commit, machine or version")
    return about | {"runs": {run.pop("benchmark"): run for run in runs}}


def table(names: Collection[str], results: dict[str, Any]) -> str:
    """Return a sentence about the machine, and the figures of some benchmarks as a table."""
    runs = results["runs"]
    versions = results["versions"]
    began = min(run["date"] for run in runs.values())
    loads = sorted(run["load"] for run in runs.values())
    busy = _BUSY if loads[-1] > 2 * results["cores"] else ""  # the runs themselves keep some busy
    lines = [
        f"Recorded on {began[:10]} at commit `{results['commit']}` with {results['cores']} cores "
        f"({results['processor']}),",
        f"Python {versions['python']}, torch {versions['torch']}, "
        f"ONNX Runtime {versions['onnxruntime']} and FAISS {versions['faiss']}.",
        f"When the runs began, the load average was {loads[0]:.1f} to {loads[-1]:.1f}.{busy}",
        "",
        "| | |",
        "|---|---|",
        *(
            f"| {name} | {value} |"
            for benchmark in names
            if benchmark in runs
            for name, value in FIGURES[benchmark](runs[benchmark]["rows"])
        ),
    ]
    return "\n".join(lines)


def fill_figures(page: str, names: Collection[str], results: dict[str, Any]) -> str:
    """Return a page with the figures of some benchmarks, and with the records that it marks."""
    page = _TABLE.sub(lambda found: f"{found[1]}{table(names, results)}\n", page)
    page = _JOINED.sub(lambda found: f"{found[1]}{joined_record(found[2], results)}\n", page)
    return _ALONE.sub(lambda found: f"{found[1]}{own_record(ROOT / found[2])}\n", page)


def joined_record(benchmark: str, results: dict[str, Any]) -> str:
    """Return one of the joined runs as text."""
    run = results["runs"].get(benchmark)
    if run is None:
        return "`benchmarks/results.json` has no run of this benchmark."
    return record({"benchmark": benchmark, **results, **run}, RESULTS.parent.name)


def own_record(path: Path) -> str:
    """Return the run of a file of its own as text."""
    return record(read(path), path.parent.name)


def record(run: dict[str, Any], folder: str) -> str:
    """Return a recorded run as text: its command, when and where it ran, and all rows.

    Args:
        run: The record.
        folder: The folder of the program: `benchmarks` or `research`.
    """
    options = [
        f"--{name.replace('_', '-')} {shown(value, ' ')}"
        for name, value in run["options"].items()
        if value is not None and name != "toy"
    ]
    command = " ".join([f"python -m {folder}.{run['benchmark']}", *options])
    about = (
        f"`{command}` on {run['date'][:10]} at commit `{run['commit']}`, with {run['cores']} cores "
        f"({run['processor']}) and a load average of {run['load']:.1f}:"
    )
    tables = (rows_table(list(rows)) for _, rows in groupby(run["rows"], key=tuple))
    return "\n\n".join([about, *tables])


def rows_table(rows: Rows) -> str:
    """Return rows of the same fields as a table."""
    lines = [[name.replace("_", " ") for name in rows[0]], ["---"] * len(rows[0])]
    lines += [[shown(value, ", ") for value in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: object, separator: str) -> str:
    """Return a value as a cell or an option shows it."""
    if isinstance(value, list):
        return separator.join(map(str, value))
    return "" if value is None else str(value)


def turns(rows: Rows) -> Figures:
    """Return the ratios of the longest context up to 10, of the last index for each size."""
    context = max(row["context"] for row in rows if row["context"] <= 10)
    last = {row["candidates"]: row for row in rows if row["context"] == context}
    parts = [
        f"{row['ratio']:.1f} with {size:,} candidates"
        + (f" (approximate, recall@10 {row['recall_at_10']:.3f})" if row["recall_at_10"] else "")
        for size, row in last.items()
    ]
    yield (
        f"a turn after {context} utterances, compared with `triple-encoders`, the library of C3L; "
        "without HTTP, and without what Turnwise does after the answer",
        f"times as fast: {', '.join(parts)}",
    )


def load(rows: Rows) -> Figures:
    one, encoding, _, many, _ = rows
    yield (
        "a turn over HTTP, one client",
        f"{one['p50_ms']:.0f} ms in the median; encoding takes {encoding['p50_ms']:.0f}",
    )
    sessions = many["what"].partition(",")[0]
    yield f"turns a second, {sessions} at once", f"{many['turns_per_second']:.0f}"


def peer(rows: Rows) -> Figures:
    clients = spread([row["clients"] for row in rows])
    for system, does in (
        ("plain, whole context", "encodes the whole context again each turn"),
        ("plain, last utterance", "ignores all but the last utterance"),
    ):
        plain = [row["ratio"] for row in rows if row["system"] == system]
        yield (
            f"turns a second, compared with a plain service that {does} ({clients} clients)",
            f"{min(plain):.1f} to {max(plain):.1f} times as many",
        )


def heads(rows: Rows) -> Figures:
    ratio = {row["what"]: row.get("ratio", 0.0) for row in rows}
    many = next(what for what in ratio if what.startswith("turns a second"))
    yield (
        "a model with heads, compared with the same one with prefix tokens",
        f"{ratio[many]:.1f} times the {many}; a turn of one client in "
        f"{ratio['turn of one client, ms']:.2f} of the time, "
        f"`/rank` toward two goals in {ratio['/rank toward two goals, cold, ms']:.2f} "
        f"(cold) or {ratio['/rank toward two goals, warm, ms']:.2f} (warm); "
        f"{ratio['bytes a turn in Redis']:.2f} of the memory a turn in Redis",
    )


def limits(rows: Rows) -> Figures:
    whole = rows[-1]
    yield (
        f"{whole['part']}, compared with the encoder and the index alone",
        f"{whole['ratio']:.1f} times their time",
    )


def overload(rows: Rows) -> Figures:
    over = [row for row in rows if row["share"] > 1]
    yield (
        f"{spread([row['share'] for row in over])} times the load that it can take",
        f"at least {min(row['of_the_most'] for row in over):.2f} of its best throughput; the rest "
        "gets 429",
    )


def soak(rows: Rows) -> Figures:
    memory = next(row for row in rows if row.get("measure") == "service_kb")
    yield (
        f"mixed load, the last {memory['turns']:,} turns",
        f"memory of the service from {memory['least'] / 1024:.0f} to "
        f"{memory['most'] / 1024:.0f} MB",
    )


def spread(values: list[float]) -> str:
    return " to ".join(f"{value:g}" for value in sorted({min(values), max(values)}))


FIGURES: dict[str, Callable[[Rows], Figures]] = {
    "load": load,
    "turn": turns,
    "peer": peer,
    "heads": heads,
    "limits": limits,
    "overload": overload,
    "soak": soak,
}
"""The functions that make the figures of each benchmark; the page shows all of them."""

FIRST = ("load", "turn")
"""Benchmarks whose figures the README shows."""


if __name__ == "__main__":
    main()

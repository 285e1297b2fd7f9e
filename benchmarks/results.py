"""The README's table of speed, from runs of one commit on one machine.

    python -m benchmarks.results runs/benchmarks/*.json

Joins the runs into `benchmarks/results.json`, and writes the README's table. `make benchmarks` does
the runs as well.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, write

RESULTS = Path(__file__).with_name("results.json")
README = ROOT / "README.md"
_SAME = ("commit", "versions", "model", "processor", "cores")
_TABLE = re.compile(r"(?<=<!-- benchmarks/results.json -->\n).*?(?=\n<!-- end -->)", re.S)

_BUSY = """
Other programs kept the cores busy meanwhile: on a quiet machine all times are shorter, and the
ratios differ (`docs/benchmarks.md` has some). Run `make benchmarks` on yours."""

Row = dict[str, Any]
Runs = dict[str, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="files that the benchmarks wrote")
    results = joined([json.loads(path.read_text("utf-8")) for path in parser.parse_args().runs])
    write(RESULTS, results)
    text = README.read_text("utf-8")
    README.write_text(_TABLE.sub(lambda _: table(results), text), encoding="utf-8")


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return runs by the name of the benchmark, under the facts that they share."""
    about = {name: runs[0][name] for name in _SAME}
    for run in runs:
        if {name: run.pop(name) for name in _SAME} != about:
            raise SystemExit(f"{run['benchmark']} ran on another commit, machine or version")
    return about | {"runs": {run.pop("benchmark"): run for run in runs}}


def table(results: dict[str, Any]) -> str:
    """Return the README's sentence about the machine, and its table."""
    runs = results["runs"]
    versions = results["versions"]
    began, load = min(run["date"] for run in runs.values()), [run["load"] for run in runs.values()]
    busy = _BUSY if max(load) > results["cores"] / 2 else ""
    lines = [
        f"Recorded on {began[:10]} at commit `{results['commit']}` with {results['cores']} cores "
        f"({results['processor']}),",
        f"Python {versions['python']}, torch {versions['torch']}, "
        f"ONNX Runtime {versions['onnxruntime']} and FAISS {versions['faiss']}.",
        f"When the runs began, the load average was {min(load):.1f} to {max(load):.1f}.{busy}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in figures(runs)),
    ]
    return "\n".join(lines)


def figures(runs: Runs) -> list[tuple[str, str]]:
    load, peer = rows(runs, "load"), rows(runs, "peer")
    one, encoding = (row(load, what=f"one client, {part}") for part in ("turn", "encoding"))
    many = next(each for each in load if each["what"].endswith("sessions, batches"))
    plain = [r["ratio"] for r in peer if r["system"] == "plain, whole context"]
    whole = next(r for r in rows(runs, "limits") if r["part"].startswith("turn over HTTP"))
    over = [r for r in rows(runs, "overload") if r["share"] > 1]
    gained = row(rows(runs, "soak"), measure="service_kb")
    return [
        (
            "a turn over HTTP, one client",
            f"{one['p50_ms']:.0f} ms in the median; encoding takes {encoding['p50_ms']:.0f}",
        ),
        (
            "a turn compared with the published library. The clock covers encoding and search, and "
            "for Turnwise the encoder queue and Redis. It leaves out HTTP, and the `[B1]` that "
            "Turnwise encodes after the answer",
            library(rows(runs, "turn")),
        ),
        (
            f"turns a second, {many['what'].split()[0]} sessions at once",
            f"{many['turns_per_second']:.0f}",
        ),
        (
            "turns a second, compared with a plain service that encodes the whole context again "
            f"each turn ({spread([r['clients'] for r in peer])} clients)",
            f"{min(plain):.1f} to {max(plain):.1f} times as many",
        ),
        (
            f"{whole['part']}, compared with the encoder and the index alone",
            f"{whole['ratio']:.1f} times their time",
        ),
        (
            f"{spread([r['share'] for r in over])} times the load that it can take",
            f"{min(r['of_the_most'] for r in over):.2f} or more of its best throughput; the rest "
            "gets 429",
        ),
        (
            f"{runs['soak']['options']['minutes']:g} minutes of mixed load",
            f"memory of the service from {gained['least'] / 1024:.0f} to "
            f"{gained['most'] / 1024:.0f} MB in the second half",
        ),
    ]


def library(turns: list[Row]) -> str:
    """Return the ratios of the longest context up to 10, of the last index for each size."""
    context = max(turn["context"] for turn in turns if turn["context"] <= 10)
    last = {turn["candidates"]: turn for turn in turns if turn["context"] == context}
    parts = [
        f"{turn['ratio']:.1f} with {size:,}"
        + (f" (approximate, recall@10 {turn['recall_at_10']:.3f})" if turn["recall_at_10"] else "")
        for size, turn in last.items()
    ]
    return f"times as fast: {', '.join(parts)} candidates; context of {context}"


def rows(runs: Runs, name: str) -> list[Row]:
    found: list[Row] = runs[name]["rows"]
    return found


def row(rows: list[Row], **wanted: str) -> Row:
    return next(each for each in rows if wanted.items() <= each.items())


def spread(values: list[float]) -> str:
    return " to ".join(f"{value:g}" for value in sorted({min(values), max(values)}))


if __name__ == "__main__":
    main()

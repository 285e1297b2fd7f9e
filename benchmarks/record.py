"""The options that all benchmarks share, and the record of a run as JSON.

A record has the rows, the options, and the commit, versions and machine of the run. `--toy` takes
seconds, and its figures mean nothing. `--out FILE` writes the record.
"""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnwise.models.cores import multiplies_bytes
from turnwise.service.settings import Settings

ROOT = Path(__file__).parents[1]
SAME = ("commit", "versions", "model", "processor", "cores")
"""Facts that runs must share to be in one record."""
_PACKAGES = ("turnwise", "torch", "onnxruntime", "faiss-cpu", "redis")


class Rows(list[dict[str, Any]]):
    """The rows of a run; each is printed when it is added."""

    def add(self, **row: object) -> None:
        rounded = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in row.items()
        }
        self.append(rounded)
        print("  ".join(f"{name}={value}" for name, value in self[-1].items()), flush=True)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="a run of seconds, to check the program")
    parser.add_argument("--out", type=Path, help="file to write the record to, as JSON")
    return parser


def run(
    parser: argparse.ArgumentParser,
    toy: Mapping[str, object],
    measure: Callable[[argparse.Namespace], Rows],
    *,
    joined_by: Sequence[str] = (),
) -> None:
    """Run a benchmark with the options of the command line.

    Args:
        parser: The options.
        toy: The defaults of `--toy`.
        measure: The benchmark.
        joined_by: Fields of a row. With them, a record keeps the rows that it has from earlier
            runs, unless a new row has the same values in these fields.
    """
    # As Ctrl-C does, so that what the benchmark has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if parser.parse_known_args()[0].toy:
        parser.set_defaults(**toy)
    options = parser.parse_args()
    about = machine()
    begin = time.monotonic()
    before = _earlier_record(options.out, about) if joined_by and options.out else {}
    rows = measure(options)
    if options.out:
        given = {name: value for name, value in vars(options).items() if name != "out"}
        record = {
            "benchmark": Path(sys.argv[0]).stem,
            **about,
            "options": given,
            "seconds": round(time.monotonic() - begin, 1),
            "rows": rows,
        }
        write(options.out, _joined(before, record, joined_by) if before else record)


def _earlier_record(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Return the record that new rows are added to, if there is one."""
    if not path.exists():
        return {}
    before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if differ := [name for name in SAME if before[name] != about[name]]:
        raise SystemExit(f"{path} is of another {', '.join(differ)}: name another file")
    return before


def _joined(before: dict[str, Any], record: dict[str, Any], by: Sequence[str]) -> dict[str, Any]:
    """Return a record with the rows of an earlier one, and with the options that both share."""
    fresh = [[row[name] for name in by] for row in record["rows"]]
    kept = [row for row in before["rows"] if [row[name] for name in by] not in fresh]
    earlier = before["options"]
    options = json.loads(_text(record["options"]))
    return record | {
        "options": {name: value for name, value in options.items() if earlier.get(name) == value},
        "seconds": before["seconds"] + record["seconds"],
        "rows": kept + record["rows"],
    }


def write(path: Path, value: object) -> None:
    """Write JSON, with an object on one line if it contains no other object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _text(value)
    text = re.sub(r"\{[^{}]*\}", lambda found: re.sub(r"\s*\n\s*", " ", found[0]), text)
    path.write_text(text + "\n", encoding="utf-8")


def _text(value: object) -> str:
    return json.dumps(value, indent=1, default=_relative)


def _relative(value: object) -> str:
    """Return a path relative to the repository, or the name of what is elsewhere."""
    path = str(value).removeprefix(f"{ROOT}/")
    return Path(path).name if path.startswith("/") else path


def machine() -> dict[str, Any]:
    """Return the facts of a run: date, commit, versions, model, processor, cores, load."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _output("git", "describe", "--always", "--dirty", "--exclude=*"),
        "versions": {"python": platform.python_version()}
        | {name.removesuffix("-cpu"): version(name) for name in _PACKAGES},
        "model": Path(Settings().model).name,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.M)
    name = found[1] if found else platform.processor()
    return f"{name}, VNNI" if multiplies_bytes() else name  # then the default model is in 8 bits


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository
        return "unknown"
    return done.stdout.strip()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Tell on stderr when a long phase begins and ends."""
    begin = time.monotonic()
    print(f"{time.strftime('%T')} {name} ...", file=sys.stderr, flush=True)
    yield
    took = time.monotonic() - begin
    print(f"{time.strftime('%T')} {name}: {took:.1f} s", file=sys.stderr, flush=True)


def taken(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile; 0 where there are no values."""
    ordered = sorted(values) or [0.0]
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

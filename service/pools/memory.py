"""How much memory is left: Linux lends more than it has, and kills who then uses it."""

import math
import re
from pathlib import Path

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def available() -> float:
    """Return the bytes that this process may still take; infinity where nothing tells."""
    return min(_of_machine(), _of_container())


def _of_machine() -> float:
    return 1024 * _number(MEMINFO, r"^MemAvailable:\s+(\d+)")


def _of_container() -> float:
    """Return what the limit leaves; a cache of files, which can be dropped, is not taken."""
    taken = _number(CGROUP / "memory.current", r"^(\d+)")
    cached = _number(CGROUP / "memory.stat", r"^inactive_file (\d+)")
    left = _number(CGROUP / "memory.max", r"^(\d+)") - taken + cached
    return math.inf if math.isnan(left) else left


def _number(path: Path, pattern: str) -> float:
    """Return what a file tells; infinity where it does not."""
    try:
        found = re.search(pattern, path.read_text(encoding="utf-8"), re.M)
    except OSError:
        return math.inf
    return float(found[1]) if found else math.inf

"""How much memory is free, and whether an edit, a fold or an index of a pool may take it."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from turnwise.service.errors import NotEnoughMemory

T = TypeVar("T")

SPARE = 64 << 20
"""Bytes that stay free for everything that does not ask, such as turns."""

_BYTES_BETWEEN_CHECKS = 1 << 20
"""Bytes of items after which the free memory is looked at again."""

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


class Admission:
    """Memory that is promised to a piece of work, and that the work does not use yet."""

    def __init__(self, memory: "Memory", work: str) -> None:
        self._memory = memory
        self._work = work
        self.unused = 0
        """Bytes that are promised and not used yet."""

    def promise(self, needed: int) -> None:
        """Promise more memory.

        Raises:
            NotEnoughMemory: Less is free.
        """
        free = self._memory.free
        if needed > free:
            raise NotEnoughMemory(
                f"{self._work} needs {math.ceil(needed / 2**20)} MB of memory, but "
                f"{max(free, 0) / 2**20:.0f} MB are free"
            )
        self.unused += needed

    def use(self, size: int) -> None:
        """Count promised memory as used; promise what is missing.

        Work that finds out as it goes how much memory it takes calls this after each part, so that
        a wrong estimate ends it before the process is killed.

        Raises:
            NotEnoughMemory: The promise was too small, and less than what is missing is free.
        """
        self.promise(max(0, size - self.unused))
        self.unused -= size

    def count(self, items: Iterable[T], measure: Callable[[T], int]) -> Iterator[T]:
        """Yield items, and count the bytes that they take as used.

        Raises:
            NotEnoughMemory: They do not fit.
        """
        size = 0
        for item in items:
            size += measure(item)
            if size > _BYTES_BETWEEN_CHECKS:
                self.use(size)
                size = 0
            yield item


class Memory:
    """Admits uploads, reads, folds and index builds; the only place that decides about memory.

    Linux overcommits memory and kills the process that uses too much, so work asks first.
    """

    def __init__(self) -> None:
        self._admissions: list[Admission] = []

    @property
    def free(self) -> float:
        """Bytes that are neither in use nor promised; infinity if unknown."""
        promised = sum(admission.unused for admission in self._admissions)
        return available_memory() - promised - SPARE

    @contextmanager
    def admitted(self, needed: int, work: str) -> Iterator[Admission]:
        """Promise memory to the work of the block.

        Memory that the work takes without calling `use` counts twice until the block ends: as used
        and as promised. So other work may be rejected although there is room. It is never admitted
        where there is none.

        Args:
            needed: Bytes that the work takes at most.
            work: What the error calls it.

        Raises:
            NotEnoughMemory: Less is free.
        """
        admission = Admission(self, work)
        admission.promise(needed)
        self._admissions.append(admission)
        try:
            yield admission
        finally:
            self._admissions.remove(admission)


def available_memory() -> float:
    """Return the bytes of memory that this process may still take; infinity if unknown."""
    machine = 1024 * _read_number(MEMINFO, r"^MemAvailable:\s+(\d+)")
    return min(machine, _container_memory())


def _container_memory() -> float:
    """Return the bytes left below the container's limit; the page cache counts as free."""
    limit = _read_number(CGROUP / "memory.max", r"^(\d+)")
    used = _read_number(CGROUP / "memory.current", r"^(\d+)")
    active_cache = _read_number(CGROUP / "memory.stat", r"^active_file (\d+)")
    inactive_cache = _read_number(CGROUP / "memory.stat", r"^inactive_file (\d+)")
    left = limit - used + active_cache + inactive_cache
    return math.inf if math.isnan(left) else left  # infinity minus infinity


def _read_number(path: Path, pattern: str) -> float:
    """Return the first number that matches in a file; infinity if there is none."""
    try:
        found = re.search(pattern, path.read_text(encoding="utf-8"), re.M)
    except OSError:
        return math.inf
    return float(found[1]) if found else math.inf

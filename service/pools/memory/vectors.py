"""Memory for the vectors of pools: a large array is in a temporary file that the kernel caches.

The file has no name, so nothing is left of it when the process ends. If memory is short, the kernel
drops rows from its cache, and reads them from the disk when a search needs them: an approximate
search needs few. A small array is in memory, because exact search reads all of it.
"""

import logging
import mmap
import os
import sys
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile, gettempdir

import numpy as np
from numpy.typing import NDArray

LARGE = 64 << 20
"""Bytes from which an array is in a file: 87,000 vectors of the default model. Search is exact up
to 50,000 by default."""
MOUNTS = Path("/proc/self/mountinfo")

_log = logging.getLogger("turnwise.pools")


def empty_vectors(count: int, dimension: int) -> NDArray[np.float16]:
    """Return an array (n, d) to fill, which is in a file if it is large and the disk has room."""
    size = 2 * count * dimension
    if _fits_in_file(size):
        try:
            return np.frombuffer(_map_file(size), np.float16).reshape(count, dimension)
        except OSError as error:
            _log.warning("pools: %d MB of vectors are not in a file: %s", size >> 20, error)
    return np.empty((count, dimension), np.float16)


def count_memory(count: int, dimension: int) -> int:
    """Return the bytes of memory that `empty_vectors` takes, without what is in a file."""
    size = 2 * count * dimension
    return 0 if _fits_in_file(size) else size


def _fits_in_file(size: int) -> bool:
    if size < LARGE or sys.platform != "linux":
        return False
    try:
        folder = Path(gettempdir())
        return not _is_in_memory(folder) and disk_usage(folder).free > size
    except OSError:  # no folder can be written to
        return False


def _is_in_memory(folder: Path) -> bool:
    """Return whether the files of a folder take memory, as those of a tmpfs do."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = (line.split() for line in MOUNTS.read_text(encoding="utf-8").splitlines())
    return any(mount[2] == number and mount[mount.index("-") + 1] == "tmpfs" for mount in mounts)


def _map_file(size: int) -> mmap.mmap:
    """Return a new file of this size without a name, mapped into memory.

    Raises:
        OSError: The disk has no room for it.
    """
    with TemporaryFile() as file:
        # Without room on the disk, a write to the mapped memory would end the process.
        os.posix_fallocate(file.fileno(), 0, size)
        mapped = mmap.mmap(file.fileno(), size)
    mapped.madvise(mmap.MADV_RANDOM)  # a search reads single rows, not their neighbours
    return mapped

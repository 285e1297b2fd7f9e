"""The processors that this process may use."""

import os
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import joblib

_VNNI = {"avx512_vnni", "avx_vnni"}


def usable_cores() -> int:
    """Return the number of cores that this process can keep busy, at least one.

    OMP_NUM_THREADS limits it, and so does the CPU quota of a container: more threads would wait for
    each other.
    """
    cores: int = joblib.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdecimal():
        cores = min(cores, int(limit))
    return max(cores, 1)


@cache
def multiplies_bytes() -> bool:
    """Return whether the processor has instructions for products of 8 bits (VNNI).

    Without them the products are slow, and some processors round their sums.
    """
    with suppress(OSError):  # other systems than Linux
        return not _VNNI.isdisjoint(Path("/proc/cpuinfo").read_text("utf-8").split())
    return False


def has_gpu() -> bool:
    """Return whether torch is installed and finds a GPU."""
    if find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415 - takes seconds

    return torch.cuda.is_available()

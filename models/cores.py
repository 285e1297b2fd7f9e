"""The processors that this process may use."""

import os
from importlib.util import find_spec

import joblib


def usable_cores() -> int:
    """Return the number of cores that this process can keep busy, at least one.

    OMP_NUM_THREADS limits it, and so does the CPU quota of a container: more threads would wait for
    each other.
    """
    cores: int = joblib.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(min(cores, int(asked)) if asked.isdecimal() else cores, 1)


def has_gpu() -> bool:
    """Return whether torch is installed and finds a GPU."""
    if find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415 - takes seconds

    return torch.cuda.is_available()

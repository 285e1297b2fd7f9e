"""Checks of folders that a command will write to and that may not exist yet."""

import os
from pathlib import Path


def nearest(path: Path) -> Path:
    """Return the path if it exists, else its nearest parent that exists."""
    whole = path.absolute()
    return next(part for part in (whole, *whole.parents) if part.exists())


def writable(path: Path) -> bool:
    """Return whether a path is a writable folder."""
    return path.is_dir() and os.access(path, os.W_OK)

"""Folders that will be written to, but need not be there yet."""

import os
from pathlib import Path


def nearest(path: Path) -> Path:
    """Return a path if something is there, else the nearest above it where something is."""
    whole = path.absolute()
    return next(part for part in (whole, *whole.parents) if part.exists())


def writable(path: Path) -> bool:
    """Return whether something is a folder that can be written to."""
    return path.is_dir() and os.access(path, os.W_OK)

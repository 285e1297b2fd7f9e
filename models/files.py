"""Files and folders that are written whole or not at all.

Each function writes next to the target and renames at the end, so a reader sees the earlier
contents or the complete new ones. An exception leaves the target as it was. A killed process may
leave a folder `.new-*`, which `remove_leftovers` deletes.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SCRATCH = ".new-"
_OLD = ".old"


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield the path of a file to write, which replaces `path` when the block succeeds.

    The file keeps the permissions of the one that it replaces. A link stays a link. A path to
    anything but a file, such as `/dev/stdout`, is yielded unchanged.

    Raises:
        OSError: The file cannot be written.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    with _scratch(path) as fresh:
        yield fresh
        if path.exists():
            shutil.copymode(path, fresh)
        with fresh.open("rb") as written:
            os.fsync(written.fileno())
        fresh.replace(path)


@contextmanager
def create_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which is named `folder` when the block succeeds.

    Everybody who may read the folder may read its files.

    Raises:
        OSError: The folder cannot be written, or `folder` exists by then and is not empty.
    """
    with _scratch(folder) as fresh:
        fresh.mkdir()
        yield fresh
        mode = fresh.stat().st_mode & 0o666
        for file in fresh.rglob("*"):
            if file.is_file():  # safetensors gives other users no access
                file.chmod(mode)
        fresh.rename(folder)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `folder` when the block succeeds.

    An interruption at any point leaves a complete folder, which `recover_folder` puts back in
    place. Only one process may write the folder.

    Raises:
        OSError: The folder cannot be written.
    """
    recover_folder(folder)
    remove_leftovers(folder.parent, folder.name)
    old = _old(folder)
    with create_folder(folder) as fresh:
        yield fresh
        if folder.exists():
            folder.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Restore a folder after an interruption of `replace_folder`."""
    old = _old(folder)
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(folder)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Delete what killed processes left in a folder; no other process may be writing there.

    Args:
        folder: The folder of the targets.
        name: Name of the target; None for all.
    """
    for scratch in folder.glob(f"{_SCRATCH}*"):
        if name is None or (scratch / name).exists():
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """Yield a path of the same name in a temporary folder, on the file system of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=_SCRATCH) as scratch:
        yield Path(scratch) / path.name


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + _OLD)

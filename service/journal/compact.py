"""Removes the lines of deleted sessions from the files."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnwise.service.journal.files import Deletions, all_lines, files_of, read_lines

_PART = ".part"
"""Ending of a file that is not complete: no reader takes it for one of the journal."""


@dataclass(slots=True)
class Compacted:
    """What a compaction did."""

    lines: int = 0
    """Lines removed."""
    files: int = 0
    """Files that they were removed from."""
    busy: int = 0
    """Files that hold such lines and that a replica still writes."""


def remove_deleted(folders: Iterable[Path]) -> Compacted:
    """Remove the lines of deleted sessions; the lines that say so stay.

    An interrupted compaction leaves each file either unchanged or compacted. Files that a replica
    still writes do not change. Lines that this release cannot read stay.

    Raises:
        DataError: A folder holds no journal.
        OSError: A file cannot be written.
    """
    files, done = files_of(folders := [*folders]), Compacted()
    for folder in folders:
        for part in folder.glob(f"*{_PART}"):  # of an interrupted compaction
            part.unlink()
    deletions = Deletions(line for file in files for line, _ in read_lines(file))
    for file in files:
        removed = sum(line in deletions for line, _ in read_lines(file))
        if not removed:
            continue
        with _unless_written(file) as free:
            if free:
                _write(file, (raw for line, raw in all_lines(file) if line not in deletions))
                done.lines, done.files = done.lines + removed, done.files + 1
            else:
                done.busy += 1
    return done


@contextmanager
def _unless_written(file: Path) -> Iterator[bool]:
    """Yield whether no replica writes a file; a writer holds its lock until it closes the file."""
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _write(file: Path, lines: Iterable[bytes]) -> None:
    part = file.with_name(file.name + _PART)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.writelines(lines)
        opened.flush()
        os.fsync(opened.fileno())
    part.replace(file)

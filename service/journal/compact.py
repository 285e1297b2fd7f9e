"""Removes the lines of deleted sessions from the files."""

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnwise.models.files import remove_leftovers, replace_file
from turnwise.service.journal.files import Deletions, list_files, read_all_lines, read_lines


@dataclass(slots=True)
class Compacted:
    """The result of a compaction."""

    lines: int = 0
    """Lines removed."""
    files: int = 0
    """Files that changed."""
    busy: int = 0
    """Files that did not change, because a replica still writes them."""


def remove_deleted(folders: Iterable[Path]) -> Compacted:
    """Remove the lines of deleted sessions, and keep the lines that record the deletions.

    An interrupted compaction leaves each file either unchanged or compacted. Files that a replica
    still writes do not change. Lines that this release cannot read stay.

    Raises:
        DataError: A folder holds no journal.
        OSError: A file cannot be written.
    """
    folders = list(folders)
    files = list_files(folders)
    for folder in folders:
        remove_leftovers(folder)
    deletions = Deletions(line for file in files for line, _ in read_lines(file))
    done = Compacted()
    for file in files:
        removed = sum(line in deletions for line, _ in read_lines(file))
        if not removed:
            continue
        with _lock_if_closed(file) as is_free:
            if not is_free:
                done.busy += 1
                continue
            with replace_file(file) as fresh, fresh.open("wb") as opened:
                opened.writelines(
                    raw for line, raw in read_all_lines(file) if line not in deletions
                )
            done.lines += removed
            done.files += 1
    return done


@contextmanager
def _lock_if_closed(file: Path) -> Iterator[bool]:
    """Yield True with the file locked; False if a replica still writes it and has the lock."""
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True

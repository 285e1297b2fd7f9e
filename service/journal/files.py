"""The files of all replicas, read when they are joined or compacted."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from turnwise.models.errors import DataError
from turnwise.service.journal.lines import DeletionLine, Line, parse

_log = logging.getLogger("turnwise.journal")


def list_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files of some folders; those of each folder are in order, the oldest first.

    Raises:
        DataError: A folder does not exist, or holds no journal.
    """
    found: list[Path] = []
    for folder in folders:
        files = sorted(folder.glob("*.jsonl"))
        if not files:
            raise DataError("no journal in it", str(folder))
        found += files
    return found


def read_lines(file: Path) -> Iterator[tuple[Line, bytes]]:
    """Yield the valid lines of a file, each parsed and as raw bytes."""
    return ((line, raw) for line, raw in read_all_lines(file) if line)


def read_all_lines(file: Path) -> Iterator[tuple[Line | None, bytes]]:
    """Yield the lines of a file, each parsed and as raw bytes.

    It skips a last line that a crash cut off. For any other invalid line, which a later release may
    have written, it logs a warning and yields None.
    """
    with file.open("rb") as opened:
        for number, raw in enumerate(opened, start=1):
            try:
                line = parse(raw)
            except ValueError:
                if not raw.endswith(b"\n"):
                    return
                _log.warning("%s, line %d: not a line of a journal", file, number)
                line = None
            yield line, raw


class Deletions:
    """Deleted sessions. `line in deletions` says whether its session was deleted after the line."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._sessions: dict[tuple[str, str], int] = {}
        self._prefixes: dict[tuple[str, str], int] = {}
        for line in lines:
            if isinstance(line, DeletionLine):
                known = self._prefixes if line.session is None else self._sessions
                key = line.namespace, line.session or line.prefix or ""
                known[key] = max(known.get(key, 0), line.version)
        self._lengths = {len(prefix) for _, prefix in self._prefixes}

    def __contains__(self, line: Line | None) -> bool:
        if line is None or isinstance(line, DeletionLine):
            return False
        if line.version <= self._sessions.get((line.namespace, line.session), 0):
            return True
        prefixes = (line.session[:length] for length in self._lengths)
        return any(
            line.version <= self._prefixes.get((line.namespace, prefix), 0) for prefix in prefixes
        )

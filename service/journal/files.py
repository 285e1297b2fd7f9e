"""The files of all replicas, read when they are joined or compacted."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from turnwise.models.errors import DataError
from turnwise.service.journal.lines import DeletionLine, Line, parse

_log = logging.getLogger("turnwise.journal")


def files_of(folders: Iterable[Path]) -> list[Path]:
    """Return the files of some folders, each folder's from the oldest on.

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
    """Yield the lines of a file, parsed and as they stand.

    It skips a last line that a crash cut off, and with a warning every other invalid line.
    """
    with file.open("rb") as opened:
        for number, raw in enumerate(opened, start=1):
            try:
                yield parse(raw), raw
            except ValueError:
                if raw.endswith(b"\n"):
                    _log.warning("%s, line %d: not a line of a journal", file, number)


class Deletions:
    """The lines of deleted sessions: `line in deletions` if its session was deleted after it."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._sessions: dict[tuple[str, str], int] = {}
        self._prefixes: dict[tuple[str, str], int] = {}
        for line in lines:
            if isinstance(line, DeletionLine):
                known = self._prefixes if line.session is None else self._sessions
                key = line.namespace, line.session or line.prefix or ""
                known[key] = max(known.get(key, 0), line.version)

    def __contains__(self, line: Line) -> bool:
        if isinstance(line, DeletionLine):
            return False
        if line.version <= self._sessions.get((line.namespace, line.session), 0):
            return True
        return any(
            line.version <= version
            for (namespace, prefix), version in self._prefixes.items()
            if namespace == line.namespace and line.session.startswith(prefix)
        )

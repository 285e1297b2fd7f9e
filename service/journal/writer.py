"""Writes the lines of one replica: a thread behind a bounded queue, and the files it rotates.

No request waits for a line. A line that cannot be written is lost and counted; the turn is kept.
"""

import fcntl
import logging
import os
import re
import socket
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread
from time import monotonic

from turnwise.service.journal.lines import FeedbackLine, Line, TurnLine, dump
from turnwise.service.observe.metrics import Metrics, Unwritten
from turnwise.service.redaction import Hook, redact_text
from turnwise.service.settings import SettingsError

FILE_BYTES = 64 << 20
"""Size at which a file is closed and the next one begins."""
FILE_SECONDS = 3600.0
"""Age at which a file is closed, so that `journal compact` can change it."""
_PATIENCE = 5.0
"""Seconds that the last lines may take when the service stops."""

_log = logging.getLogger("turnwise.journal")


class Journal:
    """Takes lines from the event loop and writes them, in their order, in a thread of its own."""

    def __init__(
        self, folder: Path, metrics: Metrics, redact: Hook | None = None, *, queued: int = 10_000
    ) -> None:
        """Begin to write into a folder, which is made if it does not exist.

        Args:
            folder: The folder.
            metrics: Counts the lines that are written, and those that are lost.
            redact: Changes every text before it is written.
            queued: Lines that may wait for the disk. The default is some 20 MB.

        Raises:
            SettingsError: The folder cannot be written to.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"TURNWISE_JOURNAL: {error}") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise SettingsError(f"TURNWISE_JOURNAL '{folder}' is not a writable folder")
        self._files = _Files(folder)
        self._metrics = metrics
        self._redact = redact
        self._failing = False
        self._queue: Queue[tuple[Context, Line] | None] = Queue(queued)
        self._thread = Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        """Queue a line; return at once."""
        try:
            self._queue.put_nowait((copy_context(), line))  # for the ids in log lines
        except Full:
            self._count_lost("queue_full")

    def close(self) -> None:
        """Write the waiting lines and close the file; give up after seconds if the disk hangs."""
        with suppress(Full):
            self._queue.put(None, timeout=_PATIENCE)
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=self._files.seconds_left)
            except Empty:
                self._files.close()
                continue
            if item is None:
                self._files.close()
                return
            context, line = item
            context.run(self._write, line)

    def _write(self, line: Line) -> None:
        try:
            data = dump(_redact_line(line, self._redact) if self._redact else line)
        except Exception as error:  # whatever the hook raises, only this line is lost
            _log.error("the redaction hook failed, a line of the journal is lost", exc_info=error)
            self._count_lost("not_redacted")
            return
        try:
            self._files.append(data)
        except OSError as error:
            if not self._failing:
                _log.error("the journal cannot be written, its lines are lost: %s", error)
            self._failing = True
            self._count_lost("disk")
            return
        if self._failing:
            _log.warning("the journal can be written again")
        self._failing = False
        self._metrics.journal_lines.inc()

    def _count_lost(self, reason: Unwritten) -> None:
        self._metrics.journal_lines_lost.labels(reason).inc()


def _redact_line(line: Line, hook: Hook) -> Line:
    """Return a line whose texts the hook has redacted; raises as `redact_text` does."""
    match line:
        case TurnLine():
            offered = [
                each.model_copy(update={"text": redact_text(each.text, hook)})
                for each in line.offered
            ]
            text = redact_text(line.text, hook)
            return line.model_copy(update={"text": text, "offered": offered})
        case FeedbackLine(text=str(text)):
            return line.model_copy(update={"text": redact_text(text, hook)})
    return line


class _Files:
    """The current file; a new one replaces it when it is large or old."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Letters that every file system takes; the process, as replicas may share a host.
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())
        self._replica = f"{host}-{os.getpid()}"
        self._file: int | None = None
        self._size = 0
        self._end = 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the file is so old that it is closed; None where none is open."""
        return None if self._file is None else max(self._end - monotonic(), 0.0)

    def append(self, data: bytes) -> None:
        """Write a line as a whole, or not at all.

        Raises:
            OSError: It cannot be written.
        """
        if self._size + len(data) > FILE_BYTES or self.seconds_left == 0:
            self.close()
        file = self._open() if self._file is None else self._file
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            self._forget_part(file)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Close the file, if one is open; the next line begins another."""
        file = self._file
        self._file = None
        self._size = 0
        if file is None:
            return
        try:
            os.close(file)
        except OSError as error:  # NFS and quotas may report a failed write only here
            _log.error("the last lines of a file of the journal may be lost: %s", error)

    def _open(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        path = self._folder / f"{now}-{self._replica}.jsonl"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        with suppress(OSError):  # without locks, `compact` touches no file
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed: `compact` leaves it alone
        self._file = file
        self._size = 0
        self._end = monotonic() + FILE_SECONDS
        return file

    def _forget_part(self, file: int) -> None:
        """Remove the part of a line that a failed write left behind."""
        try:
            os.ftruncate(file, self._size)
        except OSError:
            self.close()  # the torn line stays the last one

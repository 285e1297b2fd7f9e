"""Lines that the disk does not take: each is lost alone, and counted."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.waiting import PATIENCE
from turnwise.service.journal import DeletionLine, Journal, UndoLine, writer
from turnwise.service.journal.files import read_lines
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import SettingsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def line_of(turn: int) -> UndoLine:
    return UndoLine(at=turn, namespace="n", session="s", version=turn, turn=turn)


def write_turns(journal: Journal, *turns: int) -> None:
    for turn in turns:
        journal.write(line_of(turn))
    journal.close()


def turns_in(folder: Path) -> list[list[int]]:
    """The turns of the lines of each file."""
    return [
        [line.turn for line, _ in read_lines(file) if not isinstance(line, DeletionLine)]
        for file in sorted(folder.iterdir())
    ]


def lost(metrics: Metrics, reason: str) -> float | None:
    labels = {"reason": reason}
    return metrics.registry.get_sample_value("turnwise_journal_lines_lost_total", labels)


def test_a_disk_that_hangs_costs_the_lines_that_find_no_room_in_the_queue(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    goes_on = threading.Event()

    def write(file: int, data: memoryview) -> int:
        hangs.set()
        assert goes_on.wait(PATIENCE)
        return os.write(file, data)

    monkeypatch.setattr(writer, "os", SimpleNamespace(**vars(os) | {"write": write}))
    metrics = Metrics()
    journal = Journal(folder, metrics, queued=2)
    journal.write(line_of(1))
    assert hangs.wait(PATIENCE)
    for turn in (2, 3, 4, 5):
        journal.write(line_of(turn))
    assert lost(metrics, "queue_full") == 2
    goes_on.set()
    journal.close()
    assert turns_in(folder) == [[1, 2, 3]]


@pytest.mark.parametrize("shortens", [True, False])
def test_a_line_that_is_written_in_part_spoils_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, shortens: bool
) -> None:
    """The disk is full in the middle of the second line, and may not even shorten its file."""

    def write(file: int, data: memoryview) -> int:
        line = bytes(data)
        if not line.startswith(b"{"):  # the rest of one
            raise OSError(errno.ENOSPC, "no space left")
        return os.write(file, line[:30] if line.startswith(b'{"at":2.0') else line)

    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    system = {**vars(os), "write": write} | ({} if shortens else {"ftruncate": fail})
    monkeypatch.setattr(writer, "os", SimpleNamespace(**system))
    metrics = Metrics()
    write_turns(Journal(folder, metrics), 1, 2, 3)
    assert turns_in(folder) == ([[1, 3]] if shortens else [[1], [3]])
    assert metrics.registry.get_sample_value("turnwise_journal_lines_total") == 2
    assert lost(metrics, "disk") == 1


def test_a_file_that_cannot_be_closed_costs_no_later_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[int] = []

    def close(file: int) -> None:
        closed.append(file)
        os.close(file)
        raise OSError(errno.EDQUOT, "quota exceeded")  # as NFS does, which has closed it

    monkeypatch.setattr(writer, "os", SimpleNamespace(**vars(os) | {"close": close}))
    monkeypatch.setattr(writer, "FILE_BYTES", 1)
    write_turns(Journal(folder, Metrics()), 1, 2, 3)
    assert turns_in(folder) == [[1], [2], [3]]
    assert len(closed) == caplog.text.count("quota exceeded") == 3


FULL_DISK = """
import resource, sys
from pathlib import Path
from turnwise.service.journal import Journal, UndoLine
from turnwise.service.observe.metrics import Metrics

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
metrics = Metrics()
journal = Journal(Path(sys.argv[1]), metrics)
for turn in range(20):
    # Lines of the same length: after one that does not fit, no other fits.
    journal.write(UndoLine(at=1.0, namespace="n", session="s", version=10 + turn, turn=10 + turn))
journal.close()
value = metrics.registry.get_sample_value
print(int(value("turnwise_journal_lines_total")),
      int(value("turnwise_journal_lines_lost_total", {"reason": "disk"})))
"""


def test_a_full_disk_leaves_whole_lines(folder: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    written, unwritten = map(int, ended.stdout.split())
    (file,) = folder.iterdir()
    assert (written + unwritten, len(turns_in(folder)[0])) == (20, written)
    assert 0 < written < 20
    assert file.read_text().endswith("}\n")
    assert ended.stderr.count("the journal cannot be written") == 1


def test_a_folder_that_only_others_may_write_to_fails_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def access(path: Path, mode: int) -> bool:
        """As for anybody but root, who may write everywhere."""
        return path.stat().st_mode >> 6 & mode == mode

    monkeypatch.setattr(writer, "os", SimpleNamespace(**vars(os) | {"access": access}))
    folder.mkdir(mode=0o500)
    with pytest.raises(SettingsError, match=f"TURNWISE_JOURNAL '{folder}' is not a writable"):
        Journal(folder, Metrics())
    folder.chmod(0o700)
    Journal(folder, Metrics()).close()

"""Where the vectors of pools are: in memory, or in a temporary file."""

import os
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from turnwise.service.pools.memory import vectors
from turnwise.service.pools.memory.flat import gather
from turnwise.service.pools.memory.vectors import LARGE, count_memory, empty_vectors

D = 512
MANY = LARGE // (2 * D)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, which is on a disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(vectors, "MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text("1 2 0:0 / / rw - ext4 /dev/sda rw\n", encoding="utf-8")
    return tmp_path


def measure_memory(count: int) -> int:
    """Return the bytes of memory that an array takes, rounded down to megabytes."""
    tracemalloc.start()
    array = empty_vectors(count, D)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert array.shape == (count, D)
    return size >> 20 << 20


@pytest.mark.parametrize(("count", "memory"), [(MANY, 0), (MANY - 1024, LARGE - (1 << 20))])
def test_only_a_large_array_is_in_a_file(count: int, memory: int) -> None:
    assert measure_memory(count) == count_memory(count, D) == memory


def test_vectors_are_in_memory_if_temporary_files_are(folder: Path) -> None:
    device = folder.stat().st_dev
    mount = f"1 2 {os.major(device)}:{os.minor(device)} / /tmp rw shared:1 - tmpfs tmpfs rw\n"
    (folder / "mounts").write_text(mount, encoding="utf-8")
    assert measure_memory(MANY) == count_memory(MANY, D) == LARGE


def test_vectors_are_in_memory_if_the_disk_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": LARGE})
    monkeypatch.setattr(vectors, "disk_usage", lambda _: usage)
    assert measure_memory(MANY) == count_memory(MANY, D) == LARGE


def test_vectors_are_in_memory_if_no_folder_can_be_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(vectors, "gettempdir", fail)
    assert measure_memory(MANY) == count_memory(MANY, D) == LARGE


def test_vectors_are_in_memory_if_the_disk_becomes_full(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    assert measure_memory(MANY) == LARGE
    assert "64 MB of vectors are not in a file: [Errno 28] No space left" in caplog.text


def test_gathered_vectors_are_the_same_in_a_file(folder: Path) -> None:
    few = np.arange(4 * D).astype(np.float16).reshape(4, D)
    indices = np.arange(MANY) % 4
    gathered = gather([(few, indices), (few, [3])])
    assert count_memory(len(gathered), D) == 0
    assert gathered[:-1].reshape(-1, 4, D).min(axis=0).tolist() == few.tolist()
    assert gathered[:-1].reshape(-1, 4, D).max(axis=0).tolist() == few.tolist()
    assert gathered[-1].tolist() == few[3].tolist()
    assert [path.name for path in folder.iterdir()] == ["mounts"]

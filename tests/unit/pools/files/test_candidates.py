"""Files of candidates within the limits of uploads."""

import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import write_lines
from turnwise.models.errors import DataError
from turnwise.service.errors import NotEnoughMemory
from turnwise.service.pools import Candidate, read_candidates
from turnwise.service.pools.files.stored import read_stored_candidates
from turnwise.service.pools.memory import free_memory

ReadFile = Callable[[Path, int], list[Candidate]]


def read_stored(path: Path, most: int) -> list[Candidate]:
    return list(read_stored_candidates(path, most))


each_reader = pytest.mark.parametrize("read", [read_candidates, read_stored])
"""Runs a test for files of teams, and for those that the service wrote."""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "x" * 2001}, "2001 characters are more than the limit of 2000"),
        ({"metadata": {"a": "x" * 4090}}, "4099 bytes are more than the limit of 4096"),
        ({"examples": ["x" * 2001]}, "at most 2000 characters"),
    ],
)
@each_reader
def test_a_file_obeys_the_limits_of_uploads(
    tmp_path: Path, read: ReadFile, fields: dict[str, Any], message: str
) -> None:
    path = write_lines(tmp_path / "replies.jsonl", {"text": "One."}, {"text": "Two."} | fields)
    with pytest.raises(DataError, match=rf"replies\.jsonl, line 3.*{message}"):
        read(path, 10)


@each_reader
def test_a_file_may_not_have_more_candidates_than_a_pool(tmp_path: Path, read: ReadFile) -> None:
    path = write_lines(tmp_path / "replies.jsonl", {"text": "One."}, {"text": "Two."})
    assert len(read(path, 2)) == 2
    with pytest.raises(DataError, match="line 3: more candidates than the limit of 1"):
        read(path, 1)


@each_reader
def test_a_file_that_expands_without_bound_is_not_held_in_memory(
    tmp_path: Path, read: ReadFile
) -> None:
    path = tmp_path / "replies.jsonl.xz"
    with lzma.open(path, "wb", preset=0) as file:
        for _ in range(64):
            file.write(b" " * (1 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match="line 1: more than 4194304 characters"):
        read(path, 10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 << 20


def test_reading_stops_before_the_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 66000 kB\n")
    monkeypatch.setattr(free_memory, "MEMINFO", meminfo)
    texts = (f"{n} {'x' * 1900}" for n in range(1000))
    path = write_lines(tmp_path / "replies.jsonl", *({"text": text} for text in texts))
    with pytest.raises(NotEnoughMemory, match=r"reading .*replies\.jsonl needs"):
        read_candidates(path, 1000)

"""Candidates in the files of snapshots."""

import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import write_lines
from turnwise.models.errors import DataError
from turnwise.service.errors import NotEnoughMemory
from turnwise.service.pools import Candidate
from turnwise.service.pools.files.stored import read_stored_candidates
from turnwise.service.pools.memory import free_memory


def test_candidates_are_read_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"id": "a", "text": "One.", "metadata": {"tag": 1}}\n\n{"text": " Two. "}\n')
    assert read_stored_candidates(path, 10) == [
        Candidate.of("One.", "a", {"tag": 1}),
        Candidate.of("Two."),
    ]


def test_metadata_nests_as_deep_as_every_answer_can_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    deep = '{"a":' * 50 + "[" * 50 + "1" + "]" * 50 + "}" * 50
    path.write_text(f'{{"text": "One.", "metadata": {deep}}}')
    assert len(read_stored_candidates(path, 10)) == 1
    path.write_text(f'{{"text": "One.", "metadata": {{"a": {deep}}}}}')
    with pytest.raises(DataError, match=r'"metadata".*limit of 100 levels'):
        read_stored_candidates(path, 10)


@pytest.mark.parametrize(
    "line", ['{"id": "a"}', '{"text": " "}', '{"text": "x", "metadata": []}', "[]"]
)
def test_a_line_that_is_no_candidate_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"text": "One."}\n' + line)
    with pytest.raises(DataError, match=r"replies\.jsonl.*2"):
        read_stored_candidates(path, 10)


def test_two_candidates_of_one_id_are_told_with_the_name_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"id": "a", "text": "One."}\n' * 2)
    assert len(read_stored_candidates(path, 10)) == 2
    path.write_text('{"id": "a", "text": "One."}\n{"id": "a", "text": "Two."}\n')
    with pytest.raises(DataError, match=r"replies\.jsonl: 'a' is the id of candidates 0 and 1"):
        read_stored_candidates(path, 10)


def test_an_example_counts_once_among_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_text('{"text": "Nine.", "examples": ["When?", " When? "], "group": "hours"}\n')
    (read,) = read_stored_candidates(file, 10)
    assert (read.examples, read.group) == (("When?",), "hours")
    assert read.bytes == len(read.id) + len("Nine.") + len("When?") + len("hours")


@pytest.mark.parametrize(
    "fields",
    ['"examples": "When?"', '"examples": [""]', '"group": ""', '"group": "a\\nb"', '"body": 1'],
)
def test_bad_examples_groups_and_bodies_are_named(tmp_path: Path, fields: str) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_text(f'{{"text": "Nine.", {fields}}}\n')
    with pytest.raises(DataError, match=r'line 1, field "(examples|group|body)"'):
        read_stored_candidates(file, 10)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "x" * 2001}, "2001 characters are more than the limit of 2000"),
        ({"metadata": {"a": "x" * 4090}}, "4099 bytes are more than the limit of 4096"),
        ({"examples": ["When?"] * 33}, "at most 32 items"),
        ({"examples": ["x" * 2001]}, "at most 2000 characters"),
    ],
)
def test_a_file_obeys_the_limits_of_uploads(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    path = write_lines(tmp_path / "replies.jsonl", {"text": "One."}, {"text": "Two."} | fields)
    with pytest.raises(DataError, match=rf"replies\.jsonl, line 3.*{message}"):
        read_stored_candidates(path, 10)


def test_a_file_may_not_have_more_candidates_than_a_pool(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "replies.jsonl", {"text": "One."}, {"text": "Two."})
    assert len(read_stored_candidates(path, 2)) == 2
    with pytest.raises(DataError, match="line 3: more candidates than the limit of 1"):
        read_stored_candidates(path, 1)


def test_a_file_that_expands_without_bound_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl.xz"
    with lzma.open(path, "wb", preset=0) as file:
        for _ in range(64):
            file.write(b" " * (1 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match="line 1: more than 4194304 characters"):
        read_stored_candidates(path, 10)
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
        read_stored_candidates(path, 1000)

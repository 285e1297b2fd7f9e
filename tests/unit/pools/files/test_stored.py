"""Candidates in the files of snapshots."""

from pathlib import Path

import pytest

from tests.support.messages import write_lines
from turnwise.models.errors import DataError
from turnwise.service.pools import Candidate
from turnwise.service.pools.files.stored import read_stored_candidates


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


def test_a_candidate_has_at_most_32_examples(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "pool.jsonl", {"text": "Nine.", "examples": ["When?"] * 33})
    with pytest.raises(DataError, match=r"pool\.jsonl, line 1.*at most 32 items"):
        read_stored_candidates(path, 10)

"""Candidates in the files of snapshots."""

import json
from pathlib import Path

import pytest

from turnwise.models.errors import DataError
from turnwise.service.pools.files.stored import read_stored_candidates


def test_metadata_nests_as_deep_as_every_answer_can_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    deep = '{"a":' * 50 + "[" * 50 + "1" + "]" * 50 + "}" * 50
    path.write_text(f'{{"text": "One.", "metadata": {deep}}}')
    assert len([*read_stored_candidates(path, 10)]) == 1
    path.write_text(f'{{"text": "One.", "metadata": {{"a": {deep}}}}}')
    with pytest.raises(DataError, match=r'"metadata".*limit of 100 levels'):
        list(read_stored_candidates(path, 10))


def test_an_example_counts_once_among_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_text('{"text": "Nine.", "examples": ["When?", " When? "], "group": "hours"}\n')
    (read,) = read_stored_candidates(file, 10)
    assert (read.examples, read.group) == (("When?",), "hours")
    assert read.bytes == len(read.id) + len("Nine.") + len("When?") + len("hours")


@pytest.mark.parametrize(
    "fields",
    [
        '"examples": "When?"',
        '"examples": [""]',
        f'"examples": {json.dumps(["When?"] * 33)}',
        '"group": ""',
        '"group": "a\\nb"',
        '"body": 1',
        '"metadata": []',
        '"text": " "',
    ],
)
def test_bad_fields_are_named(tmp_path: Path, fields: str) -> None:
    file = tmp_path / "pool.jsonl"
    file.write_text(f'{{"text": "Nine.", {fields}}}\n')
    with pytest.raises(DataError, match=r'line 1, field "(examples|group|body|metadata|text)"'):
        list(read_stored_candidates(file, 10))

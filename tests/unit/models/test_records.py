import os
from pathlib import Path

import pytest

from turnwise.models.data import read_records
from turnwise.models.errors import DataError
from turnwise.models.text_files import read_jsonl, write_jsonl


def written(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8", newline="")
    return path


def test_a_record_within_another_names_the_way_to_its_field(tmp_path: Path) -> None:
    path = written(tmp_path / "any.jsonl", '\n{"a": [{"b": "x"}, {"b": [" "]}]}\n')
    (record,) = read_records(path)
    first, second = record.records("a")
    assert first.text("b") == "x"
    with pytest.raises(DataError) as caught:
        second.texts("b")
    assert (caught.value.line, caught.value.field) == (2, "a[1].b[0]")


def test_jsonl_comes_with_line_numbers_and_without_blank_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "any.jsonl", '{"a": 1}\n\n  \r\n{"b": "\u2028"}')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (4, {"b": "\u2028"})]


def test_a_file_may_be_written_from_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "any.jsonl", '{"a": 1}\n{"a": 2}\n')
    count = write_jsonl(path, ({"a": -record["a"]} for _, record in read_jsonl(path)))
    assert (count, path.read_text()) == (2, '{"a": -1}\n{"a": -2}\n')


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert write_jsonl(tmp_path / "pipe", [{"a": "é"}]) == 1
    assert os.read(reader, 99).decode() == '{"a": "é"}\n'
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()

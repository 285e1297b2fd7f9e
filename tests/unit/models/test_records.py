import os
from collections.abc import Iterator
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


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_writing_that_fails_leaves_the_folder_as_it_was(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def records() -> Iterator[dict[str, int]]:
        yield {"a": 2}
        raise error

    path = written(tmp_path / "any.jsonl", '{"a": 1}\n')
    for name in ("any.jsonl", "new.jsonl"):
        with pytest.raises(error):
            write_jsonl(tmp_path / name, records())
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == '{"a": 1}\n'


def test_a_file_may_be_written_from_itself_behind_a_link_and_keeps_its_mode(tmp_path: Path) -> None:
    path = written(tmp_path / "any.jsonl", '{"a": 1}\n{"a": 2}\n')
    link = tmp_path / "link.jsonl"
    path.chmod(0o640)
    link.symlink_to(path)
    count = write_jsonl(link, ({"a": -record["a"]} for _, record in read_jsonl(link)))
    assert (count, path.read_text()) == (2, '{"a": -1}\n{"a": -2}\n')
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert write_jsonl(tmp_path / "pipe", [{"a": "é"}]) == 1
    assert os.read(reader, 99).decode() == '{"a": "é"}\n'
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()

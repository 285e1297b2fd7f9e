import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from turnwise.models.errors import DataError, TurnwiseError
from turnwise.service.pools import Candidate
from turnwise.service.pools.files import catalogue
from turnwise.service.pools.files.catalogue import Catalogue

ROWS: list[dict[str, Any]] = [
    {"id": "1", "text": "Grüße!", "metadata": {"topic": "talk"}},
    {"id": None, "text": "No, thanks,\nnot today.", "metadata": None},
    {"id": "3", "text": "Yes.", "metadata": {"topic": "answer"}},
]
CANDIDATES = [Candidate.of(row["text"], row["id"], row["metadata"]) for row in ROWS]


def json_lines(path: Path) -> None:
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(row) for row in ROWS))


def csv(path: Path) -> None:
    path.write_text(
        'id,topic,text\n1,talk,Grüße!\n,,"No, thanks,\nnot today."\n3,answer,Yes.\n',
        encoding="utf-8-sig",
    )


def parquet_of_objects(path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist(ROWS), path)


def parquet_of_json(path: Path) -> None:
    texts = [row["metadata"] and json.dumps(row["metadata"]) for row in ROWS]
    table = pa.Table.from_pylist(ROWS)
    parquet.write_table(table.set_column(2, "metadata", [texts]), path)


def read(file: object) -> list[Candidate]:
    """The candidates of the first part of a catalogue of one file."""
    ((_, candidates),) = Catalogue.read([str(file)]).parts({0})
    return candidates


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.jsonl", json_lines),
        ("a.jsonl.gz", json_lines),
        ("a.jsonl.xz", json_lines),
        ("a.csv", csv),
        ("a.parquet", parquet_of_objects),
        ("a.parquet", parquet_of_json),
    ],
)
def test_each_kind_of_file_holds_the_same(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    assert read(tmp_path / name) == CANDIDATES
    assert read(tmp_path / "a.*") == CANDIDATES


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_examples_groups_and_bodies_are_read(tmp_path: Path, name: str) -> None:
    rows = [
        {"text": "Bye.", "examples": None, "group": None, "body": "Bye.\nBye."},
        {"text": "Nine to six.", "examples": ["When are you open?", "Hours?"], "group": "hours"},
    ]
    if name.endswith(".parquet"):
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    else:
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    hours = Candidate.of("Nine to six.", examples=["When are you open?", "Hours?"], group="hours")
    assert read(tmp_path / name) == [Candidate.of("Bye.", body="Bye.\nBye."), hours]


def test_a_candidate_with_another_group_is_another_one(tmp_path: Path) -> None:
    row = {"id": "1", "text": "Hello.", "group": "hello"}
    other = row | {"group": "talk"}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(other)}\n")
    with pytest.raises(DataError, match="line 2: '1' is also the id of line 1"):
        read(tmp_path / "a.jsonl")


def test_a_difference_between_two_files_names_both(tmp_path: Path) -> None:
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file, text in zip(files, ("Yes.", "No."), strict=True):
        file.write_text(json.dumps({"id": "1", "text": text}))
    expected = rf"b\.jsonl, line 1: '1' is also the id of another text, in {files[0]}, line 1"
    with pytest.raises(DataError, match=expected):
        Catalogue.read([str(file) for file in files])


def test_rows_of_one_answer_are_one_candidate_in_the_part_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "PART", 2)
    rows = [("A?", "Yes."), ("B?", "No."), ("C?", "Yes."), ("D?", "Maybe."), ("B?", "No.")]
    (tmp_path / "a.csv").write_text("\n".join(["question,answer", *map(",".join, rows)]))
    found = Catalogue.read([str(tmp_path / "a.csv")])
    yes = Candidate.of("Yes.", examples=["A?", "C?"])
    maybe = Candidate.of("Maybe.", examples=["D?"])
    assert dict(found.parts({0, 2, 4})) == {
        0: [yes, Candidate.of("No.", examples=["B?"])],
        2: [maybe],
        4: [],
    }
    assert found.notes == ['text from "answer", examples from "question"']


def test_a_file_may_be_at_a_url(tmp_path: Path) -> None:
    json_lines(tmp_path / "a.jsonl")
    system = fsspec.filesystem("memory")
    try:
        system.put_file(str(tmp_path / "a.jsonl"), "/turnwise/a.jsonl")
        assert read("memory://turnwise/a.jsonl") == CANDIDATES
        assert read("memory://turnwise/*.jsonl") == CANDIDATES
        system.pipe_file("/turnwise/b.csv", b"id\n")
        with pytest.raises(DataError, match=r"^memory://turnwise/b\.csv, line 1: "):
            read("memory://turnwise/b.csv")
    finally:
        system.rm("/turnwise", recursive=True)


BAD = {
    "a.jsonl": [
        (f'{{"text": "{"x" * 2001}"}}\n', 'line 1, field "text": 2001 characters are more'),
        (
            f'{{"text": "x", "metadata": {{"a": "{"x" * 5000}"}}}}\n',
            'line 1, field "metadata": 5009 bytes are more',
        ),
        (
            '{"id": "1", "text": "x"}\n{"id": "2", "text": "x"}\n{"id": "1", "text": "y"}\n',
            "line 3: '1' is also the id of another text, in line 1",
        ),
    ],
    "a.parquet": [("PAR1", ": not Parquet")],
    "a.docx": [("x", ": unknown format: expected .jsonl")],
}


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [(name, text, what) for name, cases in BAD.items() for text, what in cases],
)
def test_a_bad_row_is_named(tmp_path: Path, name: str, text: str, what: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        read(tmp_path / name)
    expected = what.replace("FILE", str(tmp_path / name))
    assert str(caught.value).removeprefix(f"{tmp_path / name}").lstrip(", ").startswith(expected)


def test_a_bad_row_of_parquet_is_named(tmp_path: Path) -> None:
    rows = [{"text": "x", "metadata": "{}"}, {"text": "y", "metadata": "{"}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r'a\.parquet, row 2, field "metadata": not JSON'):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("no-such://a.jsonl", "cannot be opened: Protocol not known"),
        ("nothing-*.jsonl", "no file matches"),
        ("empty.jsonl", "there are no candidates"),
    ],
)
def test_a_catalogue_that_is_not_there_is_named(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(TurnwiseError, match=what):
        read(name if "://" in name else tmp_path / name)


def test_a_candidate_is_in_one_part_however_often_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "PART", 2)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"text": "a"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "c"}\n{"text": "b"}\n')
    found = Catalogue.read([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    assert found.ranges == [(0, 2), (2, 4), (4, 5)]
    parts = {start: [c.text for c in some] for start, some in found.parts({0, 2, 4})}
    assert parts == {0: ["a", "b"], 2: ["c"], 4: []}
    assert dict(found.parts({4})) == {4: []}

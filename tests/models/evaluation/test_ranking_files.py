import json
from pathlib import Path

import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import DataError
from turnwise.models.evaluation.ranking_builder import Building, build_ranking
from turnwise.models.evaluation.ranking_files import ranking_set, read_ranking, write_ranking

RECORD = {
    "context": ["where is the key", "under the mat"],
    "candidates": ["thanks", "which mat", "good night"],
    "labels": [0, 1, 0],
}


def write(path: Path, *records: object) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ranking.jsonl"


def test_speakers_alternate_where_none_are_given(path: Path) -> None:
    (context,) = read_ranking([write(path, RECORD)]).split.contexts
    assert [said.speaker for said in context.history] == ["A", "B"]
    assert context.target == Utterance("A", "which mat")


def test_the_response_is_of_who_did_not_say_the_last(path: Path) -> None:
    said = [("guest", "hello"), ("host", "come in"), ("host", "sit down")]
    history = [{"speaker": speaker, "text": text} for speaker, text in said]
    (context,) = read_ranking([write(path, RECORD | {"context": history})]).split.contexts
    assert context.history == (Utterance("guest", "hello"), Utterance("host", "come in sit down"))
    assert context.target.speaker == "guest"


def test_the_speaker_of_the_response_may_be_named(path: Path) -> None:
    (context,) = read_ranking([write(path, RECORD | {"speaker": "C"})]).split.contexts
    assert context.target.speaker == "C"


def test_several_files_are_one_set(path: Path) -> None:
    other = write(path.with_name("other.jsonl"), RECORD | {"candidates": ["thanks", "no", "yes"]})
    read = read_ranking([write(path, RECORD), other])
    assert read.split.pool == ("thanks", "which mat", "good night", "no", "yes")
    assert [list(those) for those in read.candidates] == [[0, 1, 2], [0, 3, 4]]
    assert [list(those) for those in read.relevant] == [[False, True, False]] * 2
    assert read.where == (f"{path}, line 1", f"{other}, line 1")
    assert len(read_ranking([path, other], limit=1).candidates) == 1


def test_an_equal_text_has_one_place(path: Path) -> None:
    read = read_ranking([write(path, RECORD | {"candidates": ["no", "yes", "no"]})])
    assert list(read.candidates[0]) == [0, 1, 0]


def test_problems_with_nothing_to_tell_apart_are_dropped_and_counted(path: Path) -> None:
    none, every = ({"labels": [label] * 3} for label in (0, 1))
    read = read_ranking([write(path, RECORD | none, RECORD, RECORD | every)])
    assert len(read.candidates) == 1
    assert read.dropped == (f"{path}, line 1", f"{path}, line 3")


def test_a_file_without_a_problem_that_counts_is_refused(path: Path) -> None:
    right = RECORD | {"labels": [1, 1, 1]}
    message = r'ranking\.jsonl, line 1, field "labels": expected right and wrong .* of 2 problems'
    with pytest.raises(DataError, match=message):
        read_ranking([write(path, RECORD | {"labels": [0, 0, 0]}, right)])


def test_an_empty_file_is_refused(path: Path) -> None:
    with pytest.raises(DataError, match=r"ranking\.jsonl: no problem in it"):
        read_ranking([write(path)])


def test_a_problem_that_stands_there_twice_counts_twice(path: Path) -> None:
    assert len(read_ranking([write(path, RECORD), path]).candidates) == 2


@pytest.mark.parametrize(
    ("change", "field", "what"),
    [
        ({"context": []}, "context", "not empty"),
        ({"context": ["hello", " "]}, "context[1]", "not empty"),
        ({"context": [{"text": "hello"}]}, "context[0].speaker", "not empty"),
        ({"candidates": []}, "candidates", "not empty"),
        ({"candidates": ["a", None, "b"]}, "candidates[1]", "not empty"),
        ({"labels": [0, 1]}, "labels", "expected as many as candidates, 3, found 2"),
        ({"labels": [0, 2, 1]}, "labels[1]", "expected 0 or 1, found 2"),
        ({"labels": [0, "1", 1]}, "labels[1]", 'expected 0 or 1, found "1"'),
        ({"labels": "010"}, "labels", "expected a list"),
        ({"speaker": 3}, "speaker", "expected a text"),
    ],
)
def test_a_bad_field_is_named(path: Path, change: dict[str, object], field: str, what: str) -> None:
    with pytest.raises(DataError, match=what) as caught:
        read_ranking([write(path, RECORD, RECORD | change)])
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(path), 2, field)


@pytest.mark.parametrize("field", RECORD)
def test_a_missing_field_is_named(path: Path, field: str) -> None:
    write(path, {name: value for name, value in RECORD.items() if name != field})
    with pytest.raises(DataError, match=f'line 1, field "{field}": missing'):
        read_ranking([path])


def test_what_is_built_is_read_again(path: Path, dialogues: list[Dialogue]) -> None:
    problems = list(build_ranking(dialogues, Building(candidates=5)))
    assert write_ranking(problems, path) == len(problems) == 8
    read, expected = read_ranking([path]), ranking_set(problems, [""] * 8)
    assert read.split.contexts == expected.split.contexts
    assert read.split.pool == expected.split.pool
    assert [list(those) for those in read.relevant] == [list(those) for those in expected.relevant]

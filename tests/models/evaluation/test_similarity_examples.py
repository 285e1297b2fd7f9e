import json
from pathlib import Path

import pytest

from turnwise.models.data import Utterance
from turnwise.models.errors import DataError
from turnwise.models.evaluation.similarity_examples import Said, read_pairs, read_questions

PAIR = {
    "context": ["where is the key", "under the mat"],
    "sentence1": "thank you",
    "sentence2": "which mat",
    "score": 0.25,
    "domain": "home",
}
QUESTION = {"context": ["is it far", "no, it is near"], "choices": ["a", "b", "c"], "answer": 1}
CONTEXT = (Utterance("A", "where is the key"), Utterance("B", "under the mat"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.jsonl"


def write(path: Path, *records: object) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_both_sentences_are_said_by_the_other_speaker(path: Path) -> None:
    (pair,) = read_pairs([write(path, PAIR)])
    assert pair.said == Said(CONTEXT, "A", "thank you")
    assert pair.other == "which mat"
    assert (pair.score, pair.domain, pair.where) == (0.25, "home", f"{path}, line 1")


def test_context_and_domain_may_be_missing_or_empty(path: Path) -> None:
    (pair,) = read_pairs([write(path, PAIR | {"context": [], "domain": None, "score": 3})])
    assert (pair.said.context, pair.domain, pair.score) == ((), "", 3.0)


def test_the_last_turn_is_the_one_to_compare_with(path: Path) -> None:
    (question,) = read_questions([write(path, QUESTION)])
    assert question.said == Said((Utterance("A", "is it far"),), "B", "no, it is near")
    assert question.candidates == ("a", "b", "c")
    assert question.answer == 1


def test_files_are_read_one_after_the_other_up_to_the_limit(path: Path) -> None:
    other = write(path.with_name("other.jsonl"), PAIR | {"score": 1}, PAIR | {"score": 2}, {})
    read = read_pairs([write(path, PAIR), other], limit=3)
    assert [pair.score for pair in read] == [0.25, 1, 2]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"context": "hello"}, "context"),
        ({"context": ["hello", ""]}, "context[1]"),
        ({"sentence1": " "}, "sentence1"),
        ({"sentence1": "half of \ud83d"}, "sentence1"),
        ({"sentence2": 2}, "sentence2"),
        ({"score": "high"}, "score"),
        ({"score": True}, "score"),
        ({"score": float("nan")}, "score"),
        ({"score": 10**400}, "score"),
        ({"domain": 7}, "domain"),
    ],
)
def test_a_bad_field_of_a_pair_is_named(path: Path, change: dict[str, object], field: str) -> None:
    with pytest.raises(DataError) as caught:
        read_pairs([write(path, PAIR, PAIR | change)])
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(path), 2, field)


@pytest.mark.parametrize("field", ["context", "sentence1", "sentence2", "score"])
def test_a_missing_field_of_a_pair_is_named(path: Path, field: str) -> None:
    write(path, {name: value for name, value in PAIR.items() if name != field})
    with pytest.raises(DataError, match=f'line 1, field "{field}": missing'):
        read_pairs([path])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"context": []}, "context"),
        ({"choices": ["one"]}, "choices"),
        ({"choices": ["one", None]}, "choices[1]"),
        ({"answer": 3}, "answer"),
        ({"answer": -1}, "answer"),
        ({"answer": "b"}, "answer"),
        ({"answer": True}, "answer"),
    ],
)
def test_a_bad_field_of_a_question_is_named(
    path: Path, change: dict[str, object], field: str
) -> None:
    with pytest.raises(DataError) as caught:
        read_questions([write(path, QUESTION, QUESTION | change)])
    assert (caught.value.line, caught.value.field) == (2, field)


def test_a_file_without_examples_is_rejected(path: Path) -> None:
    with pytest.raises(DataError, match="no example in it"):
        read_pairs([write(path)])

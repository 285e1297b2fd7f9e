"""The files of short-term planning, ranking, similarity and multiple choice."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import DataError
from turnwise.models.evaluation.long_term import Setting, asked_goals, make_goal_sets
from turnwise.models.evaluation.ranking import Building, build_ranking, ranking_set, read_ranking
from turnwise.models.evaluation.short_term import make_examples, read_examples, without_goals
from turnwise.models.evaluation.similarity import read_pairs, read_questions
from turnwise.models.evaluation.split import Context
from turnwise.models.text_files import write_jsonl

TEXTS = ["where is the key", "under the mat"]
CONTEXT = (Utterance("A", TEXTS[0]), Utterance("B", TEXTS[1]))
NAMED = [{"speaker": s, "text": t} for s, t in zip(("guest", "host"), TEXTS, strict=True)]
SHORT_TERM = {
    "context": TEXTS,
    "candidates": ["thanks", "which mat"],
    "true": "it is not there",
    "goal": "then look again",
    "goal_distance": 1,
}
RANKING = {
    "context": TEXTS,
    "candidates": ["thanks", "which mat", "good night"],
    "labels": [0, 1, 0],
}
PAIR = {"context": TEXTS, "sentence1": "thank you", "sentence2": "which mat", "score": 0.25}
QUESTION = {"context": TEXTS, "choices": ["a", "b", "c"], "answer": 1}

READERS: dict[str, tuple[dict[str, object], Callable[[Path], object]]] = {
    "short-term": (SHORT_TERM, read_examples),
    "ranking": (RANKING, lambda path: read_ranking([path])),
    "similarity": (PAIR, lambda path: read_pairs([path])),
    "multiple-choice": (QUESTION, lambda path: read_questions([path])),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.jsonl"


def write(path: Path, *records: object) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


@pytest.mark.parametrize(
    ("task", "change", "field"),
    [
        ("short-term", {"context": []}, "context"),
        ("short-term", {"context": [{"speaker": "A"}]}, "context[0].text"),
        ("short-term", {"candidates": ["hello", 7]}, "candidates[1]"),
        ("short-term", {"candidates": ["", "it is not there"]}, "candidates"),
        ("short-term", {"true": None}, "true"),
        ("short-term", {"goal": {"text": "yes"}}, "goal.speaker"),
        ("short-term", {"goal_distance": 0}, "goal_distance"),
        ("short-term", {"dialogue_id": []}, "dialogue_id"),
        ("ranking", {"context": [{"text": "hello"}]}, "context[0].speaker"),
        ("ranking", {"candidates": []}, "candidates"),
        ("ranking", {"labels": [0, 1]}, "labels"),
        ("ranking", {"labels": [0, 2, 1]}, "labels[1]"),
        ("ranking", {"speaker": 3}, "speaker"),
        ("ranking", {"dialogue_id": True}, "dialogue_id"),
        ("similarity", {"context": ["hello", ""]}, "context[1]"),
        ("similarity", {"sentence1": "half of \ud83d"}, "sentence1"),
        ("similarity", {"score": True}, "score"),
        ("similarity", {"score": float("nan")}, "score"),
        ("similarity", {"score": 10**400}, "score"),
        ("multiple-choice", {"context": []}, "context"),
        ("multiple-choice", {"choices": ["one"]}, "choices"),
        ("multiple-choice", {"answer": 3}, "answer"),
        ("multiple-choice", {"answer": -1}, "answer"),
        ("multiple-choice", {"answer": True}, "answer"),
    ],
)
def test_an_error_names_a_bad_field(
    path: Path, task: str, change: dict[str, object], field: str
) -> None:
    record, read = READERS[task]
    with pytest.raises(DataError) as caught:
        read(write(path, record, record | change))
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(path), 2, field)


@pytest.mark.parametrize(
    ("task", "field"), [(task, field) for task, (record, _) in READERS.items() for field in record]
)
def test_an_error_names_a_missing_field(path: Path, task: str, field: str) -> None:
    record, read = READERS[task]
    write(path, {name: value for name, value in record.items() if name != field})
    with pytest.raises(DataError, match=f'line 1, field "{field}": missing'):
        read(path)


def test_several_files_are_one_set_up_to_the_limit(path: Path) -> None:
    other = write(path.with_name("other.jsonl"), RANKING | {"candidates": ["thanks", "no", "yes"]})
    read = read_ranking([write(path, RANKING), other])
    assert read.split.pool == ("thanks", "which mat", "good night", "no", "yes")
    assert [list(those) for those in read.candidates] == [[0, 1, 2], [0, 3, 4]]
    assert [list(those) for those in read.relevant] == [[False, True, False]] * 2
    assert read.where == (f"{path}, line 1", f"{other}, line 1")
    assert len(read_ranking([path, other], limit=1).candidates) == 1
    write(other, PAIR | {"score": 1}, PAIR | {"score": 2}, {})
    assert [pair.score for pair in read_pairs([write(path, PAIR), other], limit=3)] == [0.25, 1, 2]
    write(path, SHORT_TERM, SHORT_TERM | {"true": "second"}, {})
    assert [example.true.text for example in read_examples(path, 2)][1:] == ["second"]


@pytest.mark.parametrize(("distance", "speaker"), [(1, "B"), (2, "A")])
def test_the_distance_decides_who_says_the_goal(path: Path, distance: int, speaker: str) -> None:
    (example,) = read_examples(write(path, SHORT_TERM | {"goal_distance": distance}))
    assert example.context == CONTEXT
    assert example.true.speaker == "A"
    assert example.goal == Utterance(speaker, "then look again")


def test_the_reply_to_a_named_speaker_is_of_the_other(path: Path) -> None:
    (example,) = read_examples(write(path, SHORT_TERM | {"context": NAMED}))
    assert (example.true.speaker, example.goal.speaker) == ("guest", "host")
    more = [*NAMED, {"speaker": "host", "text": "look again"}]
    (context,) = read_ranking([write(path, RANKING | {"context": more})]).split.contexts
    assert context.texts == [TEXTS[0], f"{TEXTS[1]} look again"]
    assert context.target == Utterance("guest", "which mat")
    (context,) = read_ranking([write(path, RANKING | {"speaker": "C"})]).split.contexts
    assert (context.utterances, context.target.speaker) == (CONTEXT, "C")


def test_ranking_drops_and_counts_examples_with_nothing_to_rank(path: Path) -> None:
    none, every = (RANKING | {"labels": [label] * 3} for label in (0, 1))
    read = read_ranking([write(path, none, RANKING, every)])
    assert len(read.candidates) == 1
    assert read.dropped == (f"{path}, line 1", f"{path}, line 3")
    message = r'line 1, field "labels": expected right and wrong .* of 2 examples'
    with pytest.raises(DataError, match=message):
        read_ranking([write(path, none, every)])


def test_a_pair_has_one_context_and_speaker(path: Path) -> None:
    pair, bare = read_pairs(
        [write(path, PAIR | {"domain": "home"}, PAIR | {"context": [], "domain": None})]
    )
    assert (pair.said, pair.other) == (Context(CONTEXT, Utterance("A", "thank you")), "which mat")
    assert (pair.score, pair.domain, pair.where) == (0.25, "home", f"{path}, line 1")
    assert (bare.said.utterances, bare.domain) == ((), "")


def test_the_last_utterance_is_the_one_to_compare_with(path: Path) -> None:
    (question,) = read_questions([write(path, QUESTION)])
    assert question.said == Context(CONTEXT[:1], CONTEXT[1])
    assert (question.candidates, question.answer) == (("a", "b", "c"), 1)


def test_examples_know_their_dialogues(dialogues: list[Dialogue]) -> None:
    one = dialogues[0]
    other = dialogues[6]
    twins = [one, replace(other, utterances=one.utterances[:2] + other.utterances[2:])]
    short_term = without_goals(make_examples(twins, [2], [1], lambda *_: ["one", "two"]))
    ranking = ranking_set([(each, "") for each in build_ranking(twins, Building(candidates=2))])
    long_term = asked_goals(make_goal_sets(twins, [Setting(2, 2, 0)]))
    assert short_term.split.dialogues.tolist() == ranking.split.dialogues.tolist() == [0, 1]
    assert long_term.dialogues.tolist() == [0] * 3 + [1] * 3


def test_written_examples_are_read_again(path: Path, dialogues: list[Dialogue]) -> None:
    examples = make_examples(dialogues, [2, 4], [1, 2], lambda *_: ["one", "two"])
    write_jsonl(path, map(asdict, examples))
    assert read_examples(path) == examples
    built = list(build_ranking(dialogues, Building(candidates=5)))
    assert write_jsonl(path, map(asdict, built)) == len(built) == 8
    read = read_ranking([path])
    expected = ranking_set([(each, "") for each in built])
    assert read.split.contexts == expected.split.contexts
    assert read.split.pool == expected.split.pool
    assert [list(those) for those in read.relevant] == [list(those) for those in expected.relevant]

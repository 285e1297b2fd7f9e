import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.short_term_examples import (
    make_examples,
    read_examples,
    retrieved_replies,
    write_examples,
)
from turnwise.models.roles import EncoderKind, Role

RECORD = {
    "context": ["where is the key", "under the mat"],
    "candidates": ["thanks", "which mat"],
    "true": "it is not there",
    "goal": "then look again",
    "goal_distance": 1,
}


def write(path: Path, *records: object) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def propose(dialogue: Dialogue, length: int) -> list[str]:
    return ["one", dialogue.utterances[length].text, "two"]


def test_an_example_for_every_distance_that_fits(dialogues: list[Dialogue]) -> None:
    told = []
    examples = make_examples(
        dialogues[3:5], [2, 3], [1, 3], propose, lambda *done: told.append(done)
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    made = [(len(p.context), p.goal_distance, p.goal) for p in examples]
    short, long = dialogues[3].utterances, dialogues[4].utterances
    assert made == [(2, 1, short[3]), (2, 1, long[3]), (2, 3, long[5]), (3, 1, long[4])]


def test_the_true_one_is_not_among_the_candidates(dialogues: list[Dialogue]) -> None:
    example = make_examples(dialogues[:1], [2], [1], propose)[0]
    assert example.true == dialogues[0].utterances[2]
    assert example.candidates == ("one", "two")


def test_an_example_with_nothing_proposed_but_the_true_one_is_left_out(
    dialogues: list[Dialogue],
) -> None:
    def propose_late(dialogue: Dialogue, length: int) -> list[str]:
        return propose(dialogue, length)[0 if length == 3 else 1 : 2]

    examples = make_examples(dialogues[:1], [2, 3], [1], propose_late)
    assert [(len(p.context), p.candidates) for p in examples] == [(3, ("one",))]


def test_dialogues_with_nothing_proposed_are_rejected(dialogues: list[Dialogue]) -> None:
    with pytest.raises(TurnwiseError, match="none has a candidate besides the true reply"):
        make_examples(dialogues, [2], [1], lambda *_: [])


def test_dialogues_that_are_all_too_short_are_rejected(dialogues: list[Dialogue]) -> None:
    with pytest.raises(TurnwiseError, match="no dialogue is long enough"):
        make_examples(dialogues[1:2], [2], [1], propose)


def test_retrieved_replies_are_the_best_of_other_dialogues(
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder], dialogues: list[Dialogue]
) -> None:
    encoder = tiny_encoder(EncoderKind.SINGLE)
    found = retrieved_replies(encoder, dialogues, [3], count=5)(dialogues[0], 3)
    history = [said.text for said in dialogues[0].utterances[:3]]
    own = {said.text for said in dialogues[0].utterances}
    others = {said.text for d in dialogues for said in d.utterances} - own
    query = encoder.encode(history, Role.AFTER).astype(np.float64).sum(axis=0)
    fits = {text: float(encoder.encode([text], Role.AFTER)[0] @ query) for text in others}
    assert found == sorted(fits, key=fits.__getitem__, reverse=True)[:5]


def test_there_are_no_more_retrieved_replies_than_other_utterances(
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder], dialogues: list[Dialogue]
) -> None:
    proposed = retrieved_replies(tiny_encoder(EncoderKind.TRIPLE), dialogues[:2], [3])(
        dialogues[0], 3
    )
    assert sorted(proposed) == sorted(said.text for said in dialogues[1].utterances)


@pytest.mark.parametrize(("distance", "speaker"), [(1, "B"), (2, "A")])
def test_speakers_of_plain_texts_alternate(tmp_path: Path, distance: int, speaker: str) -> None:
    path = write(tmp_path / "examples.jsonl", RECORD | {"goal_distance": distance})
    (example,) = read_examples(path)
    assert [said.speaker for said in example.context] == ["A", "B"]
    assert example.true.speaker == "A"
    assert example.goal == Utterance(speaker, "then look again")


def test_the_reply_to_a_named_speaker_is_of_the_other(tmp_path: Path) -> None:
    context = [{"speaker": "guest", "text": "hello"}, {"speaker": "host", "text": "come in"}]
    (example,) = read_examples(write(tmp_path / "examples.jsonl", RECORD | {"context": context}))
    assert (example.true.speaker, example.goal.speaker) == ("guest", "host")


def test_the_true_text_is_taken_out_of_the_candidates(tmp_path: Path) -> None:
    record = RECORD | {"candidates": ["thanks", "it is not there"]}
    (example,) = read_examples(write(tmp_path / "examples.jsonl", record))
    assert example.candidates == ("thanks",)


def test_written_examples_are_read_again(tmp_path: Path, dialogues: list[Dialogue]) -> None:
    examples = make_examples(dialogues, [2, 4], [1, 2], propose)
    write_examples(examples, tmp_path / "examples.jsonl")
    assert read_examples(tmp_path / "examples.jsonl") == examples


def test_a_limit_reads_the_first_examples(tmp_path: Path) -> None:
    path = write(tmp_path / "examples.jsonl", RECORD, RECORD | {"true": "second"}, {})
    assert [example.true.text for example in read_examples(path, 2)] == [
        "it is not there",
        "second",
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"context": []}, "context"),
        ({"context": ["hello", 3]}, "context[1]"),
        ({"context": [{"speaker": "A"}]}, "context[0].text"),
        ({"candidates": "hello"}, "candidates"),
        ({"candidates": ["hello", 7]}, "candidates[1]"),
        ({"candidates": ["", "it is not there"]}, "candidates"),
        ({"true": None}, "true"),
        ({"goal_distance": 0}, "goal_distance"),
        ({"goal_distance": "2"}, "goal_distance"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, change: dict[str, object], field: str) -> None:
    path = write(tmp_path / "examples.jsonl", RECORD, RECORD | change)
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert (caught.value.line, caught.value.field) == (2, field)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "examples.jsonl", {k: v for k, v in RECORD.items() if k != "goal"})
    with pytest.raises(DataError, match='line 1, field "goal": missing'):
        read_examples(path)


def test_a_file_without_examples_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no example in it"):
        read_examples(write(tmp_path / "examples.jsonl"))

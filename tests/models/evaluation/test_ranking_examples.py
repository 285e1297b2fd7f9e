import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.ranking_examples import (
    Building,
    Negatives,
    RankingExample,
    build_ranking,
    draw_replies,
    ranking_set,
    read_ranking,
    write_ranking,
)

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
    assert [said.speaker for said in context.utterances] == ["A", "B"]
    assert context.target == Utterance("A", "which mat")


def test_the_response_is_of_who_did_not_say_the_last(path: Path) -> None:
    said = [("guest", "hello"), ("host", "come in"), ("host", "sit down")]
    context = [{"speaker": speaker, "text": text} for speaker, text in said]
    (context,) = read_ranking([write(path, RECORD | {"context": context})]).split.contexts
    assert context.utterances == (
        Utterance("guest", "hello"),
        Utterance("host", "come in sit down"),
    )
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


def test_examples_with_nothing_to_tell_apart_are_dropped_and_counted(path: Path) -> None:
    none, every = ({"labels": [label] * 3} for label in (0, 1))
    read = read_ranking([write(path, RECORD | none, RECORD, RECORD | every)])
    assert len(read.candidates) == 1
    assert read.dropped == (f"{path}, line 1", f"{path}, line 3")


def test_a_file_without_an_example_that_counts_is_rejected(path: Path) -> None:
    right = RECORD | {"labels": [1, 1, 1]}
    message = r'ranking\.jsonl, line 1, field "labels": expected right and wrong .* of 2 examples'
    with pytest.raises(DataError, match=message):
        read_ranking([write(path, RECORD | {"labels": [0, 0, 0]}, right)])


def test_an_empty_file_is_rejected(path: Path) -> None:
    with pytest.raises(DataError, match=r"ranking\.jsonl: no example in it"):
        read_ranking([write(path)])


def test_an_example_that_stands_there_twice_counts_twice(path: Path) -> None:
    assert len(read_ranking([write(path, RECORD), path]).candidates) == 2


@pytest.mark.parametrize(
    ("change", "field", "what"),
    [
        ({"context": []}, "context", "not empty"),
        ({"context": ["hello", " "]}, "context[1]", "not empty"),
        ({"context": [{"text": "hello"}]}, "context[0].speaker", "missing"),
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
    examples = list(build_ranking(dialogues, Building(candidates=5)))
    assert write_ranking(examples, path) == len(examples) == 8
    read, expected = read_ranking([path]), ranking_set(examples, [""] * 8)
    assert read.split.contexts == expected.split.contexts
    assert read.split.pool == expected.split.pool
    assert [list(those) for those in read.relevant] == [list(those) for those in expected.relevant]


def texts(dialogue: Dialogue) -> set[str]:
    return {said.text for said in dialogue.utterances}


def built(dialogues: list[Dialogue], *sources: Negatives, **how: int) -> list[RankingExample]:
    return list(build_ranking(dialogues, Building(sources, candidates=4, **how)))


def wrong(example: RankingExample) -> list[str]:
    pairs = zip(example.candidates, example.labels, strict=True)
    return [text for text, label in pairs if not label]


def test_a_reply_is_drawn_from_each_dialogue_that_is_long_enough(
    dialogues: list[Dialogue],
) -> None:
    drawn = draw_replies(dialogues, Building(context=4, replies=3))
    lengths = [len(dialogue.utterances) for dialogue in dialogues]
    assert [sum(p.dialogue is d for p in drawn) for d in dialogues] == [
        min(3, max(length - 4, 0)) for length in lengths
    ]
    assert min(place.length for place in drawn) >= 4


@pytest.mark.parametrize("source", ["random", "bm25", "same-dialogue"])
def test_the_one_right_candidate_is_what_was_said(
    dialogues: list[Dialogue], source: Negatives
) -> None:
    for example, place in zip(
        built(dialogues, source), draw_replies(dialogues, Building()), strict=True
    ):
        said = place.dialogue.utterances
        assert example.context == said[: place.length]
        assert example.speaker == said[place.length].speaker
        assert len(set(example.candidates)) == 4
        assert sum(example.labels) == 1
        assert example.candidates[example.labels.index(1)] == place.text


@pytest.mark.parametrize("source", ["random", "bm25"])
def test_negatives_come_from_other_dialogues(dialogues: list[Dialogue], source: Negatives) -> None:
    own = [texts(place.dialogue) for place in draw_replies(dialogues, Building())]
    for example, said in zip(built(dialogues, source), own, strict=True):
        assert not set(wrong(example)) & said


def test_negatives_of_the_same_dialogue_come_from_it(dialogues: list[Dialogue]) -> None:
    for example, dialogue in zip(
        built(dialogues[3:], "same-dialogue", context=1), dialogues[3:], strict=True
    ):
        assert set(wrong(example)) <= texts(dialogue)


def test_what_a_dialogue_cannot_give_is_random(dialogues: list[Dialogue]) -> None:
    short = dialogues[1]  # three utterances: two besides the reply
    (example,) = islice(built([short, *dialogues], "same-dialogue"), 1)
    assert len(set(wrong(example)) & texts(short)) == 2
    assert len(wrong(example)) == 3


def test_sources_share_the_negatives(dialogues: list[Dialogue]) -> None:
    how = Building(("same-dialogue", "random"), candidates=5)
    chosen = [d for d in dialogues if len(d.utterances) > 3]
    for example, dialogue in zip(build_ranking(chosen, how), chosen, strict=True):
        assert len(set(wrong(example)) & texts(dialogue)) == 2


def test_bm25_takes_what_shares_words_with_the_last_utterance() -> None:
    def dialogue(*said: str) -> Dialogue:
        return Dialogue(said[0], tuple(map(Utterance, "ABAB", said)))

    asked = dialogue("hello there", "is the museum open", "yes it is")
    others = [dialogue("the museum is far", "we like rain", "no tram today", "open the door")]
    others.append(dialogue("good morning", "buy bread"))
    (first, *_) = build_ranking([asked, *others], Building(("bm25",), candidates=3))
    assert set(wrong(first)) == {"the museum is far", "open the door"}


def test_a_text_that_differs_by_case_only_is_no_negative() -> None:
    said = [Utterance("A", "hello"), Utterance("B", "hi"), Utterance("A", "Yes")]
    other = [Utterance("A", "yes"), Utterance("B", "YES"), Utterance("A", "no")]
    dialogues = [Dialogue("1", tuple(said)), Dialogue("2", tuple(other))]
    (first, *_) = build_ranking(dialogues, Building(candidates=2))
    assert wrong(first) == ["no"]


def test_the_seed_decides(dialogues: list[Dialogue]) -> None:
    first, again, other = (built(dialogues, "random", seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_right_one_stands_anywhere(dialogues: list[Dialogue]) -> None:
    examples = built(dialogues * 8, "random", replies=4)
    found = np.bincount([example.labels.index(1) for example in examples], minlength=4)
    assert found.min() > 0


def test_too_few_utterances_are_rejected(dialogues: list[Dialogue]) -> None:
    with pytest.raises(TurnwiseError, match="too few distinct utterances for 4 candidates"):
        built(dialogues[:1], "random")


def test_dialogues_that_are_all_too_short_are_rejected(dialogues: list[Dialogue]) -> None:
    with pytest.raises(TurnwiseError, match="no dialogue is longer than 3 utterances"):
        built(dialogues[1:2], "random", context=3)

from itertools import islice

import numpy as np
import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.ranking import (
    Building,
    Negatives,
    RankingExample,
    build_ranking,
    draw_replies,
)


def texts(dialogue: Dialogue) -> set[str]:
    return {said.text for said in dialogue.utterances}


def built(dialogues: list[Dialogue], *sources: Negatives, **how: int) -> list[RankingExample]:
    return list(build_ranking(dialogues, Building(sources, candidates=4, **how)))


def wrong(example: RankingExample) -> list[str]:
    pairs = zip(example.candidates, example.labels, strict=True)
    return [text for text, label in pairs if not label]


def test_a_reply_is_drawn_from_each_dialogue_that_is_long_enough(dialogues: list[Dialogue]) -> None:
    drawn = draw_replies(dialogues, Building(context=4, replies=3))
    lengths = [len(dialogue.utterances) for dialogue in dialogues]
    assert [sum(drew is d for drew, _ in drawn) for d in dialogues] == [
        min(3, max(length - 4, 0)) for length in lengths
    ]
    assert min(length for _, length in drawn) >= 4


@pytest.mark.parametrize("source", ["random", "bm25", "same-dialogue"])
def test_the_one_right_candidate_is_what_was_said(
    dialogues: list[Dialogue], source: Negatives
) -> None:
    for example, (dialogue, length) in zip(
        built(dialogues, source), draw_replies(dialogues, Building()), strict=True
    ):
        said = dialogue.utterances
        assert example.context == said[:length]
        assert example.speaker == said[length].speaker
        assert len(set(example.candidates)) == 4
        assert sum(example.labels) == 1
        assert example.candidates[example.labels.index(1)] == said[length].text


@pytest.mark.parametrize("source", ["random", "bm25"])
def test_negatives_come_from_other_dialogues(dialogues: list[Dialogue], source: Negatives) -> None:
    own = [texts(dialogue) for dialogue, _ in draw_replies(dialogues, Building())]
    for example, said in zip(built(dialogues, source), own, strict=True):
        assert not set(wrong(example)) & said


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


def test_too_few_or_too_short_dialogues_are_rejected(dialogues: list[Dialogue]) -> None:
    with pytest.raises(TurnwiseError, match="too few distinct utterances for 4 candidates"):
        built(dialogues[:1], "random")
    with pytest.raises(TurnwiseError, match="no dialogue is longer than 3 utterances"):
        built(dialogues[1:2], "random", context=3)
